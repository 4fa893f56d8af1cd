"""Deletion and insertion curves: the target's probability as the highest-ranked pixels are removed or inserted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from perdure.audits.bias.measure import BiasSettings, Progress
from perdure.base.errors import InputError
from perdure.explain.adapters.arrays import array_batch_size
from perdure.explain.adapters.models import preserved_model
from perdure.explain.baselines import baseline_rows
from perdure.metrics import Interval, interval
from perdure.metrics.missing import as_floats
from perdure.reproduce.bias.measures.pixel_maps import pixel_maps, pixel_maps_entry

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class RemovalCurves:
    """The target's probability (examples, shares) while one explainer's highest-ranked pixels are deleted or inserted.

    ``deletion_area`` (lower is better) and ``insertion_area`` (higher is better) are areas in [0, 1] with intervals over
    examples (Petsiuk et al. 2018). Remark 1 of the bias paper explains why they do not measure the sizes of attributions.
    """

    method: str
    deletion: FloatArray
    insertion: FloatArray
    deletion_area: Interval
    insertion_area: Interval


@dataclass(frozen=True)
class RemovalResult:
    """The curves of all explainers and controls on the same images, with their maps (examples, pixels)."""

    shares: tuple[float, ...]
    explainers: tuple[RemovalCurves, ...]
    maps: dict[str, FloatArray]
    refused: dict[str, str]

    def __getitem__(self, method: str) -> RemovalCurves:
        return pixel_maps_entry(self.explainers, method)


def measure_removal(
    network: nn.Module,
    x: Tensor,
    target: Tensor,
    *,
    background: Tensor,
    steps: int = 20,
    settings: BiasSettings | None = None,
    progress: Progress | None = None,
) -> RemovalResult:
    """Return deletion and insertion curves of each explainer's and control's pixel maps, in ``steps`` equal steps.

    Removed pixels are set to the background's mean. Grad-CAM's map is upsampled to the image.
    """
    if steps < 1:
        raise InputError(f"steps: expected at least 1, got {steps}")
    shares = tuple(step / steps for step in range(steps + 1))
    settings = settings or BiasSettings()
    batch_size = settings.batch_size
    maps, refused = pixel_maps(network, x, target, background=background, settings=settings, progress=progress)
    empty = baseline_rows(None, x, background)
    curves = []
    for name in maps:
        deletion, insertion = (
            np.stack([_probabilities(network, start, end, target, maps[name], s, batch_size) for s in shares], axis=1)
            for start, end in ((x, empty), (empty, x))
        )
        areas = [
            interval(removal_area_under(curve), seed=settings.seed, bounds=(0.0, 1.0))
            for curve in (deletion, insertion)
        ]
        curves.append(RemovalCurves(name, deletion, insertion, areas[0], areas[1]))
    return RemovalResult(shares, tuple(curves), maps, refused)


def removal_replace_top(x: Tensor, maps: FloatArray, share: float, replacement: Tensor) -> Tensor:
    """Return the images with the share of pixels of highest attribution taken from ``replacement``."""
    top = torch.from_numpy(removal_top_players(maps, share)).reshape(len(x), 1, *x.shape[2:]).to(x.device)
    return torch.where(top, replacement, x)


def _probabilities(
    network: nn.Module,
    x: Tensor,
    replacement: Tensor,
    target: Tensor,
    maps: FloatArray,
    share: float,
    batch_size: int | None,
) -> FloatArray:
    """Return the target's probability for each image after the replacement."""
    changed = removal_replace_top(x, maps, share, replacement)
    rows = array_batch_size(batch_size, changed.shape[1:])
    with preserved_model(network), torch.inference_mode():
        network.eval()
        logits = torch.cat([network(part) for part in torch.split(changed, rows)])
        of_target = logits.softmax(dim=1).gather(1, target[:, None].to(logits.device))[:, 0]
    probabilities: FloatArray = of_target.cpu().double().numpy()
    return probabilities


def removal_top_players(maps: Any, share: float) -> NDArray[np.bool_]:
    """Return (examples, players): the floor(share * players) variables with the highest attribution, ties by position.

    ``share`` is from 0 (none) to 1 (all). The bias paper's Figure 11 removes 25, 50 and 75 %.
    """
    values = as_floats(maps, "maps", ndim=2)
    if not 0 <= share <= 1:
        raise InputError(f"share: expected a number from 0 to 1, got {share!r}")
    chosen = np.zeros(values.shape, dtype=bool)
    count = math.floor(share * values.shape[1] + 1e-9)
    order = np.argsort(-values, axis=1, kind="stable")[:, :count]
    np.put_along_axis(chosen, order, values=True, axis=1)
    return chosen


def removal_area_under(curves: Any) -> FloatArray:
    """Return the area under each curve (examples, steps) over [0, 1] by the trapezoidal rule; steps are evenly spaced."""
    values = as_floats(curves, "curves", ndim=2)
    if values.shape[1] < 2:
        raise InputError(f"curves: expected at least 2 steps, got {values.shape[1]}")
    area: FloatArray = ((values[:, 1:] + values[:, :-1]) / 2).mean(axis=1)
    return area
