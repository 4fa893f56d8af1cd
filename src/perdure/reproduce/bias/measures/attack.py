"""Robustness of maps: how many of the most important variables a small perturbation of the input leaves in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from perdure.base.errors import InputError
from perdure.metrics.missing import FloatArray, as_floats

TOP = 0.1
"""Share of the variables that count as most important."""


def top_overlap(maps: Any, others: Any, share: float = TOP) -> FloatArray:
    """Return for each example the share of its most important variables that are most important in another map too.

    The top-k intersection of Ghorbani et al. 2019. Both inputs are (examples, players); the most important variables are the
    k = max(1, floor(share * players + 1e-9)) with the largest magnitude, ties by position. In [0, 1]; 1: the same
    variables. NaN if the map is zero; 0 if only the other one is.
    """
    first, second = np.abs(as_floats(maps, "maps", ndim=2)), np.abs(as_floats(others, "others", ndim=2))
    if first.shape != second.shape:
        raise InputError(f"others: expected the shape of maps, {first.shape}, got {second.shape}")
    count = max(1, int(share * first.shape[1] + 1e-9))
    common: FloatArray = (_top(first, count) & _top(second, count)).sum(axis=1) / count
    common = np.where(second.max(axis=1) > 0, common, 0.0)
    return np.where(first.max(axis=1) > 0, common, np.nan)


def _top(magnitudes: FloatArray, count: int) -> NDArray[np.bool_]:
    chosen = np.argsort(-magnitudes, axis=1, kind="stable")[:, :count]
    top = np.zeros(magnitudes.shape, dtype=bool)
    np.put_along_axis(top, chosen, True, axis=1)
    return top


def attacked_overlap(
    x: Tensor,
    maps: FloatArray,
    explain: Callable[[Tensor, int], FloatArray],
    predict: Callable[[Tensor], Tensor],
    *,
    radius: float,
    attempts: int,
    seed: int = 0,
) -> FloatArray:
    """Return the smallest top overlap that an attack on the maps of each image finds; lower is less robust.

    The attack changes each value by plus or minus ``radius`` and must not change the predicted class, as in Ghorbani et al.
    2019. Their attack follows the gradient of the map, which LIME and maps of ReLU networks do not have, so this is a
    random search with ``attempts`` maps for each explainer: all signs are drawn at random, then those of random squares are
    redrawn, and a change is kept if it reduces the overlap (Andriushchenko et al. 2020). ``explain(x, attempt)`` returns
    maps (examples, players), ``predict(x)`` classes. The search finds an upper bound: a stronger attack can find less.
    """
    rng = np.random.default_rng([seed, 5])
    predicted = predict(x)
    overlap, change = np.ones(len(x)), torch.zeros_like(x)
    for attempt in range(attempts):
        proposal = _redrawn_squares(change, radius, rng)
        kept = (predict(x + proposal) == predicted).cpu().numpy()
        found = top_overlap(maps, explain(x + proposal, attempt))
        better = kept & (found < overlap)
        change[torch.from_numpy(better).to(x.device)] = proposal[torch.from_numpy(better).to(x.device)]
        overlap = np.where(better, found, overlap)
    return np.where(np.abs(maps).max(axis=1) > 0, overlap, np.nan)


def _redrawn_squares(change: Tensor, radius: float, rng: np.random.Generator) -> Tensor:
    """Return the changes with new signs in a random square of half the image's side; new signs everywhere if there are none."""
    signs = torch.from_numpy(rng.choice([-radius, radius], size=tuple(change.shape))).to(change)
    height, width = change.shape[2:]
    side = max(1, min(height, width) // 2)
    tops, lefts = rng.integers(0, height - side + 1, len(change)), rng.integers(0, width - side + 1, len(change))
    redrawn = torch.zeros(len(change), 1, height, width, dtype=torch.bool, device=change.device)
    for index, (top, left) in enumerate(zip(tops, lefts, strict=True)):
        redrawn[index, :, top : top + side, left : left + side] = True
    unchanged = (change == 0).flatten(1).all(dim=1).reshape(-1, 1, 1, 1)
    return torch.where(redrawn | unchanged, signs, change)
