"""MeGe and ReCo with bootstrap intervals and a permutation p-value, and a test for a trend over noise levels."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, stats

from perdure.base.errors import InputError
from perdure.metrics.intervals import Interval, bootstrap_interval
from perdure.metrics.mege_reco import PairScores, mege_reco_distances, mege_reco_scores, reco_counts_up_to, reco_curves
from perdure.metrics.missing import FloatArray, as_floats, reason

RESAMPLES = 1000
PERMUTATIONS = 999
MANY = 100_000
"""Above this number of distances, only a fifth of the draws is made if examples are given."""
THRESHOLDS = 400
"""Number of thresholds used in resampling."""
EXTREMES = 100
"""Number of lowest and of highest distances that are all thresholds: the precision variant is often attained there."""
BATCH_SIZE = 4_000_000
"""Number of example weights drawn at once, which bounds the memory."""
IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class RetrainingScores:
    """Both variants of MeGe and ReCo with 95 % intervals over examples.

    ``p_value`` tests whether the rate variant of ReCo is larger than chance, from ``permutations`` relabelings. ``examples``
    is the number of resampled examples.
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
    same: Any, different: Any, same_examples: Any = None, different_examples: Any = None, seed: int = 0
) -> RetrainingScores:
    """Return all scores of two sets of distances with bootstrap intervals and a permutation p-value.

    Distances of one example under several pairs of models are not independent. ``same_examples`` and
    ``different_examples`` give the example of each distance (any integers). The bootstrap then draws examples, each with
    all its distances, and the permutation test exchanges the labels of whole examples among examples with the same number
    of distances. Without them each distance counts as an independent example, and intervals are too narrow if it is not.
    The p-value is the share of relabelings, the observed one included, whose rate variant is at least as large; it is
    exact, as in any permutation test. The bootstrap of a maximum is only approximate; for the precision variant, which is
    often attained at a single distance, it is a rough guide.

    Examples
    --------
    >>> import numpy as np
    >>> from perdure import metrics
    >>> rng = np.random.default_rng(0)
    >>> same, different = rng.uniform(0, 0.6, 50), rng.uniform(0.3, 1, 50)
    >>> scores = metrics.retraining_scores(same, different)
    >>> rate = scores.reco_rate
    >>> round(rate.mean, 1), rate.low < rate.mean < rate.high
    (0.7, True)
    >>> scores.p_value  # no relabeling of 999 separates the distances as well
    0.001
    >>> metrics.retraining_scores(same, []).reco_rate.reason
    'S!= is empty: no example is classified correctly by exactly one model of a pair'
    """
    near, far = mege_reco_distances(same, "same"), mege_reco_distances(different, "different")
    plain = mege_reco_scores(near, far)
    example_index = _example_indices(near, far, same_examples, different_examples)
    rng = np.random.default_rng(seed)
    count = len(near) + len(far) if example_index is None else int(example_index.max(initial=-1)) + 1
    if not count:
        empty = {name: _interval(name, getattr(plain, name), np.zeros(0), 0) for name in _BOUNDS}
        return RetrainingScores(plain, **empty, p_value=math.nan, permutations=0, examples=0)
    cells = _Cells.of(near, far, example_index)
    draws = cells.resampled(rng)
    intervals = {name: _interval(name, getattr(plain, name), draws[name], count) for name in _BOUNDS}
    p_value, permutations = (math.nan, 0) if reason(plain.reco_rate) else cells.p_value(rng)
    return RetrainingScores(plain, **intervals, p_value=p_value, permutations=permutations, examples=count)


_BOUNDS = {
    "mege": (0.0, 1.0),
    "mege_distance": (0.0, math.inf),
    "reco_precision": (-1.0, 1.0),
    "reco_rate": (0.0, 1.0),
}


def _example_indices(near: FloatArray, far: FloatArray, near_ids: Any, far_ids: Any) -> IntArray | None:
    """Return the index of the example (0, 1, ...) of each distance, S= first, or None if examples are not given."""
    if near_ids is None and far_ids is None:
        return None
    if near_ids is None or far_ids is None:
        raise InputError("same_examples and different_examples: expected both or neither, got one")
    ids = [np.asarray(values).reshape(-1) for values in (near_ids, far_ids)]
    for name, distances, example_ids in zip(("same", "different"), (near, far), ids, strict=True):
        if len(distances) != len(example_ids):
            raise InputError(
                f"{name}_examples: expected {len(distances)} numbers, one for each distance, got {len(example_ids)}"
            )
    together = np.concatenate([example_ids.astype(np.int64) for example_ids in ids])
    return np.unique(together, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _interval(name: str, value: float, draws: FloatArray, examples: int) -> Interval:
    missing_reason = reason(value)
    if missing_reason is not None:
        return Interval(math.nan, math.nan, math.nan, examples, "none", missing_reason)
    unclipped = bootstrap_interval(value, draws, examples, examples)
    if unclipped.method == "none":
        return unclipped
    lowest, highest = _BOUNDS[name]
    return replace(unclipped, low=max(unclipped.low, lowest), high=min(unclipped.high, highest))


@dataclass(frozen=True)
class _Cells:
    """Distances binned into cells between thresholds, with the example of each distance."""

    cell: IntArray
    near: NDArray[np.bool_]
    distances: FloatArray
    example_index: IntArray | None
    width: int

    @classmethod
    def of(cls, near: FloatArray, far: FloatArray, example_index: IntArray | None) -> _Cells:
        thresholds = _thinned(reco_counts_up_to(near, far)[0])
        together = np.concatenate([near, far])
        cell = np.searchsorted(thresholds, together)
        return cls(cell, np.arange(len(together)) < len(near), together, example_index, len(thresholds))

    @property
    def share_of_draws(self) -> float:
        """Share of the draws that is made: large sets need fewer."""
        return 0.2 if self.example_index is not None and len(self.cell) > MANY else 1.0

    def resampled(self, rng: np.random.Generator) -> dict[str, FloatArray]:
        """Return each score of every resample."""
        resamples = int(RESAMPLES * self.share_of_draws)
        if self.example_index is None:
            near, far, total = self._resampled_distances(rng, resamples)
        else:
            near, far, total = self._resampled_examples(self.example_index, rng, resamples)
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
        """Draw independent distances: the counts per cell are multinomial, so the cost does not grow with the distances."""
        keys = self.cell + self.width * ~self.near
        counts = np.bincount(keys, minlength=2 * self.width)
        drawn = rng.multinomial(len(keys), counts / len(keys), size=resamples).astype(np.float64)
        near, far = drawn[:, : self.width], drawn[:, self.width :]
        return near, far, near @ _cell_means(self.cell[self.near], self.distances[self.near], self.width)

    def _resampled_examples(
        self, example_index: IntArray, rng: np.random.Generator, resamples: int
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Draw examples, each with all its distances."""
        examples = int(example_index.max()) + 1
        near, far = (
            sparse.csr_matrix(
                (np.ones(mask.sum()), (example_index[mask], self.cell[mask])), shape=(examples, self.width)
            )
            for mask in (self.near, ~self.near)
        )
        sums = np.bincount(example_index[self.near], weights=self.distances[self.near], minlength=examples)
        parts = []
        step = max(1, BATCH_SIZE // examples)
        for start in range(0, resamples, step):
            size = min(step, resamples - start)
            weights = np.stack(
                [np.bincount(rng.integers(0, examples, examples), minlength=examples) for _ in range(size)]
            ).astype(np.float64)
            parts.append((weights @ near, weights @ far, weights @ sums))
        near_counts, far_counts, near_sums = (np.concatenate(part) for part in zip(*parts, strict=True))
        return near_counts, far_counts, near_sums

    def p_value(self, rng: np.random.Generator) -> tuple[float, int]:
        """Return the share of relabelings, the observed one included, whose rate variant is at least the observed one."""
        permutations = int((PERMUTATIONS + 1) * self.share_of_draws) - 1
        totals = np.bincount(self.cell, minlength=self.width)
        observed = np.bincount(self.cell[self.near], minlength=self.width)
        if self.example_index is None:
            relabeled = rng.multivariate_hypergeometric(
                totals, int(self.near.sum()), size=permutations, method="marginals"
            )
        else:
            relabeled = self._exchanged_labels(self.example_index, rng, permutations)
        drawn = self._rate(relabeled, totals)
        # The tolerance treats statistics that differ only by rounding as equal.
        beyond = int((drawn >= self._rate(observed[None], totals)[0] - 1e-12).sum())
        return (beyond + 1) / (permutations + 1), permutations

    def _exchanged_labels(self, example_index: IntArray, rng: np.random.Generator, times: int) -> IntArray:
        """Return the counts of S= per cell after examples with the same number of distances exchange all their labels."""
        order = np.argsort(example_index, kind="stable")
        sizes = np.bincount(example_index)
        starts = np.cumsum(sizes) - sizes
        blocks = [order[starts[sizes == size][:, None] + np.arange(size)] for size in np.unique(sizes)]
        rows = [(self.cell[block], self.near[block]) for block in blocks]
        counts = np.zeros((times, self.width), dtype=np.int64)
        for draw in range(times):
            for cells, labels in rows:
                near_cells = cells[labels[rng.permutation(len(labels))]]
                counts[draw] += np.bincount(near_cells, minlength=self.width)
        return counts

    @staticmethod
    def _rate(near: NDArray[Any], totals: NDArray[Any]) -> FloatArray:
        up_to = np.cumsum(near, axis=1).astype(np.float64)
        return _largest(reco_curves(up_to, np.cumsum(totals)[None].astype(np.float64) - up_to)[1])


def _thinned(values: FloatArray) -> FloatArray:
    """Return at most ``THRESHOLDS`` of the sorted values: all of the lowest and highest, evenly spaced ones in between."""
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
    """Return the largest value of each row without NaN; NaN for a row of NaN."""
    best = np.where(np.isnan(curves), -np.inf, curves).max(axis=1)
    return np.where(np.isinf(best), np.nan, best)


@dataclass(frozen=True)
class Trend:
    """Trend of a score over ordered levels: Page's test over blocks.

    ``rank_correlation`` is Spearman's correlation between level and score, averaged over blocks; -1 if the score falls at
    every level. ``p_value`` is one-sided, for a fall (or a rise if requested). ``left_out`` counts the blocks with a missing
    level.
    """

    rank_correlation: float
    p_value: float
    blocks: int
    levels: int
    left_out: int
    reason: str | None = None


def retraining_trend_test(values: Any, rises: bool = False) -> Trend:
    """Return Page's test (1963) for scores that fall (or rise) over levels; ``values`` are (blocks, levels) in order.

    Scores are compared within a block (such as a fold) only. A block with a missing level is left out and counted. The test
    needs at least three levels.

    Examples
    --------
    >>> from perdure import metrics
    >>> # three folds, four noise levels
    >>> scores = [[0.9, 0.7, 0.5, 0.2], [0.8, 0.6, 0.6, 0.3], [0.9, 0.8, 0.4, 0.5]]
    >>> trend = metrics.retraining_trend_test(scores)
    >>> # the score falls with the noise
    >>> round(trend.rank_correlation, 2), round(trend.p_value, 4)
    (-0.92, 0.0029)
    >>> metrics.retraining_trend_test([[0.9, 0.7]]).reason
    'a trend needs at least three levels'
    """
    table = as_floats(values, "values", ndim=2)
    known = ~np.isnan(table).any(axis=1)
    used, left_out = table[known], int((~known).sum())
    levels = table.shape[1]
    if levels < 3 or not len(used):
        missing = "a trend needs at least three levels" if levels < 3 else "no block has a value at every level"
        return Trend(math.nan, math.nan, len(used), levels, left_out, missing)
    ranks = stats.rankdata(used, axis=1)
    position = np.arange(levels) - (levels - 1) / 2
    spread = ranks.std(axis=1) * position.std()
    covariance = (ranks - ranks.mean(axis=1, keepdims=True)) @ position / levels
    correlation = np.divide(covariance, spread, out=np.zeros(len(used)), where=spread > 0)
    predicted = np.arange(1, levels + 1) if rises else np.arange(levels, 0, -1)
    p_value = (
        float(stats.page_trend_test(ranks, ranked=True, predicted_ranks=predicted).pvalue)
        if len(used) > 1
        else math.nan
    )
    missing_p = None if len(used) > 1 else "one block has no p-value"
    return Trend(float(correlation.mean()), p_value, len(used), levels, left_out, missing_p)
