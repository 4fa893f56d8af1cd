"""Which parameters the curves can tell apart: Fisher information, null directions and what causes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

if TYPE_CHECKING:
    from perdure.surrogate.estimation.coordinates import Coordinates
    from perdure.surrogate.estimation.problem import Array

_RANK_TOLERANCE = 1e-8  # singular values below this share of the largest count as zero
_SATURATED = 0.99


@dataclass(frozen=True)
class Nullity:
    """Directions of the paper's parameter space along which no curve changes, by cause.

    The first three follow from the equations alone (SPEC: an exact gauge); ``weak_data`` counts what these curves
    add to them.
    """

    global_gauge: int
    column_gauge: int
    dead_rows: int
    weak_data: int

    @property
    def total(self) -> int:
        """Return the dimension of the set of parameters with the very same curves."""
        return self.global_gauge + self.column_gauge + self.dead_rows + self.weak_data


@dataclass(frozen=True)
class Information:
    """Fisher information at a fit.

    ``covariance`` is the posterior's (for least squares, the estimator's); ``data_errors`` are the standard
    errors the data alone would give, infinite along null directions; ``multiplier`` turns a standard error into
    half a 95 % interval.
    """

    covariance: Array
    data_errors: Array
    noise: float
    spare: float
    multiplier: float
    condition: float
    nullity: Nullity
    saturated: int


def information(coordinates: Coordinates, point: Array, precision: Array) -> Information:
    """Work out what the measured cells say at ``point``; ``precision`` is the prior's, in the units of the squared errors.

    The noise variance is the squared error over the spare data, unsaturated cells less the effective number of
    parameters: a cell at the ceiling can err to one side only and would make the noise look small.
    """
    measured = coordinates.problem.measured
    predicted, slopes = coordinates.predictions(point[None])
    basis = coordinates.tangent
    jacobian = slopes[0][measured] @ basis
    residual = predicted[0][measured] - coordinates.problem.targets[measured]
    left, sizes, right = np.linalg.svd(jacobian, full_matrices=True)
    del left
    sizes = np.concatenate([sizes, np.zeros(len(right) - len(sizes))])
    alive = sizes > _RANK_TOLERANCE * max(sizes.max(), 1e-300)
    fisher = jacobian.T @ jacobian
    regular = fisher + basis.T @ (precision[:, None] * basis)
    inverse = np.linalg.pinv(regular, rcond=_RANK_TOLERANCE**2, hermitian=True)
    effective = float(np.trace(inverse @ fisher))
    free = np.abs(predicted[0][measured]) <= _SATURATED
    spare = float(free.sum() - effective)
    noise = float(np.sqrt((residual[free] ** 2).sum() / spare)) if spare >= 1 else float("nan")
    directions = basis @ right.T
    alone = (directions[:, alive] / sizes[alive]) ** 2
    open_ended = (directions[:, ~alive] ** 2).sum(axis=1) > _RANK_TOLERANCE
    errors = np.where(open_ended, np.inf, noise * np.sqrt(alone.sum(axis=1)))
    tasks = coordinates.tasks
    kept = sizes[alive]
    return Information(
        covariance=noise**2 * basis @ inverse @ basis.T,
        data_errors=errors,
        noise=noise,
        spare=spare,
        multiplier=float(stats.t.ppf(0.975, spare)) if spare >= 1 else float("nan"),
        condition=float(kept.max() / kept.min()) if alive.all() and len(kept) else float("inf"),
        nullity=Nullity(1, tasks, tasks * (tasks - len(coordinates.rows)), int((~alive).sum())),
        saturated=int((~free).sum()),
    )
