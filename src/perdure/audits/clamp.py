"""Algorithm or tasks: what explains the curves? The CLAMP fit of an audit, with the curves it was fitted to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from perdure.audits.clamp_input import clamp_input
from perdure.audits.serialization import OneBased
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

    curriculum: tuple[OneBased, ...]
    algorithms: tuple[int, ...]
    """Indices into `LatentProperties.algorithms`."""
    measured: FloatArray
    fitted: FloatArray


@dataclass(frozen=True)
class LatentProperties:
    """The result of a CLAMP fit. Keys are efficiency, retention, translation (per algorithm), transfer and difficulty.

    Efficiency and translation are relative to the mean efficiency. ``transfer[i, j]`` is the effect of training task i on
    task j, relative to the effect of training j itself. ``intervals`` have a last axis (low, high). ``supported`` states
    which values the data alone determine. ``notes`` describes the quality of the fit in sentences.
    """

    benchmark: str
    algorithms: tuple[str, ...]
    tasks: tuple[str, ...]
    curves: tuple[FittedCurves, ...]
    estimates: dict[str, FloatArray]
    intervals: dict[str, FloatArray]
    supported: dict[str, NDArray[np.bool_]]
    interval_kind: str
    notes: tuple[str, ...]


def clamp_properties(fit: Fit, benchmark: str = "", notes: Sequence[str] = ()) -> LatentProperties:
    """Return the part of a fit that reports and figures show; ``notes`` are added to the description of the fit."""
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
        notes=(*describe(fit), *notes),
    )


def fit_clamp(runs: Sequence[Measurements], starts: int = 64, seed: int = 0) -> tuple[LatentProperties, ...]:
    """Fit CLAMP to the accuracies of the learners of each benchmark; runs of a learner are its seeds.

    A reference that learns all tasks at once has no curve and is left out.
    """
    from perdure import surrogate  # noqa: PLC0415
    from perdure.importers.curves import import_run_curves  # noqa: PLC0415

    fits = []
    sequences = [run for run in runs if not run.is_reference]
    for benchmark in dict.fromkeys(run.benchmark for run in sequences):
        own = [run for run in sequences if run.benchmark == benchmark]
        parts = [import_run_curves(run) for run in own]
        if len({part.tasks for part in parts}) > 1:
            raise InputError(
                f"{benchmark or 'the matrices'}: the runs have different tasks, so they cannot share a transfer matrix; "
                "fit them separately with perdure fit"
            )
        exact = bool(benchmark) and all(run.exact for run in own)
        data = clamp_input(parts, scenario=benchmark_scenario(benchmark), exact=exact)
        fit = surrogate.fit(**data.arguments(), starts=starts, seed=seed)
        fits.append(clamp_properties(fit, benchmark, data.notes))
    return tuple(fits)


def benchmark_scenario(benchmark: str) -> str:
    """Return class, task or domain from the name of a benchmark such as ``split-digits (class-incremental)``."""
    name = benchmark.rpartition("(")[2].removesuffix("-incremental)")
    return name if name in {"class", "task", "domain"} else ""
