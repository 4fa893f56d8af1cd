"""Expected gradients (Erion et al. 2021, Eq. 3) with balanced draws and standard errors.

    phi_i(x) = E_{b, alpha} [ (x_i - b_i) * dF/dx_i (b + alpha * (x - b)) ],   b from the background, alpha uniform on [0, 1]

Plain sampling (shap's ``GradientExplainer``, captum's ``GradientShap``) draws b and alpha independently. Here every
background example is used equally often; its k points lie at (offset + 0..k-1) / k on its path, and the offsets of the
background examples are stratified too. Each single draw is still uniform over background and path, so the mean is
unbiased for the given background.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from perdure.base.errors import InputError, error_suggestion
from perdure.explain.adapters.arrays import check_finite_array
from perdure.explain.adapters.models import fast_model_copy
from perdure.explain.checks.network import Gradients
from perdure.explain.draws import generator
from perdure.explain.explainer import Request, explainer

KINDS = ("balanced", "iid")
# Weight of the step from the last point of a path back to its first; with it the variance is correct for a straight line.
WRAP = 1 / 6


@dataclass(frozen=True)
class Draws:
    """The points of one example: index of the background example, position on the path and weight.

    Points of the same background example are consecutive.
    """

    background: NDArray[np.int64]
    alpha: NDArray[np.float64]
    weight: NDArray[np.float64]
    repeats: int
    """The smallest number of points that a background example has."""


@dataclass(frozen=True)
class ExpectedGradients:
    """Values and standard errors, both with the shape of x; ``gradients`` is the number of gradients per example.

    With two or more points on each path, the standard error is computed from the differences of gradients along the paths.
    With fewer, it is computed from the spread of all points. That spread includes the differences between background
    examples, which balancing removes, so the standard error is then too large, never too small. NaN for a single point.
    """

    values: Any
    stderr: Any
    gradients: int


def expected_gradients_balanced_draws(samples: int, backgrounds: int, rng: np.random.Generator) -> Draws:
    """Return draws that use all background examples equally often, with evenly spaced points on each path."""
    used = min(samples, backgrounds)
    order = rng.permutation(backgrounds)[:used]
    counts = np.full(used, samples // used)
    counts[: samples % used] += 1
    offsets = (rng.permutation(used) + rng.random(used)) / used
    point = np.arange(samples) - np.repeat(np.cumsum(counts) - counts, counts)
    points_on_path = np.repeat(counts, counts)
    alpha = (np.repeat(offsets, counts) + point) / points_on_path
    return Draws(np.repeat(order, counts), alpha, 1.0 / (used * points_on_path), int(counts.min()))


def expected_gradients_iid_draws(samples: int, backgrounds: int, seed: int, examples: int) -> list[Draws]:
    """Return the draws of ``shap.GradientExplainer.shap_values(..., rseed=seed)`` for each example, in its order."""
    state = np.random.RandomState(seed)  # the generator that shap uses
    draws = []
    for _ in range(examples):
        pairs = [(state.choice(backgrounds), state.uniform()) for _ in range(samples)]
        index, alpha = (np.array(column) for column in zip(*pairs, strict=True))
        draws.append(Draws(index, alpha, np.full(samples, 1.0 / samples), 1))
    return draws


@explainer("expected_gradients", needs=Gradients(), stochastic=True)
def expected_gradients_maps(request: Request, draws: str = "balanced") -> Tensor:
    """Expected gradients (Erion et al. 2021): integrated gradients averaged over the background.

    ``draws``: balanced, or iid as in shap.GradientExplainer.
    """
    maps: Tensor = expected_gradients(request, draws).values
    return maps


def expected_gradients(request: Request, draws: str = "balanced") -> ExpectedGradients:
    """Return the expected gradients of a request with their standard errors."""
    if draws not in KINDS:
        raise InputError(f"draws: unknown kind {draws!r}, {error_suggestion(str(draws), list(KINDS))}")
    backgrounds = request.background_count("expected_gradients")
    model = _fast_model(request, backgrounds)
    plan = _plan(request, draws, backgrounds)
    values, stderr = [], []
    running = _RunningMean(request.x[0], plan[0])
    for spans, products in _products(model, request, plan):
        parts = torch.split(products, [stop - start for start, stop in spans.values()])
        for (index, (start, stop)), part in zip(spans.items(), parts, strict=True):
            if start == 0:
                running = _RunningMean(request.x[0], plan[index])
            running.add(start, part)
            if stop == request.samples:
                values.append(running.mean.to(request.x.dtype))
                stderr.append(running.stderr().to(request.x.dtype))
                request.report(index + 1)
    return ExpectedGradients(torch.stack(values), torch.stack(stderr), request.samples)


def _fast_model(request: Request, backgrounds: int) -> nn.Module:
    """Return a faster copy of the network, made for the first of the requests that share it."""
    models = request.fast_models
    if "expected_gradients" not in models:
        probes = torch.arange(min(4, max(1, request.batch_size // 2), len(request.x), backgrounds))
        starts = request.background_rows(probes, probes)
        probe = torch.cat([request.x[probes], starts])[: request.batch_size]
        models["expected_gradients"] = fast_model_copy(request.model, probe)
    return models["expected_gradients"]


def _plan(request: Request, kind: str, backgrounds: int) -> list[Draws]:
    if kind == "iid":
        return expected_gradients_iid_draws(request.samples, backgrounds, request.seed, len(request.x))
    streams = (generator(request.seed, key) for key in request.keys)
    return [expected_gradients_balanced_draws(request.samples, backgrounds, rng) for rng in streams]


def _products(
    model: nn.Module, request: Request, plan: list[Draws]
) -> Iterator[tuple[dict[int, tuple[int, int]], Tensor]]:
    """Yield batches of gradient times difference with, for each example, the span of its points in the batch.

    A batch may hold points of several examples.
    """
    samples, total = request.samples, request.samples * len(plan)
    for first in range(0, total, request.batch_size):
        last = min(first + request.batch_size, total)
        spans = {
            index: (max(first - index * samples, 0), min(last - index * samples, samples))
            for index in range(first // samples, (last - 1) // samples + 1)
        }
        slices = [(index, slice(*span)) for index, span in spans.items()]
        background_index = np.concatenate([plan[index].background[span] for index, span in slices])
        alpha = np.concatenate([plan[index].alpha[span] for index, span in slices])
        example_index = np.concatenate([np.full(span.stop - span.start, index) for index, span in slices])
        rows = torch.from_numpy(example_index).to(request.x.device)
        end = request.x[rows]
        start = request.background_rows(rows, torch.from_numpy(background_index).to(request.x.device))
        share = torch.from_numpy(alpha).to(request.x).reshape(-1, *[1] * (request.x.dim() - 1))
        point = (share * end + (1 - share) * start).requires_grad_()
        score = model(point.clone()).gather(1, request.target[rows, None])
        (gradient,) = torch.autograd.grad(score.sum(), point)
        product = gradient * (end - start)
        for index, span in slices:
            offset = index * samples + span.start - first
            check_finite_array(
                product[offset : offset + span.stop - span.start].reshape(1, -1), index, "a gradient on its path"
            )
        yield spans, product


class _RunningMean:
    """Running mean and standard error of one example's points, which arrive in batches of any size."""

    def __init__(self, template: Tensor, draws: Draws) -> None:
        self.draws = draws
        dtype = torch.float32 if template.device.type == "mps" else torch.float64  # Apple's GPUs have no float64
        self.mean = torch.zeros_like(template, dtype=dtype)
        self.spread, self.cross = torch.zeros_like(self.mean), torch.zeros_like(self.mean)
        self.first, self.last = self.mean, self.mean
        changes = draws.background[1:] != draws.background[:-1]
        self.opens, self.closes = np.append(True, changes), np.append(changes, True)
        paths = self.opens.sum()
        repeats = np.rint(1.0 / (draws.weight * paths))
        # Variance of the mean of k points on a path: (sum of squared steps + WRAP * wrap^2) / (2 k (k - 1 + WRAP)).
        self.step_weight = 1.0 / (2 * repeats * (repeats - 1 + WRAP)) / paths**2

    def add(self, start: int, rows: Tensor) -> None:
        """Add the points ``start``, ``start + 1``, ... of this example. Points must be added in order."""
        rows = rows.detach().to(self.mean)
        span = slice(start, start + len(rows))
        weight = torch.from_numpy(self.draws.weight[span]).to(rows)
        self.mean = self.mean + torch.tensordot(weight, rows, dims=1)
        if self.draws.repeats < 2:
            self.spread = self.spread + torch.tensordot(weight**2, rows**2, dims=1)
            self.cross = self.cross + torch.tensordot(weight**2, rows, dims=1)
            return
        previous = torch.cat([self.last[None], rows[:-1]])
        inner = torch.from_numpy(~self.opens[span] * self.step_weight[span]).to(rows)
        self.spread = self.spread + torch.tensordot(inner, (rows - previous) ** 2, dims=1) + self._wraps(span, rows)
        self.last = rows[-1]

    def _wraps(self, span: slice, rows: Tensor) -> Tensor:
        """Return the weighted sum of squared steps from last to first point, over the paths that end in this span."""
        ends = np.flatnonzero(self.closes[span])
        firsts = rows[np.flatnonzero(self.opens[span])]
        if not self.opens[span][0]:
            firsts = torch.cat([self.first[None], firsts])
        if len(firsts) > len(ends):
            self.first = firsts[-1]
        weight = torch.from_numpy(WRAP * self.step_weight[span][ends]).to(rows)
        steps: Tensor = (rows[ends] - firsts[: len(ends)]) ** 2
        wraps: Tensor = torch.tensordot(weight, steps, dims=1)
        return wraps

    def stderr(self) -> Tensor:
        """Return the standard error of the mean after all points were added."""
        count, weight = len(self.draws.alpha), self.draws.weight
        if self.draws.repeats >= 2:
            return self.spread.sqrt()
        if count < 2:
            return torch.full_like(self.mean, torch.nan)
        square = self.spread - 2 * self.mean * self.cross + self.mean**2 * float((weight**2).sum())
        variance: Tensor = square.clamp(min=0) * count / (count - 1)
        return variance.sqrt()
