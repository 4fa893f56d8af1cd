"""Other views of an explanation than its bias (the bias paper's Table 2): fidelity, sensitivity, sparsity."""

from __future__ import annotations

from typing import Any

import numpy as np

from perdure.base.errors import InputError
from perdure.metrics.missing import FloatArray, as_floats


def infidelity(predicted: Any, drops: Any) -> FloatArray:
    """Return for each sample the part of the output's drops that the map does not predict, (samples, perturbations) each.

    Yeh et al. 2019, Definition 2.1, with the map scaled best for each sample (their Section 2.1), since maps have units of
    their own: min over b of E[(b p - d)^2] / E[d^2], p the sum of the attributions of what was removed and d the drop of the
    output. In [0, 1], lower is better; captum's ``infidelity(normalize=True)`` is the same without the division by E[d^2].
    NaN where the output never moves; 1 where the map predicts no drop at all.
    """
    p, d = as_floats(predicted, "predicted", ndim=2), as_floats(drops, "drops", ndim=2)
    if p.shape != d.shape:
        raise InputError(f"drops: their shape is {d.shape}, that of the predicted ones {p.shape}")
    power, joint, moved = (p * p).mean(axis=1), (p * d).mean(axis=1), (d * d).mean(axis=1)
    explained = np.divide(joint**2, power, out=np.zeros_like(power), where=power > 0)
    share: FloatArray = np.divide(moved - explained, moved, out=np.full_like(moved, np.nan), where=moved > 0)
    return np.clip(share, 0.0, 1.0)


def max_sensitivity(maps: Any, perturbed: Any) -> FloatArray:
    """Return for each sample the largest relative change of its map over small perturbations of the input.

    Yeh et al. 2019, Definition 3.1, divided by the map's own norm as captum's ``sensitivity_max`` does: max over the
    perturbed inputs of ||map(x') - map(x)|| / ||map(x)||. ``maps``: (samples, players); ``perturbed``: (perturbations,
    samples, players). Not negative, lower is better; NaN for a map of zeros.
    """
    plain, others = as_floats(maps, "maps", ndim=2), as_floats(perturbed, "perturbed", ndim=3)
    if others.shape[1:] != plain.shape:
        raise InputError(f"perturbed: the shape of one set of maps is {others.shape[1:]}, expected {plain.shape}")
    change = np.linalg.norm(others - plain, axis=-1).max(axis=0)
    length = np.linalg.norm(plain, axis=-1)
    relative: FloatArray = np.divide(change, length, out=np.full_like(change, np.nan), where=length > 0)
    return relative


def gini(maps: Any) -> FloatArray:
    """Return each map's sparsity: the Gini index of its magnitudes (Hurley and Rickard 2009), (samples, players).

    0 when all variables weigh the same, 1 - 1 / players when a single one has all; a high value is called sparse, which the
    bias paper counts neither for nor against a map. NaN for a map of zeros.
    """
    magnitudes = np.sort(np.abs(as_floats(maps, "maps", ndim=2)), axis=1)
    players, total = magnitudes.shape[1], magnitudes.sum(axis=1)
    weights = (2 * np.arange(1, players + 1) - players - 1) / players
    index: FloatArray = np.divide(magnitudes @ weights, total, out=np.full_like(total, np.nan), where=total > 0)
    return index
