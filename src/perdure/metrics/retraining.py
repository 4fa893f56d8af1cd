"""MeGe and ReCo with intervals and a p-value, and whether they fall as noise rises."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, stats

from perdure.base.errors import InputError
from perdure.metrics.intervals import Interval
from perdure.metrics.mege_reco import PairScores, as_distances, counts_up_to, pair_scores, reco_curves
from perdure.metrics.missing import FloatArray, as_floats, reason
from perdure.metrics.paired_tests import bootstrap_interval

RESAMPLES = 1000
PERMUTATIONS = 999
MANY = 100_000
"""Distances in all from which a fifth of the draws has to do when samples are given."""
THRESHOLDS = 400
EXTREMES = 100
"""Thresholds used in resampling: the precision form is often reached at the very first or last, so these are all kept."""
AT_ONCE = 4_000_000
IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class RetrainingScores:
    """Both forms of MeGe and ReCo with 95 % intervals over samples; ``p_value`` is of the rate form being no chance.

    ``samples`` is the number of samples that were drawn, ``permutations`` how many relabellings the p-value rests on.
    """

    plain: PairScores
    mege: Interval
    mege_distance: Interval
    reco_precision: Interval
    reco_rate: Interval
    p_value: float
    permutations: int
    examples: int


def retraining_scores(
    same: Any, different: Any, same_samples: Any = None, different_samples: Any = None, seed: int = 0
) -> RetrainingScores:
    """Return all scores of two sets of distances with bootstrap intervals and a permutation p-value.

    Distances of one sample under several pairs of models are not independent. ``same_samples`` and ``different_samples``
    name the sample of each distance (any whole numbers): then samples are drawn, each with all its distances, and the p-value
    exchanges whole samples' labels among samples with as many distances. Without them every distance is taken as a
    sample of its own, which makes intervals too narrow when it is not. The p-value is the share of relabellings whose rate
    form is at least as large, itself counted; both are exact in the sense of a permutation test. The bootstrap
    of a maximum is only approximate, that of the precision form, often reached at a single distance, a rough guide.
    """
    near, far = as_distances(same, "same"), as_distances(different, "different")
    plain = pair_scores(near, far)
    owners = _owners(near, far, same_samples, different_samples)
    rng = np.random.default_rng(seed)
    count = len(near) + len(far) if owners is None else (int(owners.max()) + 1 if len(owners) else 0)
    if not count:
        empty = {name: _interval(name, getattr(plain, name), np.zeros(0), 0) for name in _BOUNDS}
        return RetrainingScores(plain, **empty, p_value=math.nan, permutations=0, examples=0)
    cells = _Cells.of(near, far, owners)
    draws = cells.resampled(rng)
    found = {name: _interval(name, getattr(plain, name), draws[name], count) for name in _BOUNDS}
    p_value, permutations = (math.nan, 0) if reason(plain.reco_rate) else cells.p_value(rng)
    return RetrainingScores(plain, **found, p_value=p_value, permutations=permutations, examples=count)


_BOUNDS = {
    "mege": (0.0, 1.0),
    "mege_distance": (0.0, math.inf),
    "reco_precision": (-1.0, 1.0),
    "reco_rate": (0.0, 1.0),
}


def _owners(near: FloatArray, far: FloatArray, near_ids: Any, far_ids: Any) -> IntArray | None:
    """Return for each distance, S= first, the number of its sample (0, 1, ...), or None when samples are not given."""
    if near_ids is None and far_ids is None:
        return None
    if near_ids is None or far_ids is None:
        raise InputError("same_samples and different_samples: give both or none")
    ids = [np.asarray(one).reshape(-1) for one in (near_ids, far_ids)]
    for what, distances, own in zip(("same", "different"), (near, far), ids, strict=True):
        if len(distances) != len(own):
            raise InputError(
                f"{what}_samples: {len(own)} samples for {len(distances)} distances; expected one for each"
            )
    together = np.concatenate([one.astype(np.int64) for one in ids])
    return np.unique(together, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _interval(name: str, value: float, draws: FloatArray, samples: int) -> Interval:
    why = reason(value)
    if why is not None:
        return Interval(math.nan, math.nan, math.nan, samples, "none", why)
    found = bootstrap_interval(value, draws, samples, samples)
    lowest, highest = _BOUNDS[name]
    return (
        found if found.method == "none" else replace(found, low=max(found.low, lowest), high=min(found.high, highest))
    )


@dataclass(frozen=True)
class _Cells:
    """The distances in the cells between thresholds, and which sample each belongs to."""

    cell: IntArray
    near: NDArray[np.bool_]
    distances: FloatArray
    owners: IntArray | None
    width: int

    @classmethod
    def of(cls, near: FloatArray, far: FloatArray, owners: IntArray | None) -> _Cells:
        thresholds = _thinned(counts_up_to(near, far)[0])
        together = np.concatenate([near, far])
        cell = np.searchsorted(thresholds, together)
        return cls(cell, np.arange(len(together)) < len(near), together, owners, len(thresholds))

    @property
    def draws(self) -> float:
        """The share of the draws that is made: large sets need fewer."""
        return 0.2 if self.owners is not None and len(self.cell) > MANY else 1.0

    def resampled(self, rng: np.random.Generator) -> dict[str, FloatArray]:
        """Return every score of each resample."""
        resamples = int(RESAMPLES * self.draws)
        if self.owners is None:
            near, far, total = self._resampled_distances(rng, resamples)
        else:
            near, far, total = self._resampled_samples(self.owners, rng, resamples)
        precision, rate = reco_curves(np.cumsum(near, axis=1), np.cumsum(far, axis=1))
        count = near.sum(axis=1)
        mean = np.divide(total, count, out=np.full(resamples, np.nan), where=count > 0)
        return {
            "mege": 1 / (1 + mean),
            "mege_distance": mean,
            "reco_precision": _largest(precision),
            "reco_rate": _largest(rate),
        }

    def _resampled_distances(
        self, rng: np.random.Generator, resamples: int
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Draw distances one by one: how many fall in each cell is multinomial, whatever their number."""
        keys = self.cell + self.width * ~self.near
        counts = np.bincount(keys, minlength=2 * self.width)
        drawn = rng.multinomial(len(keys), counts / len(keys), size=resamples).astype(np.float64)
        near, far = drawn[:, : self.width], drawn[:, self.width :]
        return near, far, near @ _cell_means(self.cell[self.near], self.distances[self.near], self.width)

    def _resampled_samples(
        self, owners: IntArray, rng: np.random.Generator, resamples: int
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Draw samples, each with all its distances."""
        samples = int(owners.max()) + 1
        near, far = (
            sparse.csr_matrix((np.ones(mask.sum()), (owners[mask], self.cell[mask])), shape=(samples, self.width))
            for mask in (self.near, ~self.near)
        )
        sums = np.bincount(owners[self.near], weights=self.distances[self.near], minlength=samples)
        parts = []
        step = max(1, AT_ONCE // samples)
        for start in range(0, resamples, step):
            size = min(step, resamples - start)
            weights = np.stack(
                [np.bincount(rng.integers(0, samples, samples), minlength=samples) for _ in range(size)]
            ).astype(np.float64)
            parts.append((weights @ near, weights @ far, weights @ sums))
        one, other, total = (np.concatenate(part) for part in zip(*parts, strict=True))
        return one, other, total

    def p_value(self, rng: np.random.Generator) -> tuple[float, int]:
        """Return the share of relabellings, the true one among them, whose rate form is at least the true one's."""
        permutations = int((PERMUTATIONS + 1) * self.draws) - 1
        every = np.bincount(self.cell, minlength=self.width)
        true = np.bincount(self.cell[self.near], minlength=self.width)
        if self.owners is None:
            labelled = rng.multivariate_hypergeometric(
                every, int(self.near.sum()), size=permutations, method="marginals"
            )
        else:
            labelled = self._exchanged(self.owners, rng, permutations)
        drawn = self._rate(labelled, every)
        # Rounding must not decide between equal statistics.
        beyond = int((drawn >= self._rate(true[None], every)[0] - 1e-12).sum())
        return (beyond + 1) / (permutations + 1), permutations

    def _exchanged(self, owners: IntArray, rng: np.random.Generator, times: int) -> IntArray:
        """Return how many of S= fall in each cell when samples with as many distances exchange their labels, as whole rows."""
        order = np.argsort(owners, kind="stable")
        sizes = np.bincount(owners)
        starts = np.cumsum(sizes) - sizes
        blocks = [order[starts[sizes == size][:, None] + np.arange(size)] for size in np.unique(sizes)]
        rows = [(self.cell[places], self.near[places]) for places in blocks]
        counts = np.zeros((times, self.width), dtype=np.int64)
        for place in range(times):
            for cells, labels in rows:
                chosen = cells[labels[rng.permutation(len(labels))]]
                counts[place] += np.bincount(chosen, minlength=self.width)
        return counts

    @staticmethod
    def _rate(near: NDArray[Any], every: NDArray[Any]) -> FloatArray:
        up_to = np.cumsum(near, axis=1).astype(np.float64)
        return _largest(reco_curves(up_to, np.cumsum(every)[None].astype(np.float64) - up_to)[1])


def _thinned(values: FloatArray) -> FloatArray:
    """Return at most so many thresholds: the lowest and highest one by one, those between evenly spread."""
    if len(values) <= THRESHOLDS:
        return values
    between = np.linspace(EXTREMES, len(values) - EXTREMES - 1, THRESHOLDS - 2 * EXTREMES).round().astype(int)
    return np.concatenate([values[:EXTREMES], values[np.unique(between)], values[-EXTREMES:]])


def _cell_means(cell: IntArray, values: FloatArray, width: int) -> FloatArray:
    count = np.bincount(cell, minlength=width)
    means: FloatArray = np.divide(
        np.bincount(cell, weights=values, minlength=width), count, out=np.zeros(width), where=count > 0
    )
    return means


def _largest(curves: FloatArray) -> FloatArray:
    """Return the largest known value of each row, NaN where there is none."""
    best = np.where(np.isnan(curves), -np.inf, curves).max(axis=1)
    return np.where(np.isinf(best), np.nan, best)


@dataclass(frozen=True)
class Trend:
    """Whether a score moves with a level: Page's test over blocks.

    ``rank_correlation``: the mean over blocks of Spearman's between level and score, -1 for a fall at every level.
    ``p_value`` is one-sided, for a fall (or a rise, where that was asked). ``left_out``: blocks in which a level was missing.
    """

    rank_correlation: float
    p_value: float
    blocks: int
    levels: int
    left_out: int
    reason: str | None = None


def trend_test(values: Any, rises: bool = False) -> Trend:
    """Return whether scores fall (or rise) from level to level: ``values`` are (blocks, levels), levels in order (Page 1963).

    A block (a fold) is compared with itself only. One with a missing level is left out and counted. Needs three levels.
    """
    table = as_floats(values, "values", ndim=2)
    known = ~np.isnan(table).any(axis=1)
    used, left_out = table[known], int((~known).sum())
    levels = table.shape[1]
    if levels < 3 or not len(used):
        lacking = "a trend needs at least three levels" if levels < 3 else "no block has a value at every level"
        return Trend(math.nan, math.nan, len(used), levels, left_out, lacking)
    ranks = stats.rankdata(used, axis=1)
    place = np.arange(levels) - (levels - 1) / 2
    spread = ranks.std(axis=1) * place.std()
    covariance = (ranks - ranks.mean(axis=1, keepdims=True)) @ place / levels
    correlation = np.divide(covariance, spread, out=np.zeros(len(used)), where=spread > 0)
    predicted = np.arange(1, levels + 1) if rises else np.arange(levels, 0, -1)
    p_value = (
        float(stats.page_trend_test(ranks, ranked=True, predicted_ranks=predicted).pvalue)
        if len(used) > 1
        else math.nan
    )
    why = None if len(used) > 1 else "one block has no p-value"
    return Trend(float(correlation.mean()), p_value, len(used), levels, left_out, why)
