"""Weak prior on the gauge-fixed parameters, which keeps undetermined parameters near plausible values.

Without it the best fit of real curves has extreme parameters (translations in the hundreds, saturated gains) and forecasts
poorly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from perdure.surrogate.estimation.solver import Objective

if TYPE_CHECKING:
    from perdure.surrogate.estimation.coordinates import Coordinates
    from perdure.surrogate.problem import Array, Problem

STRENGTHS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
"""Candidate strengths, selected on held-out steps. At 1 the prior has its nominal standard deviations."""

FALLBACK = 1.0
"""Strength for curves that are too short to hold out steps."""

ASSUMED_NOISE = 0.05
"""Noise for curves with too few data to estimate it."""

SMALLEST_NOISE = 1e-4
"""Lower limit of the estimated noise: without noise the prior would have no strength, and intervals no width."""

_DEGREES_OF_FREEDOM = 2.0  # of the Student t prior on B: low enough that 95 % intervals cover untypical gains


@dataclass(frozen=True)
class Prior:
    """Independent priors: center, precision and tail (0: normal) of each entry, and the typical gain of an unseen task."""

    center: Array
    precision: Array
    tail: Array
    typical_gain: float

    def pull(self, point: Array, strength: float) -> Array:
        """Return the effective precision of the prior for each entry at ``point``."""
        return strength * self.precision / (1 + self.tail * (point - self.center) ** 2)

    def objective(self, problem: Problem, strengths: Array, weights: Array | None = None) -> Objective:
        """Return the objective of the posterior mode, with one batch member per strength.

        ``weights`` are those of the cells (see `Noise.weights`); by default all measured cells have the same weight.
        """
        measured = problem.measured
        return Objective(
            np.where(measured, problem.targets, 0)[None],
            (measured.astype(np.float64) if weights is None else weights)[None],
            self.center[None],
            strengths[:, None] * self.precision,
            self.tail[None],
        )


def weak_prior(coordinates: Coordinates) -> Prior:
    """Return the prior: no transfer between tasks, equal efficiencies, no translation, retention one half.

    The diagonal of B has mean g and standard deviation g, where g is the typical gain of the curves: the median over
    algorithms and visits of the experience implied by the performance just after training. Off-diagonal entries are
    0 +- g / 4, efficiency 1 +- .5, translation 0 +- 1, retention .5 +- .5. B has a Student t prior; all others are normal,
    because unbounded translations are the reason why the exact fit forecasts poorly. Only the strength, a common factor
    of all precisions, is tuned.
    """
    gain = _typical_gain(coordinates.problem)
    center = np.zeros(coordinates.size)
    spread = np.full(coordinates.size, gain / 4)
    for task in coordinates.rows:
        center[coordinates.diagonal(task)] = spread[coordinates.diagonal(task)] = gain
    center[coordinates.rho], spread[coordinates.rho] = 1, 0.5
    center[coordinates.kappa], spread[coordinates.kappa] = 0, 1
    center[coordinates.retention], spread[coordinates.retention] = 0.5, 0.5
    tail = 1 / spread**2 / _DEGREES_OF_FREEDOM
    tail[coordinates.rho.start :] = 0
    return Prior(center, 1 / spread**2, tail, gain)


def _typical_gain(problem: Problem) -> float:
    just_trained = [
        block.values[:, task, step] for block in problem.blocks for step, task in enumerate(block.curriculum, 1)
    ]
    values = np.concatenate(just_trained)
    values = values[np.isfinite(values)]
    if not len(values):
        return 1.0
    return max(0.1, float(np.median(2 * np.arctanh(np.clip(values, 0, 0.99)))))
