"""Infidelity, sensitivity and sparsity of attribution maps (the perspectives of the bias paper's Table 2)."""

from __future__ import annotations

from typing import Any

import numpy as np

from perdure.base.errors import InputError
from perdure.metrics.missing import FloatArray, as_floats


def infidelity(predicted: Any, drops: Any) -> FloatArray:
    """Return for each example the fraction of the output's drops that the map does not predict.

    Both inputs are (examples, perturbations). Yeh et al. 2019, Definition 2.1, with the optimal scale for each example
    (their Section 2.1), since maps have different units: min over b of E[(b p - d)^2] / E[d^2], where p is the sum of the
    attributions of the removed variables and d the drop of the output. In [0, 1]; lower is better. captum's
    ``infidelity(normalize=True)`` is the same without the division by E[d^2]. NaN if the output never changes; 1 if the
    map predicts no drop at all.
    """
    p, d = as_floats(predicted, "predicted", ndim=2), as_floats(drops, "drops", ndim=2)
    if p.shape != d.shape:
        raise InputError(f"drops: expected the shape of predicted, {p.shape}, got {d.shape}")
    power, joint, drop_power = (p * p).mean(axis=1), (p * d).mean(axis=1), (d * d).mean(axis=1)
    explained = np.divide(joint**2, power, out=np.zeros_like(power), where=power > 0)
    share: FloatArray = np.divide(
        drop_power - explained, drop_power, out=np.full_like(drop_power, np.nan), where=drop_power > 0
    )
    return np.clip(share, 0.0, 1.0)


def max_sensitivity(maps: Any, perturbed: Any) -> FloatArray:
    """Return for each example the largest relative change of its map over small perturbations of the input.

    Yeh et al. 2019, Definition 3.1, divided by the norm of the unperturbed map like captum's ``sensitivity_max``: max over
    perturbed inputs x' of ||map(x') - map(x)|| / ||map(x)||. ``maps``: (examples, players); ``perturbed``: (perturbations,
    examples, players). Nonnegative; lower is better. NaN for a map of zeros.
    """
    plain, changed = as_floats(maps, "maps", ndim=2), as_floats(perturbed, "perturbed", ndim=3)
    if changed.shape[1:] != plain.shape:
        raise InputError(f"perturbed: expected maps of shape {plain.shape}, got {changed.shape[1:]}")
    change = np.linalg.norm(changed - plain, axis=-1).max(axis=0)
    length = np.linalg.norm(plain, axis=-1)
    relative: FloatArray = np.divide(change, length, out=np.full_like(change, np.nan), where=length > 0)
    return relative


def gini(maps: Any) -> FloatArray:
    """Return the sparsity of each map, (examples, players): the Gini index of its magnitudes (Hurley and Rickard 2009).

    0 if all variables have the same magnitude, 1 - 1 / players if a single variable has all of it; higher is sparser.
    The bias paper considers sparsity neither good nor bad. NaN for a map of zeros.
    """
    magnitudes = np.sort(np.abs(as_floats(maps, "maps", ndim=2)), axis=1)
    players, total = magnitudes.shape[1], magnitudes.sum(axis=1)
    weights = (2 * np.arange(1, players + 1) - players - 1) / players
    index: FloatArray = np.divide(magnitudes @ weights, total, out=np.full_like(total, np.nan), where=total > 0)
    return index
