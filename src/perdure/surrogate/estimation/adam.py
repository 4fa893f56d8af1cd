"""Estimator of the CLAMP authors: Adam on the paper's parameters, clamped to the feasible set after every step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from perdure.base.errors import InputError

if TYPE_CHECKING:
    from perdure.surrogate.estimation.coordinates import Coordinates
    from perdure.surrogate.problem import Array, Problem

_SMALLEST_DIFFICULTY = 1e-6  # the authors clamp d at 0, where performance is 0 / 0
_BETAS = (0.9, 0.999)
_EPSILON = 1e-8


@dataclass(frozen=True)
class PaperParameters:
    """The paper's parameters A, d, gamma, h and lambda, each with a leading batch axis."""

    transfer: Array
    difficulty: Array
    efficiency: Array
    retention: Array
    translation: Array

    def arrays(self) -> tuple[Array, ...]:
        """Return the five arrays in the order of the fields."""
        return self.transfer, self.difficulty, self.efficiency, self.retention, self.translation

    def member(self, index: int) -> PaperParameters:
        """Return one member of the batch as a batch of one."""
        return PaperParameters(*(array[index : index + 1] for array in self.arrays()))

    def feasible(self) -> PaperParameters:
        """Return the parameters clamped to |A| <= 1, d > 0, gamma and lambda >= 0, 0 <= h <= 1."""
        return PaperParameters(
            np.clip(self.transfer, -1, 1),
            np.maximum(self.difficulty, _SMALLEST_DIFFICULTY),
            np.maximum(self.efficiency, 0),
            np.clip(self.retention, 0, 1),
            np.maximum(self.translation, 0),
        )


def adam_random_parameters(problem: Problem, count: int, rng: np.random.Generator) -> PaperParameters:
    """Return random starting points as in the authors' code: A and d uniform, the algorithms' properties near one half."""
    tasks, algorithms = len(problem.tasks), len(problem.algorithms)
    return PaperParameters(
        rng.uniform(-1, 1, (count, tasks, tasks)),
        rng.uniform(0, 1, (count, tasks)),
        rng.normal(0.5, 0.02, (count, algorithms)),
        rng.normal(0.5, 0.1, (count, algorithms)),
        rng.normal(0.5, 0.02, (count, algorithms)),
    ).feasible()


def projected_adam(
    problem: Problem, start: PaperParameters, *, steps: int = 1000, rate: float = 1e-2
) -> tuple[PaperParameters, Array]:
    """Minimize the mean squared error over all measured cells including t = 0 (section 2.3); return parameters and loss.

    ``rate`` is the learning rate of the authors' code. The paper calls it Adam's default, but with that value, 1e-3, the fit
    fails.
    """
    point = start.feasible()
    first = [np.zeros_like(array) for array in point.arrays()]
    second = [np.zeros_like(array) for array in point.arrays()]
    for step in range(1, steps + 1):
        _, gradient = adam_loss_and_gradient(problem, point)
        moved = []
        for index, (array, slope) in enumerate(zip(point.arrays(), gradient.arrays(), strict=True)):
            first[index] += (1 - _BETAS[0]) * (slope - first[index])
            second[index] += (1 - _BETAS[1]) * (slope**2 - second[index])
            size = np.sqrt(second[index]) / np.sqrt(1 - _BETAS[1] ** step) + _EPSILON
            moved.append(array - rate / (1 - _BETAS[0] ** step) * first[index] / size)
        point = PaperParameters(*moved).feasible()
    return point, adam_loss_and_gradient(problem, point)[0]


def adam_paper_points(coordinates: Coordinates, parameters: PaperParameters) -> Array:
    """Return the paper's parameters as gauge-fixed vectors, (batch, size)."""
    points = np.empty((len(parameters.difficulty), coordinates.size))
    gain = parameters.transfer / parameters.difficulty[:, None, :]
    points[:, coordinates.gains] = gain[:, list(coordinates.rows)].reshape(len(points), -1)
    points[:, coordinates.rho] = parameters.efficiency
    points[:, coordinates.kappa] = parameters.translation
    points[:, coordinates.retention] = parameters.retention
    if not points[:, coordinates.rho].any(axis=1).all():
        raise InputError("curves: the fit failed, because Adam set all efficiencies to 0. Use estimator='map'.")
    return coordinates.fixed_scale(points)


def adam_loss_and_gradient(problem: Problem, point: PaperParameters) -> tuple[Array, PaperParameters]:
    """Return the mean squared error (batch,) and its gradient by back-propagation through the recursion."""
    gain = point.transfer / point.difficulty[:, None, :]
    cells = sum(int(np.isfinite(block.values).sum()) for block in problem.blocks)
    loss = np.zeros(len(gain))
    slope_gain = np.zeros_like(gain)
    slopes = [np.zeros_like(point.efficiency) for _ in range(3)]
    for block in problem.blocks:
        members = list(block.algorithms)
        rho, retention, kappa = (array[:, members] for array in (point.efficiency, point.retention, point.translation))
        levels = [np.zeros((len(gain), len(members), gain.shape[2]))]
        for task in block.curriculum:
            drive = rho + kappa * np.tanh(levels[-1][:, :, task] / 2)
            levels.append(retention[..., None] * levels[-1] + gain[:, None, task] * drive[..., None])
        skills = [np.tanh(level / 2) for level in levels]
        errors = [np.nan_to_num(skill - block.values[:, :, step]) for step, skill in enumerate(skills)]
        loss += sum((error**2).sum(axis=(1, 2)) for error in errors) / cells
        back = np.zeros_like(levels[0])
        for step in range(len(block.curriculum), 0, -1):
            task = block.curriculum[step - 1]
            back = back + 2 / cells * errors[step] * (1 - skills[step] ** 2) / 2
            skill = skills[step - 1][:, :, task]
            to_drive = (back * gain[:, None, task]).sum(axis=2)
            slope_gain[:, task] += (back * (rho + kappa * skill)[..., None]).sum(axis=1)
            slopes[0][:, members] += to_drive
            slopes[1][:, members] += (back * levels[step - 1]).sum(axis=2)
            slopes[2][:, members] += to_drive * skill
            back = retention[..., None] * back
            back[:, :, task] += to_drive * kappa * (1 - skill**2) / 2
    return loss, PaperParameters(
        slope_gain / point.difficulty[:, None, :],
        -(slope_gain * gain).sum(axis=1) / point.difficulty,
        *slopes,
    )
