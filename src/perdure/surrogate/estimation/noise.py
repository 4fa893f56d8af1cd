"""Noise of the cells: the binomial variance of an accuracy over n test examples, plus a variance common to all cells."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from perdure.surrogate.problem import Array, Problem

_BISECTIONS = 60


@dataclass(frozen=True)
class Noise:
    """Variance of each cell after t = 0, in the order of `Problem.targets`: ``binomial`` plus ``extra``.

    ``binomial`` is 0 where the number of test examples is unknown. ``extra`` is 0 before it is estimated.
    """

    binomial: Array
    extra: float
    measured: Array

    @property
    def is_counted(self) -> bool:
        """Whether the number of test examples is known for at least one measured cell."""
        return bool((self.binomial[self.measured > 0] > 0).any())

    @property
    def reference(self) -> float:
        """Mean variance of the measured cells, which is the unit of the weights; NaN if nothing is known about it."""
        variance = (self.binomial + self.extra)[self.measured > 0]
        return float(variance.mean()) if (variance > 0).all() else float("nan")

    @property
    def weights(self) -> Array:
        """Square root of reference / variance for measured cells, 0 for missing ones; 1 if the variances are unknown."""
        variance = self.binomial + self.extra
        if not np.isfinite(self.reference):
            return self.measured.copy()
        return np.asarray(self.measured * np.sqrt(self.reference / np.where(variance > 0, variance, self.reference)))

    def estimated(self, residuals: Array, degrees_of_freedom: float) -> Noise:
        """Return the noise with the extra variance at which the standardized squared residuals sum to their expectation."""
        used = self.measured > 0
        squares, binomial = residuals[used] ** 2, self.binomial[used]
        if degrees_of_freedom < 1 or not self.is_counted:
            return self
        low, high = 0.0, float(squares.sum() / degrees_of_freedom) + 1e-300
        if (binomial > 0).all() and (squares / binomial).sum() <= degrees_of_freedom:
            return replace(self, extra=0.0)
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            if (squares / (binomial + middle)).sum() > degrees_of_freedom:
                low = middle
            else:
                high = middle
        return replace(self, extra=high)


def cell_noise(problem: Problem, performance: Array | None = None) -> Noise:
    """Return the binomial variance of each cell at the given performance (default: as measured).

    The variance of an accuracy a over n examples and S seeds is a (1 - a) / (n S), with a replaced by (n a + 1) / (n + 2):
    an observed 0 or 1 does not mean that there is no noise. Performance is (a - chance) / (1 - chance).
    """
    performance = problem.targets if performance is None else performance
    parts, begin = [], 0
    for block in problem.blocks:
        shape = block.values[:, :, 1:].shape
        size = int(np.prod(shape))
        values = np.nan_to_num(performance[begin : begin + size].reshape(shape))
        begin += size
        if block.examples is None:
            parts.append(np.zeros(size))
            continue
        count, chance = block.examples[None, :, None], block.chance[None, :, None]
        accuracy = np.clip(chance + (1 - chance) * values, 0, 1)
        smooth = (count * accuracy + 1) / (count + 2)
        runs = np.maximum(block.run_counts[:, :, 1:], 1)
        parts.append((smooth * (1 - smooth) / count / (1 - chance) ** 2 / runs).ravel())
    return Noise(np.concatenate(parts), 0.0, problem.measured.astype(np.float64))
