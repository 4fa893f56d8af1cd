"""What a fit returns: properties with errors and intervals, the paper's form of them, and what the data cannot say."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from perdure.surrogate.estimation.coordinates import Coordinates

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perdure.surrogate.diagnostics.held_out import HeldOut
    from perdure.surrogate.diagnostics.identifiability import Information, Nullity
    from perdure.surrogate.estimation.problem import Array, Problem

PROPERTIES = ("efficiency", "retention", "translation")
TASK_PROPERTIES = ("gain", "transfer", "difficulty")


@dataclass(frozen=True)
class PaperForm:
    """The same curves in the paper's parameters: one representative of the gauge, with |A| <= 1 and mean gamma 1.

    For ``estimator="adam"`` these are the numbers Adam ended at, as the paper prints them.
    """

    transfer: Array
    difficulty: Array
    efficiency: Array
    retention: Array
    translation: Array


@dataclass(frozen=True)
class Diagnostics:
    """What must be known before a property is believed; ``supported`` tells whether the data alone determine each.

    Supported: half the 95 % interval from the data alone is at most half of 1 for retention and efficiency (whose
    mean is 1), of max(1, kappa) for translation, and of abs(B[j, j]) for column j of B.
    """

    cells: int
    parameters: int
    nullity: Nullity
    condition: float
    saturated: int
    bounds_hit: tuple[str, ...]
    starts: int
    agreeing_starts: int
    converged: bool
    supported: dict[str, NDArray[np.bool_]]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Fit:
    """A fitted surrogate model. Arrays are per task (0-based) or per algorithm; NaN where a quantity has no meaning.

    ``gain`` is B[i, j] = A[i, j] g / d[j]: what one visit of task i does to task j, for the average algorithm.
    ``transfer`` is B[i, j] / abs(B[j, j]) and ``difficulty`` 1 / abs(B[j, j]); ``efficiency`` and ``translation``
    are relative to the mean efficiency. ``errors`` and ``intervals`` are keyed by property; intervals have a last
    axis (low, high) and hold their own estimate. ``loss`` is the mean squared error over all measured cells, t =
    0 included; lower is better.
    """

    problem: Problem
    estimator: str
    point: Array
    information: Information
    gain: Array
    transfer: Array
    difficulty: Array
    efficiency: Array
    retention: Array
    translation: Array
    curves: Array | tuple[Array, ...]
    loss: float
    strength: float
    errors: dict[str, Array]
    intervals: dict[str, Array]
    interval_kind: str
    paper: PaperForm
    diagnostics: Diagnostics
    held_out: tuple[HeldOut, ...] = field(default=())

    @property
    def coordinates(self) -> Coordinates:
        """Return the layout of ``point``."""
        return Coordinates(self.problem)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON values; tasks and curricula are 1-based, and what has no value is null."""
        curves = self.curves if isinstance(self.curves, tuple) else (self.curves,)
        checks = self.diagnostics
        return {
            "estimator": self.estimator,
            "algorithms": list(self.problem.algorithms),
            "tasks": list(self.problem.tasks),
            "curricula": [[task + 1 for task in block.curriculum] for block in self.problem.blocks],
            "loss": jsonable(self.loss),
            "noise": jsonable(self.information.noise),
            "prior_strength": self.strength,
            "interval_kind": self.interval_kind,
            "properties": {
                name: {
                    "estimate": jsonable(getattr(self, name)),
                    "standard_error": jsonable(self.errors[name]),
                    "interval": jsonable(self.intervals[name]),
                    "supported": self.diagnostics.supported[name].tolist(),
                }
                for name in (*PROPERTIES, *TASK_PROPERTIES)
            },
            "paper_form": {
                name: jsonable(getattr(self.paper, name)) for name in (*PROPERTIES, "transfer", "difficulty")
            },
            "curves": [jsonable(array) for array in curves],
            "diagnostics": {
                "cells": checks.cells,
                "parameters": checks.parameters,
                "nullity": {
                    "global_gauge": checks.nullity.global_gauge,
                    "column_gauge": checks.nullity.column_gauge,
                    "dead_rows": checks.nullity.dead_rows,
                    "weak_data": checks.nullity.weak_data,
                },
                "condition": jsonable(checks.condition),
                "saturated_cells": checks.saturated,
                "bounds_hit": list(checks.bounds_hit),
                "starts": checks.starts,
                "agreeing_starts": checks.agreeing_starts,
                "converged": checks.converged,
                "warnings": list(checks.warnings),
            },
            "held_out": [
                {
                    "steps": row.steps,
                    "cells": row.cells,
                    "model": jsonable(row.model),
                    "last_value": jsonable(row.last_value),
                    "same_phase": jsonable(row.same_phase),
                }
                for row in self.held_out
            ],
        }


def jsonable(value: Any) -> Any:
    """Return arrays as lists and every number that JSON has no word for (NaN, infinity) as None."""
    if isinstance(value, np.ndarray):
        return jsonable(value.tolist())
    if isinstance(value, list):
        return [jsonable(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value
