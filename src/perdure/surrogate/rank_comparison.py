"""Comparison of algorithms across data sets by rank; absolute values are not comparable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from perdure.base.errors import InputError, error_suggestion
from perdure.surrogate.diagnostics.intervals import interval_property_arrays, parameter_draws
from perdure.surrogate.result import PROPERTIES, fit_result_to_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perdure.surrogate.problem import Array
    from perdure.surrogate.result import Fit

WARNING = (
    "absolute values are not comparable across data sets, because they are relative to the mean efficiency and the tasks of "
    "each data set; compare ranks instead"
)


@dataclass(frozen=True)
class RankComparison:
    """Ranks of the common algorithms in each data set (1 = highest value) with intervals, and their agreement.

    ``agreement`` is Spearman's correlation, in [-1, 1], averaged over pairs of data sets. The intervals of ranks and agreement
    reflect the uncertainty of the fits and cover their competing explanations. ``p_value`` is the probability of at least
    this agreement if ranks were shuffled (one-sided).
    """

    property: str
    data_sets: tuple[str, ...]
    algorithms: tuple[str, ...]
    values: Array
    ranks: Array
    rank_low: Array
    rank_high: Array
    agreement: float
    agreement_low: float
    agreement_high: float
    p_value: float

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON form."""
        plain = {key: fit_result_to_json(value) for key, value in vars(self).items()}
        return {**plain, "warning": WARNING}


def compare_ranks(
    fits: Mapping[str, Fit],
    name: str = "efficiency",
    *,
    count: int = 1000,
    seed: int = 0,
    algorithms: Sequence[str] | None = None,
) -> RankComparison:
    """Return the ranks of the algorithms common to all fits by one property (as in Table 8 of the paper for efficiency).

    Examples
    --------
    >>> from perdure import surrogate
    >>> algorithms, curriculum = ["ewc", "naive", "replay"], [0, 1, 2, 0, 1, 2]
    >>> transfer = [[1.0, -0.3, 0.2], [0.1, 1.0, -0.2], [-0.1, 0.3, 1.0]]
    >>> fits = {}
    >>> for name, difficulty in {"digits": [1, 1, 1], "letters": [2, 1, 2]}.items():
    ...     curves = surrogate.simulate(
    ...         curriculum, transfer, difficulty, [1, 1, 1], [0.8, 0.6, 0.95], [0, 0, 0]
    ...     )
    ...     fits[name] = surrogate.fit(curves, curriculum, algorithms=algorithms)
    >>> comparison = surrogate.compare_ranks(fits, "retention")
    >>> comparison.algorithms
    ('ewc', 'naive', 'replay')
    >>> comparison.ranks.tolist()  # replay retains most in both data sets
    [[2.0, 3.0, 1.0], [2.0, 3.0, 1.0]]
    >>> round(comparison.agreement, 2)
    1.0
    """
    if name not in PROPERTIES:
        raise InputError(f"property: unknown name {name!r}, {error_suggestion(name, list(PROPERTIES))}")
    if len(fits) < 2:
        raise InputError(f"comparison: expected at least two data sets, got {len(fits)}")
    first = next(iter(fits.values()))
    shared = [a for a in first.problem.algorithms if all(a in f.problem.algorithms for f in fits.values())]
    shared = [a for a in shared if algorithms is None or a in algorithms]
    if len(shared) < 3:
        raise InputError(
            f"comparison: expected at least three algorithms with the same name in all data sets, got {len(shared)} "
            f"({', '.join(shared) or 'none'})"
        )
    rng = np.random.default_rng(seed)
    values, sampled, competing = [], [], []
    for fit in fits.values():
        indices = [fit.problem.algorithms.index(algorithm) for algorithm in shared]
        values.append(getattr(fit, name)[indices])
        competing.append([getattr(explanation, name)[indices] for explanation in fit.explanations])
        sampled.append(interval_property_arrays(fit.coordinates, parameter_draws(fit, count, rng))[name][:, indices])
    table = np.stack(values)
    ranks = _ranks(table)
    sampled_ranks = np.stack([_ranks(array) for array in sampled], axis=1)
    agreement = _agreement(ranks)
    spread = np.array([_agreement(draw) for draw in sampled_ranks])
    explained = _competing_ranks(ranks, competing)
    agreements = [agreement, *(_agreement(other) for other in explained)]
    low, high = np.quantile(spread, [0.025, 0.975])
    shuffled = np.array([_agreement(np.stack([rng.permutation(row) for row in ranks])) for _ in range(count)])
    bottom, top = np.quantile(sampled_ranks, [0.025, 0.975], axis=0)
    return RankComparison(
        property=name,
        data_sets=tuple(fits),
        algorithms=tuple(shared),
        values=table,
        ranks=ranks,
        rank_low=np.minimum(bottom, explained.min(axis=0)),
        rank_high=np.maximum(top, explained.max(axis=0)),
        agreement=agreement,
        agreement_low=float(min(low, *agreements)),
        agreement_high=float(max(high, *agreements)),
        p_value=float((1 + (shuffled >= agreement - 1e-12).sum()) / (count + 1)),
    )


def _ranks(values: Array) -> Array:
    """Return ranks along the last axis, 1 for the highest; ties share their mean rank."""
    return np.asarray(stats.rankdata(-values, axis=-1))


def _competing_ranks(ranks: Array, competing: Sequence[Sequence[Array]]) -> Array:
    """Return the ranks, and those with one data set's best explanation replaced by each of its competing ones."""
    tables = [ranks]
    for index, explanations in enumerate(competing):
        for values in explanations:
            replaced = ranks.copy()
            replaced[index] = _ranks(values)
            tables.append(replaced)
    return np.stack(tables)


def _agreement(ranks: Array) -> float:
    """Return the mean Spearman correlation over pairs of rows; 0 for a row in which all algorithms are tied."""
    centered = ranks - ranks.mean(axis=1, keepdims=True)
    lengths = np.linalg.norm(centered, axis=1, keepdims=True)
    unit = centered / np.where(lengths > 0, lengths, 1)
    return float((unit @ unit.T)[np.triu_indices(len(ranks), 1)].mean())
