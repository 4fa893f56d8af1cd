"""From the numbers of runs to the seven criteria, the scores and their intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from perdure import metrics
from perdure.audits.results import MEASURES, Audit, LearnerAudit
from perdure.base.errors import InputError
from perdure.metrics import CRITERIA, Interval, compute_metrics, interval
from perdure.record import Measurements

Weights = str | Mapping[str, float]
_ALL_WEIGHTS: Mapping[str, Weights] = {name: name for name in ("W1", "W2", "W3")}


def measure_run(run: Measurements, count_teachers: bool = False) -> dict[str, float]:
    """Return every registered metric of one run; a metric that cannot be computed is `Missing` with its reason.

    ``count_teachers`` adds the parameters of frozen old networks to the model size.
    """
    if count_teachers and run.cost is not None:
        run = replace(run, cost=replace(run.cost, kept=run.cost.kept + run.cost.teachers))
    try:
        values = compute_metrics(run)
    except InputError as error:
        raise InputError(f"{run.run}: {error}") from None
    if not run.is_reference:
        return values
    # Audit files list the criteria of a reference last, in the order of CRITERIA.
    return {name: values[name] for name in (*(name for name in values if name not in CRITERIA), *CRITERIA)}


def audit_runs(
    runs: Sequence[Measurements],
    weights: str | Mapping[str, Weights] | None = None,
    renormalise: bool = False,
    count_teachers: bool = False,
) -> Audit:
    """Audit the runs of one or several learners: runs of one learner on one benchmark are averaged.

    ``weights`` is a name or maps names to weight vectors (W1, W2 and W3 by default); ``renormalise`` allows scores
    over the criteria that are known.
    """
    if not runs:
        raise InputError("there is no run to audit")
    named: Mapping[str, Weights] = {weights: weights} if isinstance(weights, str) else weights or _ALL_WEIGHTS
    groups: dict[tuple[str, str], list[Measurements]] = {}
    for run in runs:
        groups.setdefault((run.benchmark, run.learner), []).append(run)
    learners = tuple(_audit_learner(group, named, renormalise, count_teachers) for group in groups.values())
    criteria = _comparable([entry for entry in learners if not math.isnan(entry.measures["A"].mean)])
    places = metrics.first_places(criteria) if _can_rank(criteria) else None
    return Audit(
        learners=learners,
        first_places=places.share if places else {},
        first_place_criteria=places.criteria if places else (),
        correlation=_correlation(criteria),
        partial_scores=renormalise
        and any(math.isnan(entry.measures[name].mean) for entry in learners for name in CRITERIA),
        weights={name: metrics.weight_vector(vector) for name, vector in named.items()},
    )


def _audit_learner(
    runs: Sequence[Measurements], weights: Mapping[str, Weights], renormalise: bool, count_teachers: bool
) -> LearnerAudit:
    first = runs[0]
    for run in runs[1:]:
        if run.curriculum != first.curriculum or run.table.shape != first.table.shape:
            raise InputError(
                f"{run.run}: its steps or curriculum differ from those of {first.run}, so the runs of {run.learner} cannot "
                "be averaged; name them apart"
            )
        for name in sorted({*run.conditions, *first.conditions}):
            here, there = run.conditions.get(name), first.conditions.get(name)
            if here != there:
                raise InputError(
                    f"{run.run}: its {name} is {here!r}, that of {first.run} {there!r}; runs under different settings are not "
                    "averaged: audit them apart"
                )
    per_run = [measure_run(run, count_teachers) for run in runs]
    criteria = [{name: values[name] for name in CRITERIA} for values in per_run]
    initials = [run.initial for run in runs if run.initial is not None]
    return LearnerAudit(
        learner=first.learner,
        benchmark=first.benchmark,
        runs=tuple(run.run for run in runs),
        measures={
            name: interval([values[name] for values in per_run], bounds=MEASURES[name].bounds) for name in per_run[0]
        },
        scores={
            name: interval([metrics.cl_score(values, vector, renormalise) for values in criteria], bounds=(0, 1))
            for name, vector in weights.items()
        },
        cl_stability={name: _cl_stability(criteria, vector, renormalise) for name, vector in weights.items()},
        tasks=first.task_names or tuple(str(i + 1) for i in range(first.table.shape[1])),
        curriculum=first.curriculum,
        complete=all(run.complete for run in runs),
        table=np.mean([run.table for run in runs], axis=0),
        initial=np.mean(initials, axis=0) if len(initials) == len(runs) else None,
        is_reference=first.is_reference,
        run_values={name: tuple(float(values[name]) for values in per_run) for name in per_run[0]},
        progress={} if first.is_reference else _progress(runs),
    )


def _progress(runs: Sequence[Measurements]) -> dict[str, tuple[Interval, ...]]:
    """Average accuracy and forgetting as they stood after each step."""
    measured: dict[str, Callable[..., float]] = {
        "average_accuracy": metrics.average_accuracy,
        "forgetting": metrics.average_forgetting,
    }
    steps = range(1, len(runs[0].table) + 1)
    return {
        name: tuple(
            interval(
                [measure(run.table[:step], curriculum=run.curriculum[:step]) for run in runs],
                bounds=MEASURES[name].bounds,
            )
            for step in steps
        )
        for name, measure in measured.items()
    }


def _cl_stability(criteria: Sequence[Mapping[str, float]], vector: Weights, renormalise: bool) -> Interval:
    """CL_stability is one number of all runs together, so it has no interval of its own."""
    value = metrics.cl_stability(criteria, vector, renormalise)
    return Interval(value, math.nan, math.nan, len(criteria), "none", metrics.reason(value))


def _comparable(learners: Sequence[LearnerAudit]) -> dict[str, dict[str, float]]:
    """Return the criteria of the learners if they were all met on one benchmark; those of different ones do not compare."""
    if len({entry.benchmark for entry in learners}) != 1:
        return {}
    return {entry.learner: {name: entry.measures[name].mean for name in CRITERIA} for entry in learners}


def _can_rank(criteria: Mapping[str, Mapping[str, float]]) -> bool:
    known_for_all = [name for name in CRITERIA if not any(math.isnan(values[name]) for values in criteria.values())]
    return len(criteria) > 1 and bool(known_for_all)


def _correlation(criteria: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    if len(criteria) < 3 or not _can_rank(criteria):
        return {}
    result = metrics.criteria_correlation(criteria)
    rows = (dict(zip(result.criteria, row, strict=True)) for row in result.matrix.tolist())
    return dict(zip(result.criteria, rows, strict=True))
