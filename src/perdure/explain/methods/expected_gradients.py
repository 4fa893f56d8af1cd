"""Expected gradients (Erion et al. 2021, Eq. 3) with balanced draws and standard errors.

    phi_i(x) = E_{b, alpha} [ (x_i - b_i) * dF/dx_i (b + alpha * (x - b)) ],   b from the background, alpha uniform on [0, 1]

Plain sampling (shap's ``GradientExplainer``, captum's ``GradientShap``) draws b and alpha independently. Here every
background serves equally often; its k repeats lie at (offset + 0..k-1) / k on its path, and the offsets of
the backgrounds are themselves stratified. Every single draw is still uniform over backgrounds and path, so the mean is
unbiased for the background that was given.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from perdure.base.errors import InputError, suggest
from perdure.explain.adapters.arrays import check_finite
from perdure.explain.adapters.fast_copy import quick_copy
from perdure.explain.checks.requirements import Gradients
from perdure.explain.draws import example_key, generator
from perdure.explain.explainer import explainer
from perdure.explain.request import Request

KINDS = ("balanced", "iid")
# The weight of the step from a path's last point back to its first, which makes the variance right for a straight line.
WRAP = 1 / 6


@dataclass(frozen=True)
class Draws:
    """The points of one sample: which background, where on the path, with which weight; backgrounds in runs."""

    background: NDArray[np.int64]
    alpha: NDArray[np.float64]
    weight: NDArray[np.float64]
    repeats: int
    """Points of the background that has fewest."""


@dataclass(frozen=True)
class ExpectedGradients:
    """Values and standard errors, both of x's shape; ``gradients`` is how many were evaluated for each sample.

    With two or more points on each background's path the standard error follows the roughness of the
    gradient along the path. With fewer it comes from the spread of the points, which also holds the differences between
    backgrounds that balancing removes: it is then too large, never too small. NaN for a single point.
    """

    values: Any
    stderr: Any
    gradients: int


def balanced_draws(samples: int, backgrounds: int, rng: np.random.Generator) -> Draws:
    """Return draws in which backgrounds serve equally often, their repeats spread evenly over the path."""
    used = min(samples, backgrounds)
    order = rng.permutation(backgrounds)[:used]
    counts = np.full(used, samples // used)
    counts[: samples % used] += 1
    offsets = (rng.permutation(used) + rng.random(used)) / used
    step = np.arange(samples) - np.repeat(np.cumsum(counts) - counts, counts)
    each = np.repeat(counts, counts)
    alpha = (np.repeat(offsets, counts) + step) / each
    return Draws(np.repeat(order, counts), alpha, 1.0 / (used * each), int(counts.min()))


def iid_draws(samples: int, backgrounds: int, seed: int, rows: int) -> list[Draws]:
    """Return the draws of ``shap.GradientExplainer.shap_values(..., rseed=seed)`` for each row, in its order."""
    state = np.random.RandomState(seed)  # shap's own generator, replayed
    drawn = []
    for _ in range(rows):
        pairs = [(state.choice(backgrounds), state.uniform()) for _ in range(samples)]
        index, alpha = (np.array(column) for column in zip(*pairs, strict=True))
        drawn.append(Draws(index, alpha, np.full(samples, 1.0 / samples), 1))
    return drawn


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
        raise InputError(f"draws: unknown kind {draws!r}, {suggest(str(draws), list(KINDS))}")
    background = request.required_background("expected_gradients")
    few = min(4, max(1, request.batch_size // 2))
    model = quick_copy(request.model, torch.cat([request.x[:few], background[:few]])[: request.batch_size])
    plan = _plan(request, draws, len(background))
    values, stderr = [], []
    total = _Total(request.x[0], plan[0])
    for rows, products in _products(model, request, background, plan):
        parts = torch.split(products, [stop - start for start, stop in rows.values()])
        for (index, (start, stop)), part in zip(rows.items(), parts, strict=True):
            if start == 0:
                total = _Total(request.x[0], plan[index])
            total.add(start, part)
            if stop == request.samples:
                values.append(total.mean.to(request.x.dtype))
                stderr.append(total.stderr().to(request.x.dtype))
                request.report(index + 1)
    return ExpectedGradients(torch.stack(values), torch.stack(stderr), request.samples)


def _plan(request: Request, kind: str, backgrounds: int) -> list[Draws]:
    if kind == "iid":
        return iid_draws(request.samples, backgrounds, request.seed, len(request.x))
    streams = (generator(request.seed, example_key(example)) for example in request.x)
    return [balanced_draws(request.samples, backgrounds, rng) for rng in streams]


def _products(
    model: nn.Module, request: Request, background: Tensor, plan: list[Draws]
) -> Iterator[tuple[dict[int, tuple[int, int]], Tensor]]:
    """Yield batches of gradient times difference, rows of several samples together, and whose rows they are."""
    samples, total = request.samples, request.samples * len(plan)
    for first in range(0, total, request.batch_size):
        last = min(first + request.batch_size, total)
        rows = {
            index: (max(first - index * samples, 0), min(last - index * samples, samples))
            for index in range(first // samples, (last - 1) // samples + 1)
        }
        spans = [(index, slice(*span)) for index, span in rows.items()]
        chosen = np.concatenate([plan[index].background[span] for index, span in spans])
        alpha = np.concatenate([plan[index].alpha[span] for index, span in spans])
        owner = np.concatenate([np.full(span.stop - span.start, index) for index, span in spans])
        samples_in = request.x[torch.from_numpy(owner).to(request.x.device)]
        start = background[torch.from_numpy(chosen).to(background.device)]
        share = torch.from_numpy(alpha).to(request.x).reshape(-1, *[1] * (request.x.dim() - 1))
        point = (share * samples_in + (1 - share) * start).requires_grad_()
        score = model(point).gather(1, request.target[torch.from_numpy(owner).to(request.x.device), None])
        (gradient,) = torch.autograd.grad(score.sum(), point)
        product = gradient * (samples_in - start)
        for index, span in spans:
            offset = index * samples + span.start - first
            check_finite(
                product[offset : offset + span.stop - span.start].reshape(1, -1), index, "a gradient on its path"
            )
        yield rows, product


class _Total:
    """One sample's running mean and what its standard error needs, whatever batches the points come in."""

    def __init__(self, like: Tensor, draws: Draws) -> None:
        self.draws = draws
        exact = torch.float32 if like.device.type == "mps" else torch.float64  # Apple's GPUs have no doubles
        self.mean = torch.zeros_like(like, dtype=exact)
        self.spread, self.cross = torch.zeros_like(self.mean), torch.zeros_like(self.mean)
        self.first, self.last = self.mean, self.mean
        changes = draws.background[1:] != draws.background[:-1]
        self.opens, self.closes = np.append(True, changes), np.append(changes, True)
        paths = self.opens.sum()
        repeats = np.rint(1.0 / (draws.weight * paths))
        # Variance of the mean of k points on a path: squared steps and the wrap over 2 k (k - 1 + WRAP).
        self.step_weight = 1.0 / (2 * repeats * (repeats - 1 + WRAP)) / paths**2

    def add(self, start: int, rows: Tensor) -> None:
        """Take the points ``start``, ``start + 1``, ... of this sample; they come in order."""
        rows = rows.detach().to(self.mean)
        span = slice(start, start + len(rows))
        weight = torch.from_numpy(self.draws.weight[span]).to(rows)
        self.mean = self.mean + torch.tensordot(weight, rows, dims=1)
        if self.draws.repeats < 2:
            self.spread = self.spread + torch.tensordot(weight**2, rows**2, dims=1)
            self.cross = self.cross + torch.tensordot(weight**2, rows, dims=1)
            return
        before = torch.cat([self.last[None], rows[:-1]])
        inner = torch.from_numpy(~self.opens[span] * self.step_weight[span]).to(rows)
        self.spread = self.spread + torch.tensordot(inner, (rows - before) ** 2, dims=1) + self._wraps(span, rows)
        self.last = rows[-1]

    def _wraps(self, span: slice, rows: Tensor) -> Tensor:
        """Return the squared steps from the last point of each path that ends here to its first, weighted."""
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
        """Return the standard error of the mean, once all points are in."""
        count, weight = len(self.draws.alpha), self.draws.weight
        if self.draws.repeats >= 2:
            return self.spread.sqrt()
        if count < 2:
            return torch.full_like(self.mean, torch.nan)
        square = self.spread - 2 * self.mean * self.cross + self.mean**2 * float((weight**2).sum())
        variance: Tensor = square.clamp(min=0) * count / (count - 1)
        return variance.sqrt()
