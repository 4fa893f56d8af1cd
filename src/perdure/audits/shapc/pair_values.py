"""The consistency of two networks' reasons for each example, with its references.

The budget is drawn as two independent halves A and B, the same two for every network. The same evaluations give

    shapc        the same half on both networks (common random numbers): mean of A-A and B-B
    independent  A of one network with B of the other, and the reverse
    ceiling      A with B of the same network, mean of the two networks: what sampling noise leaves of a perfect score
    doubled      the mean of both halves on both networks: the score at twice the budget of a half
    limit        2 * doubled - shapc: the score without sampling noise

``shapc`` and ``doubled`` are defined as in the paper. The other quantities leave out values that are 0 in both maps: pixels
that are constant in the image and the background have no attribution in any network, and two maps with few positive values
would agree on all of them.

The bias that sampling noise causes falls as 1 / budget, so ``limit`` removes it to first order. For each untrained network
the same extrapolation of its consistency with the network before gives the floor.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from perdure import explain
from perdure.audits.shapc.values import ShapcSettings
from perdure.metrics.shapc import Zeros, shapc_at_shares

FloatArray = NDArray[np.float64]
Halves = tuple[NDArray[Any], NDArray[Any]]


def halves_for_pair_values(
    network: nn.Module, x: Tensor, target: Any, background: Tensor, settings: ShapcSettings
) -> Halves:
    """Return the maps of both halves of the budget, (n, channels, height, width) or (n, features)."""
    half = settings.samples // 2 if settings.stochastic else settings.samples
    maps = [
        explain.attribute(
            network,
            x,
            target,
            settings.method,
            background=background,
            samples=half,
            seed=2 * settings.seed + index,
            layer=settings.layer,
            batch_size=settings.batch_size,
            options=settings.options,
        )
        for index in range(2 if settings.stochastic else 1)
    ]
    arrays = [_as_images(tensor.detach().cpu().numpy()) for tensor in maps]
    return arrays[0], arrays[-1]


def _as_images(maps: NDArray[Any]) -> NDArray[Any]:
    """Return maps of signals, (n, channels, length), as images of one row; other maps unchanged."""
    return maps[:, :, None, :] if maps.ndim == 3 else maps


def pair_values(before: Halves, after: Halves, settings: ShapcSettings) -> dict[str, FloatArray]:
    """Return every quantity for each example, and ``shapc`` at each share of the sensitivity table as ``shapc@0.1``."""
    same = _same_halves(before, after, settings.all_shares, settings)
    values = {
        "shapc": same[:, 0],
        "independent": _crossed(before, after, settings),
        "ceiling": (_ceiling(before, settings) + _ceiling(after, settings)) / 2,
        "doubled": _doubled(before, after, settings),
        "limit": limit_of_pair_values(before, after, settings),
    }
    return values | {f"shapc@{share:g}": same[:, index] for index, share in enumerate(settings.all_shares)}


def limit_of_pair_values(before: Halves, after: Halves, settings: ShapcSettings) -> FloatArray:
    """Return the consistency of each example without sampling noise, extrapolated from two budgets."""
    same = _same_halves(before, after, (settings.top,), settings, "drop")[:, 0]
    return 2 * _doubled(before, after, settings, "drop") - same


def _same_halves(
    before: Halves, after: Halves, shares: tuple[float, ...], settings: ShapcSettings, zeros: Zeros = "keep"
) -> FloatArray:
    """Return the mean consistency of A with A and of B with B."""
    halves = [_consistency(first, second, shares, settings, zeros) for first, second in zip(before, after, strict=True)]
    return (halves[0] + halves[1]) / 2


def _doubled(before: Halves, after: Halves, settings: ShapcSettings, zeros: Zeros = "keep") -> FloatArray:
    """Return the consistency of the means of both halves."""
    return _consistency(sum(before) / 2, sum(after) / 2, (settings.top,), settings, zeros)[:, 0]


def _ceiling(maps: Halves, settings: ShapcSettings) -> FloatArray:
    """Return the consistency of the two halves of one network."""
    return _consistency(maps[0], maps[1], (settings.top,), settings, "drop")[:, 0]


def _crossed(before: Halves, after: Halves, settings: ShapcSettings) -> FloatArray:
    """Return the mean consistency of A with B and of B with A."""
    forward = _consistency(before[0], after[1], (settings.top,), settings, "drop")[:, 0]
    reverse = _consistency(before[1], after[0], (settings.top,), settings, "drop")[:, 0]
    return (forward + reverse) / 2


def _consistency(
    first: Any, second: Any, shares: tuple[float, ...], settings: ShapcSettings, zeros: Zeros = "keep"
) -> FloatArray:
    if settings.variant == "authors":
        return shapc_at_shares(first, second, shares, channels="sum", normalise="range", zeros=zeros)
    return shapc_at_shares(first, second, shares, zeros=zeros)
