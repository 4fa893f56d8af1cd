"""The metrics and scores of learners over their runs, and the differences between learners paired over common seeds."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perdure import metrics
from perdure.audits.results import (
    AT_BOUNDARIES,
    DEPENDS_ON_EVALUATIONS,
    MEASURES,
    WITHIN_TASKS,
    AccuracyDifference,
    Audit,
    LearnerAudit,
    evaluation_notes,
)
from perdure.base.errors import InputError
from perdure.metrics import (
    CE_EPSILON,
    CRITERIA,
    METRICS,
    Interval,
    Missing,
    RunDifference,
    compute_metric_variants,
    compute_metrics,
    holm,
    interval,
    paired_run_difference,
)
from perdure.record import Measurements

Weights = str | Mapping[str, float]
JOINTLY_TRAINED = ("cumulative", "joint")
"""Learners that are trained on all tasks so far, or on all tasks: the references of intransigence, best first."""
_ALL_WEIGHTS: Mapping[str, Weights] = {name: name for name in ("W1", "W2", "W3")}
COMPARED_METRICS = (
    "average_accuracy",
    "forgetting",
    "min_accuracy",
    "worst_case_accuracy",
    "backward_transfer",
    "A",
    "FWT",
)
"""The metrics of accuracies whose differences are tested, in the order of tables."""
COMPARED_UNBOUNDED_METRICS = (
    "average_loss",
    "loss_forgetting",
    "loss_backward_transfer",
    "average_performance",
    "performance_forgetting",
    "performance_backward_transfer",
)
"""The metrics of losses and of other performances whose differences are tested."""
_SEED = re.compile(r"(?:^|[-_. ]|(?<=[a-z]))(?:seed|run|rep|s)[-_ ]?(\d+)$|^(\d+)$", re.IGNORECASE)


def audit_runs(
    runs: Sequence[Measurements],
    weights: str | Mapping[str, Weights] | None = None,
    renormalise: bool = False,
    count_teachers: bool = False,
    *,
    ce_epsilon: float = CE_EPSILON,
    seeds: Mapping[str, int] | None = None,
) -> Audit:
    """Audit the runs of one or several learners: runs of one learner on one benchmark are averaged.

    ``weights`` is a name or maps names to weight vectors (W1, W2 and W3 by default); ``renormalise`` allows scores
    over the criteria that are known; ``count_teachers`` adds frozen old networks to the model size; ``ce_epsilon`` is the
    epsilon of `perdure.metrics.computational_efficiency`. ``seeds`` maps runs to their seeds, over which learners are
    compared; by default they are taken from the names of the runs (``ewc_seed0.csv``).

    Examples
    --------
    >>> import numpy as np
    >>> from perdure import audits
    >>> from perdure.record import Measurements
    >>> tables = [[[0.9, 0.1], [0.6, 0.8]], [[0.9, 0.2], [0.7, 0.8]]]
    >>> runs = [
    ...     Measurements(f"ewc_seed{seed}", "ewc", np.array(table), curriculum=(0, 1))
    ...     for seed, table in enumerate(tables)
    ... ]
    >>> forgetting = audits.audit_runs(runs).learners[0].measures["forgetting"]
    >>> round(forgetting.mean, 2), forgetting.n
    (0.25, 2)
    """
    if not runs:
        raise InputError("there is no run to audit")
    metrics.check_ce_epsilon(ce_epsilon)
    seeds_of_runs = {run.run: (seeds or {}).get(run.run, run_seed(run.run)) for run in runs}
    named: Mapping[str, Weights] = {weights: weights} if isinstance(weights, str) else weights or _ALL_WEIGHTS
    groups: dict[tuple[str, str], list[Measurements]] = {}
    for run in runs:
        groups.setdefault((run.benchmark, run.learner), []).append(run)
    learners = tuple(
        _with_variants(
            _audit_learner(group, named, renormalise, count_teachers, ce_epsilon), group, runs, seeds_of_runs
        )
        for group in groups.values()
    )
    criteria = _comparable([entry for entry in learners if not math.isnan(entry.measures["A"].mean)])
    places = metrics.score_first_places(criteria) if _can_rank(criteria) else None
    return Audit(
        learners=learners,
        first_places=places.share if places else {},
        first_place_criteria=places.criteria if places else (),
        correlation=_correlation(criteria),
        partial_scores=renormalise
        and any(math.isnan(entry.measures[name].mean) for entry in learners for name in CRITERIA),
        weights={name: metrics.score_weights(vector) for name, vector in named.items()},
        accuracy_differences=accuracy_differences(learners),
        settings={"ce_epsilon": float(ce_epsilon), "count_teachers": count_teachers, "renormalise": renormalise},
    )


def audit_measures(run: Measurements, count_teachers: bool = False, ce_epsilon: float = CE_EPSILON) -> dict[str, float]:
    """Return every registered metric of one run; a metric that cannot be computed is `Missing` with its reason.

    ``count_teachers`` adds the parameters of frozen old networks to the model size; ``ce_epsilon`` is the epsilon of CE.
    """
    if count_teachers and run.cost is not None:
        run = replace(run, cost=replace(run.cost, kept=run.cost.kept + run.cost.teachers))
    try:
        values = compute_metrics(run, ce_epsilon=ce_epsilon)
    except InputError as error:
        raise InputError(f"{run.run}: {error}") from None
    if not run.is_reference:
        return values
    # Audit files list the criteria of a reference last, in the order of CRITERIA.
    return {name: values[name] for name in (*(name for name in values if name not in CRITERIA), *CRITERIA)}


def _audit_learner(
    runs: Sequence[Measurements],
    weights: Mapping[str, Weights],
    renormalise: bool,
    count_teachers: bool,
    ce_epsilon: float,
) -> LearnerAudit:
    first = runs[0]
    for run in runs[1:]:
        if run.curriculum != first.curriculum or run.table.shape != first.table.shape:
            raise InputError(
                f"{run.run}: its steps or curriculum differ from those of {first.run}, so the runs of {run.learner} cannot "
                "be averaged; give them different names"
            )
        if run.measure != first.measure:
            raise InputError(f"{run.run}: holds {run.measure}, {first.run} {first.measure}; audit them separately")
        for name in sorted({*run.conditions, *first.conditions}):
            here, there = run.conditions.get(name), first.conditions.get(name)
            if here != there:
                raise InputError(
                    f"{run.run}: its {name} is {here!r}, that of {first.run} {there!r}; runs under different settings are not "
                    "averaged: audit them separately"
                )
    per_run = _with_common_names([audit_measures(run, count_teachers, ce_epsilon) for run in runs])
    evaluated = WITHIN_TASKS if all(run.evaluations is not None for run in runs) else AT_BOUNDARIES
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
        progress={} if first.is_reference or first.measure != "accuracy" else _progress(runs),
        evaluated=evaluated,
        notes=evaluation_notes(evaluated, first.is_reference or first.measure != "accuracy"),
        measure=first.measure,
        test_examples=first.test_examples if all(run.test_examples == first.test_examples for run in runs) else (),
    )


def _with_common_names(per_run: Sequence[dict[str, float]]) -> list[dict[str, float]]:
    """Return the metrics of each run; one that only some runs have is missing for the others."""
    names = dict.fromkeys(name for values in per_run for name in values)
    absent = Missing("not all runs were evaluated within tasks")
    return [{name: values.get(name, absent) for name in names} for values in per_run]


def _with_variants(
    entry: LearnerAudit,
    group: Sequence[Measurements],
    runs: Sequence[Measurements],
    seeds: Mapping[str, int | None],
) -> LearnerAudit:
    """Add the variants of the metrics of a learner's runs (``group``), and the seeds of these runs."""
    references = [_joint_accuracies(run, runs, seeds) for run in group]
    per_run = _with_common_names(
        [
            compute_metric_variants(run, reference=reference)
            for run, (reference, _) in zip(group, references, strict=True)
        ]
    )
    variants = {
        name: interval([values[name] for values in per_run], bounds=MEASURES[name].bounds) for name in per_run[0]
    }
    notes = {} if math.isnan(variants["intransigence"].mean) else {"intransigence": references[0][1]}
    return replace(
        entry,
        seeds=tuple(seeds[run.run] for run in group),
        variants=variants,
        variant_values={name: tuple(float(values[name]) for values in per_run) for name in per_run[0]},
        notes={**entry.notes, **notes},
    )


def _joint_accuracies(
    run: Measurements, runs: Sequence[Measurements], seeds: Mapping[str, int | None]
) -> tuple[NDArray[np.float64] | Missing, str]:
    """Return the accuracy on each task of a network trained jointly on the tasks so far, and where it is from.

    It comes from cumulative training if there is such a learner, otherwise from joint training on all tasks. The reference run
    has the seed of the run if possible; otherwise several are averaged.
    """
    comparable = [
        other for other in runs if other.benchmark == run.benchmark and other.table.shape[1] == run.table.shape[1]
    ]
    for name in JOINTLY_TRAINED:
        if run.learner == name:
            return Missing(f"it is measured relative to {name}"), ""
        found = [
            other
            for other in comparable
            if other.learner == name
            and (other.is_reference or other.curriculum[: len(run.curriculum)] == run.curriculum)
        ]
        same_seed = [other for other in found if seeds[run.run] is not None and seeds[other.run] == seeds[run.run]]
        chosen = same_seed or found
        if chosen:
            rows = [_accuracies_when_learned(other) for other in chosen]
            what = f"relative to {name}"
            if chosen[0].is_reference:
                what += ", which is trained on all tasks at once (Chaudhry et al.: on the tasks so far)"
            return np.asarray(np.mean(rows, axis=0)), what
    return Missing("needs a run of cumulative or joint on the same benchmark"), ""


def _accuracies_when_learned(run: Measurements) -> NDArray[np.float64]:
    """Return the accuracy on each task after the step that trained it; after the only step for a reference."""
    if run.is_reference:
        accuracies: NDArray[np.float64] = run.table[-1]
        return accuracies
    accuracies = np.full(run.table.shape[1], np.nan)
    for step, task in enumerate(run.curriculum):
        accuracies[task] = run.table[step, task]
    return accuracies


def _progress(runs: Sequence[Measurements]) -> dict[str, tuple[Interval, ...]]:
    """Return average accuracy and forgetting after each step."""
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
    """Return CL_stability. It is one number for all runs, so it has no interval."""
    value = metrics.cl_stability(criteria, vector, renormalise)
    return Interval(value, math.nan, math.nan, len(criteria), "none", metrics.reason(value))


def _comparable(learners: Sequence[LearnerAudit]) -> dict[str, dict[str, float]]:
    """Return the criteria of the learners if all were measured on one benchmark; otherwise they are not comparable."""
    if len({entry.benchmark for entry in learners}) != 1:
        return {}
    return {entry.learner: {name: entry.measures[name].mean for name in CRITERIA} for entry in learners}


def _can_rank(criteria: Mapping[str, Mapping[str, float]]) -> bool:
    known_for_all = [name for name in CRITERIA if not any(math.isnan(values[name]) for values in criteria.values())]
    return len(criteria) > 1 and bool(known_for_all)


def _correlation(criteria: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    if len(criteria) < 3 or not _can_rank(criteria):
        return {}
    result = metrics.score_criteria_correlation(criteria)
    rows = (dict(zip(result.criteria, row, strict=True)) for row in result.matrix.tolist())
    return dict(zip(result.criteria, rows, strict=True))


def run_seed(run: str) -> int | None:
    """Return the seed in the name of a run, such as ``ewc_seed0.csv``, ``ewc/run2.csv`` or ``ewc/seed-1``; None without one.

    The names of folders count if the file is named after its content only, as in ``ewc/seed-1/accuracy.csv``.
    """
    path = Path(run)
    for part in (run, path.stem, *path.parts[-2:-4:-1]):
        match = _SEED.search(part)
        if match:
            return int(match[1] or match[2])
    return None


def accuracy_differences(learners: Sequence[LearnerAudit]) -> tuple[AccuracyDifference, ...]:
    """Return the differences of all pairs of learners on the same benchmark, for every metric that both have.

    A pair that cannot be compared is included with the reason and without numbers.
    """
    pairs = [(first, second) for first, second in combinations(learners, 2) if first.benchmark == second.benchmark]
    return tuple(
        difference
        for name in (*COMPARED_METRICS, *COMPARED_UNBOUNDED_METRICS)
        for difference in _corrected([_difference(name, *pair) for pair in pairs if _both_have(name, *pair)])
    )


def _both_have(name: str, first: LearnerAudit, second: LearnerAudit) -> bool:
    return not any(name not in entry.run_values or math.isnan(entry.measures[name].mean) for entry in (first, second))


def _corrected(differences: Sequence[AccuracyDifference]) -> list[AccuracyDifference]:
    """Return the differences of one metric with corrected p-values.

    A difference that is the same in all runs has no p-value. It counts with 1, so that the size of the family does not depend
    on the results.
    """
    corrected = list(differences)
    family = [index for index, entry in enumerate(differences) if entry.difference.runs > 1]
    if not family:
        return corrected
    p_values = [differences[index].difference.p for index in family]
    for index, p in zip(family, holm([1.0 if math.isnan(p) else p for p in p_values]).tolist(), strict=True):
        is_tested = not math.isnan(differences[index].difference.p)
        corrected[index] = replace(differences[index], p=p if is_tested else math.nan, family=len(family))
    return corrected


def _difference(name: str, first: LearnerAudit, second: LearnerAudit) -> AccuracyDifference:
    common = _obstacle(name, first, second) or _common_runs(first, second)
    if isinstance(common, str):
        difference = RunDifference(math.nan, math.nan, math.nan, math.nan, 0, "none", common)
        return AccuracyDifference(name, first.learner, second.learner, first.benchmark, difference, math.nan, 0, ())
    low, high = METRICS.get(name).bounds if name in METRICS else (-math.inf, math.inf)
    difference = paired_run_difference(
        [first.run_values[name][index] for index, _ in common],
        [second.run_values[name][index] for _, index in common],
        bounds=(low - high, high - low),
    )
    seeds = tuple(seed for index, _ in common if (seed := first.seeds[index]) is not None)
    return AccuracyDifference(name, first.learner, second.learner, first.benchmark, difference, difference.p, 0, seeds)


def _obstacle(name: str, first: LearnerAudit, second: LearnerAudit) -> str:
    """Return why two learners cannot be compared, or an empty text."""
    for entry in (first, second):
        if not entry.complete:
            return f"the runs of {entry.learner} are unfinished"
    if len(first.tasks) != len(second.tasks):
        return f"they have different numbers of tasks ({len(first.tasks)} and {len(second.tasks)})"
    if first.curriculum != second.curriculum and not (first.is_reference or second.is_reference):
        return "their curricula differ"
    if name in DEPENDS_ON_EVALUATIONS and first.evaluated != second.evaluated:
        return f"accuracies were evaluated at different times ({first.evaluated}; {second.evaluated})"
    return ""


def _common_runs(first: LearnerAudit, second: LearnerAudit) -> list[tuple[int, int]] | str:
    """Return the indices of the runs with common seeds, or why there are none."""
    for entry in (first, second):
        known = [seed for seed in entry.seeds if seed is not None]
        if len(set(known)) < len(known):
            return f"{entry.learner} has several runs with the same seed"
    if first.seeds == second.seeds == (None,):
        return [(0, 0)]
    places = {seed: index for index, seed in enumerate(second.seeds) if seed is not None}
    common = [(index, places[seed]) for index, seed in enumerate(first.seeds) if seed in places]
    return common or "they have no common seed"
