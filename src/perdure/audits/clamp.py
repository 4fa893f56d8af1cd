"""The part of an audit that tells the algorithm's doing from the tasks': a CLAMP fit, kept with what it was fitted to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from perdure.base.errors import InputError
from perdure.record import Measurements

if TYPE_CHECKING:
    from perdure.surrogate import Fit

FloatArray = NDArray[np.float64]
PROPERTIES = ("efficiency", "retention", "translation")
_ESTIMATES = (*PROPERTIES, "transfer", "difficulty")


@dataclass(frozen=True)
class FittedCurves:
    """Measured and fitted performance of some algorithms on one curriculum: (algorithms, tasks, steps + 1), NaN = missing."""

    curriculum: tuple[int, ...]
    algorithms: tuple[int, ...]
    """Places in `LatentProperties.algorithms`."""
    measured: FloatArray
    fitted: FloatArray


@dataclass(frozen=True)
class LatentProperties:
    """What a CLAMP fit found. Keys are efficiency, retention, translation (per algorithm), transfer and difficulty.

    Efficiency and translation are relative to the mean efficiency; ``transfer[i, j]`` is what a visit of task i does to task
    j, relative to what a visit of j itself does. ``intervals`` have a last axis (low, high); ``supported`` tells what the
    data alone determine. ``words`` is the state of the fit in sentences.
    """

    benchmark: str
    algorithms: tuple[str, ...]
    tasks: tuple[str, ...]
    curves: tuple[FittedCurves, ...]
    estimates: dict[str, FloatArray]
    intervals: dict[str, FloatArray]
    supported: dict[str, NDArray[np.bool_]]
    interval_kind: str
    words: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return a JSON form: what is not a number becomes null, infinity a word; curricula are 1-based."""
        return {
            "benchmark": self.benchmark,
            "algorithms": list(self.algorithms),
            "tasks": list(self.tasks),
            "curves": [
                {
                    "curriculum": [task + 1 for task in part.curriculum],
                    "algorithms": list(part.algorithms),
                    "measured": _plain(part.measured),
                    "fitted": _plain(part.fitted),
                }
                for part in self.curves
            ],
            "estimates": {name: _plain(values) for name, values in self.estimates.items()},
            "intervals": {name: _plain(values) for name, values in self.intervals.items()},
            "supported": {name: values.tolist() for name, values in self.supported.items()},
            "interval_kind": self.interval_kind,
            "words": list(self.words),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> LatentProperties:
        """Return what `to_json` wrote."""
        return cls(
            benchmark=value["benchmark"],
            algorithms=tuple(value["algorithms"]),
            tasks=tuple(value["tasks"]),
            curves=tuple(
                FittedCurves(
                    curriculum=tuple(task - 1 for task in part["curriculum"]),
                    algorithms=tuple(part["algorithms"]),
                    measured=_array(part["measured"]),
                    fitted=_array(part["fitted"]),
                )
                for part in value["curves"]
            ),
            estimates={name: _array(values) for name, values in value["estimates"].items()},
            intervals={name: _array(values) for name, values in value["intervals"].items()},
            supported={name: np.array(values, dtype=bool) for name, values in value["supported"].items()},
            interval_kind=value["interval_kind"],
            words=tuple(value["words"]),
        )


def latent_properties(fit: Fit, benchmark: str = "") -> LatentProperties:
    """Return what a page or a figure needs of a fit."""
    from perdure.surrogate import describe  # noqa: PLC0415  (loading scipy's solvers is slow)

    fitted = fit.curves if isinstance(fit.curves, tuple) else (fit.curves,)
    return LatentProperties(
        benchmark=benchmark,
        algorithms=fit.problem.algorithms,
        tasks=fit.problem.tasks,
        curves=tuple(
            FittedCurves(block.curriculum, block.algorithms, block.values, curves)
            for block, curves in zip(fit.problem.blocks, fitted, strict=True)
        ),
        estimates={name: getattr(fit, name) for name in _ESTIMATES},
        intervals={name: fit.intervals[name] for name in _ESTIMATES},
        supported={name: fit.diagnostics.supported[name] for name in _ESTIMATES},
        interval_kind=fit.interval_kind,
        words=tuple(describe(fit)),
    )


def fit_runs(runs: Sequence[Measurements], starts: int = 64, seed: int = 0) -> tuple[LatentProperties, ...]:
    """Fit CLAMP to the learners of each benchmark, accuracies as they are; runs of a learner are averaged.

    A reference that learns all tasks at once has no curve and takes no part.
    """
    from perdure import surrogate  # noqa: PLC0415
    from perdure.importers.curves import curves_of  # noqa: PLC0415
    from perdure.record.curves import joined  # noqa: PLC0415

    found = []
    sequences = [run for run in runs if not run.is_reference]
    for benchmark in dict.fromkeys(run.benchmark for run in sequences):
        parts = joined(curves_of(run) for run in sequences if run.benchmark == benchmark)
        if len({part.tasks for part in parts}) > 1:
            raise InputError(
                f"{benchmark or 'the matrices'}: the runs name different tasks, so one transfer matrix cannot hold them; "
                "fit them apart with perdure fit"
            )
        fit = surrogate.fit(
            [part.values for part in parts],
            [part.curriculum for part in parts],
            starts=starts,
            seed=seed,
            algorithms=[part.algorithms for part in parts],
            tasks=parts[0].tasks,
        )
        found.append(latent_properties(fit, benchmark))
    return tuple(found)


def _plain(values: FloatArray) -> Any:
    """Return nested lists in which NaN is None and infinity a word: JSON has neither."""
    return _cell(values.tolist())


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return [_cell(item) for item in value]
    if math.isnan(value):
        return None
    return value if math.isfinite(value) else ("inf" if value > 0 else "-inf")


def _array(value: Any) -> FloatArray:
    return np.array(value, dtype=object).astype(np.float64)
