"""A weak prior on the gauge-fixed parameters, so that what the data leave open stays near something plain.

Without it the best fit of real curves runs off to where it can no longer predict (translations in the hundreds,
saturated gains).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from perdure.surrogate.estimation.solver import Objective

if TYPE_CHECKING:
    from perdure.surrogate.estimation.coordinates import Coordinates
    from perdure.surrogate.estimation.problem import Array, Problem

STRENGTHS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
"""The strengths among which held-out steps choose. 1 takes the prior's standard deviations at face value."""

FALLBACK = 1.0
"""The strength taken where the curves are too short to hold steps out."""

ASSUMED_NOISE = 0.05
"""The noise taken where there are too few data to measure it."""

_DEGREES = 2.0  # of freedom of B's Student tails: low enough for 95 % intervals to cover gains far from the typical one


@dataclass(frozen=True)
class Prior:
    """Independent distributions: centre, precision and tail (0: normal) of each entry, and the gain of a task never seen."""

    centre: Array
    precision: Array
    tail: Array
    typical_gain: float

    def pull(self, point: Array, strength: float) -> Array:
        """Return the precision with which the prior acts on each entry at ``point``."""
        return strength * self.precision / (1 + self.tail * (point - self.centre) ** 2)

    def objective(self, problem: Problem, strengths: Array) -> Objective:
        """Return the posterior's objective of a problem, one member of the batch for each strength."""
        measured = problem.measured
        return Objective(
            np.where(measured, problem.targets, 0)[None],
            measured.astype(np.float64)[None],
            self.centre[None],
            strengths[:, None] * self.precision,
            self.tail[None],
        )


def weak_prior(coordinates: Coordinates) -> Prior:
    """Return the prior: no transfer between tasks, equal efficiencies, no translation, retention one half.

    The diagonal of B is centred on the curves' own typical gain g (the median over algorithms and visits of what
    performance just after training asks for), standard deviation g; off the diagonal g / 4; efficiency 1 +- .5,
    translation 0 +- 1, retention .5 +- .5. B has Student tails, the rest is normal: a translation that runs off is
    how the exact fit fails to predict. Only the strength, a common factor of all precisions, is tuned.
    """
    gain = _typical_gain(coordinates.problem)
    centre = np.zeros(coordinates.size)
    spread = np.full(coordinates.size, gain / 4)
    for task in coordinates.rows:
        centre[coordinates.diagonal(task)] = spread[coordinates.diagonal(task)] = gain
    centre[coordinates.rho], spread[coordinates.rho] = 1, 0.5
    centre[coordinates.kappa], spread[coordinates.kappa] = 0, 1
    centre[coordinates.keep], spread[coordinates.keep] = 0.5, 0.5
    tail = 1 / spread**2 / _DEGREES
    tail[coordinates.rho.start :] = 0
    return Prior(centre, 1 / spread**2, tail, gain)


def _typical_gain(problem: Problem) -> float:
    just_trained = [
        block.values[:, task, step] for block in problem.blocks for step, task in enumerate(block.curriculum, 1)
    ]
    values = np.concatenate(just_trained)
    values = values[np.isfinite(values)]
    if not len(values):
        return 1.0
    return max(0.1, float(np.median(2 * np.arctanh(np.clip(values, 0, 0.99)))))
