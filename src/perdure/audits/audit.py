"""Audit the records of runs: performance, and optionally reasons (SHAPC) and causes (CLAMP)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from perdure import metrics
from perdure.audits.accuracy_differences import (
    AT_BOUNDARIES,
    WITHIN_TASKS,
    accuracy_differences,
    evaluation_notes,
    run_seed,
)
from perdure.audits.clamp import LatentProperties, fit_clamp
from perdure.audits.imported import ImportOptions, imported_provenance, read_imported_runs
from perdure.audits.least_biased import common_least_biased_explainer
from perdure.audits.lifelong import lifelong_metrics
from perdure.audits.results import MEASURES, Audit, LearnerAudit, audit_provenance, read_findings
from perdure.audits.shapc.results import ShapcResult, shapc_result_differences
from perdure.audits.shapc.values import LEAST_BIASED, ShapcSettings
from perdure.base.errors import InputError
from perdure.importers.source import digest_of_files
from perdure.metrics import (
    CE_EPSILON,
    CRITERIA,
    Interval,
    Missing,
    compute_metric_variants,
    compute_metrics,
    interval,
)
from perdure.record import Measurements, Record, find_records
from perdure.record.reader import record_digest, split_record_paths

if TYPE_CHECKING:
    from torch import nn

    from perdure.audits.shapc.runner import ShapcProgress

StartProgress = Callable[[str], "ShapcProgress"]
"""Called with the path of each run before it is explained; returns the run's progress callback."""
Weights = str | Mapping[str, float]
JOINTLY_TRAINED = ("cumulative", "joint")
"""Learners that are trained on all tasks so far, or on all tasks: the references of intransigence, best first."""
_ALL_WEIGHTS: Mapping[str, Weights] = {name: name for name in ("W1", "W2", "W3")}


def audit(
    paths: str | Path | Sequence[str | Path],
    *,
    network: Callable[[], nn.Module] | None = None,
    data: Any = None,
    shapc: bool | ShapcSettings = False,
    clamp: bool = False,
    examples: int | None = None,
    precision: float | None = None,
    keep_maps: bool = False,
    retrain_reference: bool = False,
    weights: str | Mapping[str, Weights] | None = None,
    renormalise: bool = False,
    count_teachers: bool = False,
    ce_epsilon: float = CE_EPSILON,
    data_dir: Path | None = None,
    device: str = "cpu",
    importing: ImportOptions | None = None,
    progress: StartProgress | None = None,
) -> Audit:
    """Audit the records at or below some paths. Runs of one learner on one benchmark are averaged.

    Parameters
    ----------
    paths : records, folders that contain records, or results of other frameworks (see `perdure.importers.read`)
    network, data : a function that returns the network, and (inputs, labels) of each task; needed for SHAPC if the records do
        not name their own. Passing them computes SHAPC.
    shapc : compare the reasons of the checkpoints, with default settings or with `ShapcSettings`
    clamp : fit CLAMP to the accuracy curves (seconds; minutes with many tasks)
    examples, precision, keep_maps : settings of SHAPC, see `audit_shapc`
    retrain_reference : also compare runs of different seeds; a single run is trained again on its first task
    weights, renormalise, count_teachers, ce_epsilon : settings of the CL_score, see `audit_runs`
    data_dir, device : where data files are, and where networks run
    importing : how results of other frameworks are read
    progress : called with each run that is explained; returns its progress callback

    Returns
    -------
    Audit
        A run without a finished task, or an unfinished run of a learner with finished ones, is listed in ``left_out``. Results
        of `perdure trust` that are stored in the records are included.
    """
    path_list = [paths] if isinstance(paths, str | Path) else list(paths)
    record_paths, other_paths = split_record_paths(path_list)
    imported = read_imported_runs(other_paths, importing or ImportOptions()) if other_paths else ()
    found = {path: record_digest(path) for path in find_records(record_paths)} if record_paths else {}
    copies = _copies(found)
    records = [Record.open(path) for path in found if str(path) not in copies]
    runs, left_out = _usable([record.measurements for record in records] + [run.measurements for run in imported])
    left_out |= copies
    seeds = _known_seeds(records) | {run.name: run.seed for run in imported if run.seed is not None}
    digests = {run.name: digest_of_files(run.files) for run in imported}
    if not runs:
        raise InputError(f"{next(iter(left_out))}: no task is finished yet, so there is nothing to audit")
    result = add_trust_to_audit(
        replace(
            audit_runs(runs, weights, renormalise, count_teachers, ce_epsilon=ce_epsilon, seeds=seeds),
            left_out=left_out,
            provenance=(
                *(audit_provenance(record) for record in records if str(record.path) not in left_out),
                *(imported_provenance(run) for run in imported),
            ),
            clamp=_fit_clamp(runs) if clamp else (),
            lifelong=lifelong_metrics(imported) if imported else (),
            sources={str(path): digest for path, digest in found.items()} | digests,
        )
    )
    if not shapc and network is None and data is None:
        return result
    from perdure.audits.shapc.runner import audit_shapc  # noqa: PLC0415  (it needs torch)

    if imported:
        raise InputError(
            f"{imported[0].name}: these results hold no networks, so SHAPC cannot be computed. Leave out --shapc."
        )
    sequences = [run for run in runs if not run.is_reference]
    settings, evidence = _explainer_settings(shapc, [run.run for run in sequences])
    results = []
    for run in sequences:
        reference = retrain_reference and _other_seed(run, sequences)
        shapc_result = audit_shapc(
            run.run,
            settings=settings,
            network=network,
            data=data,
            examples=examples,
            precision=precision,
            keep_maps=keep_maps,
            retrain_reference=reference,
            data_dir=data_dir,
            device=device,
            progress=None if progress is None else progress(run.run),
        )
        results.append(replace(shapc_result, settings={**shapc_result.settings, **evidence}))
    return add_shapc_to_audit(result, results)


def _fit_clamp(runs: Sequence[Measurements]) -> tuple[LatentProperties, ...]:
    other = next((run for run in runs if run.measure != "accuracy"), None)
    if other is not None:
        raise InputError(f"{other.run}: CLAMP is fitted to accuracies, got {other.measure} values. Leave out --clamp.")
    return fit_clamp(runs)


def _copies(found: Mapping[Path, str]) -> dict[str, str]:
    """Return the records with the same files as another one, such as a backup; they are not further seeds."""
    first: dict[str, Path] = {}
    return {
        str(path): f"a copy of {first[digest]}"
        for path, digest in found.items()
        if first.setdefault(digest, path) != path
    }


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


def add_trust_to_audit(audit: Audit) -> Audit:
    """Return an audit with the findings of `perdure trust` in its records; findings of deleted records are kept."""
    seeds = {run.run: run.seed for run in audit.provenance}
    known = {findings.run: findings for findings in audit.trust}
    trust = []
    for entry in audit.learners:
        for run in entry.runs:
            if Path(run).is_dir():
                trust.append(read_findings(run, entry.learner, entry.benchmark, seeds.get(run)))
            elif run in known:
                trust.append(known[run])
    return replace(audit, trust=tuple(findings for findings in trust if not findings.empty))


def add_shapc_to_audit(audit: Audit, results: Sequence[ShapcResult]) -> Audit:
    """Return an audit with SHAPC results and the differences between its learners."""
    learners = tuple(
        _with_shapc_measures(entry, [result for result in results if result.run in entry.runs])
        for entry in audit.learners
    )
    return replace(audit, learners=learners, shapc=tuple(results), differences=shapc_result_differences(results))


def _usable(runs: Sequence[Measurements]) -> tuple[list[Measurements], dict[str, str]]:
    """Return the runs that can be averaged, and why the others are left out."""
    finished = {(run.benchmark, run.learner) for run in runs if run.complete}
    usable, left_out = [], {}
    for run in runs:
        if len(run.table) == 0:
            left_out[run.run] = "no task is finished yet"
        elif not run.complete and (run.benchmark, run.learner) in finished:
            left_out[run.run] = "unfinished, while other runs of the learner are finished"
        else:
            usable.append(run)
    return usable, left_out


def _explainer_settings(shapc: bool | ShapcSettings, records: Sequence[str]) -> tuple[ShapcSettings, dict[str, str]]:
    """Return the settings with the explainer's name, and the evidence if it was chosen by attribution bias."""
    settings = shapc if isinstance(shapc, ShapcSettings) else ShapcSettings()
    if settings.method != LEAST_BIASED or not records:
        return settings, {}
    verdict = common_least_biased_explainer(records)
    return replace(settings, method=verdict.least), {"chosen": verdict.reading}


def _other_seed(run: Measurements, runs: Sequence[Measurements]) -> bool | str:
    """Return the next run of the same learner and benchmark, or True if there is none."""
    same = [other.run for other in runs if (other.benchmark, other.learner) == (run.benchmark, run.learner)]
    return same[(same.index(run.run) + 1) % len(same)] if len(same) > 1 else True


def _with_shapc_measures(entry: LearnerAudit, results: Sequence[ShapcResult]) -> LearnerAudit:
    values = {
        "shapc_mean": [result.mean for result in results],
        "shapc_var": [result.var for result in results],
        "shapc_calibrated": [result.calibrated for result in results],
    }
    if not results:
        missing = interval([Missing("it learns all tasks at once: there is no later network to compare with")])
        return replace(entry, measures={**entry.measures, **dict.fromkeys(values, missing)})
    measures = {name: _over_runs(name, intervals) for name, intervals in values.items()}
    run_values = {name: tuple(value.mean for value in intervals) for name, intervals in values.items()}
    return replace(entry, measures={**entry.measures, **measures}, run_values={**entry.run_values, **run_values})


def _over_runs(name: str, values: Sequence[Interval]) -> Interval:
    """Return the interval over runs; for a single run, its interval over examples."""
    if len(values) == 1:
        return values[0]
    means = [Missing(value.reason) if value.reason and value.mean != value.mean else value.mean for value in values]
    return interval(means, bounds=MEASURES[name].bounds)


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
    )


def _with_common_names(per_run: Sequence[dict[str, float]]) -> list[dict[str, float]]:
    """Return the metrics of each run; one that only some runs have is missing for the others."""
    names = dict.fromkeys(name for values in per_run for name in values)
    absent = Missing("not all runs were evaluated within tasks")
    return [{name: values.get(name, absent) for name in names} for values in per_run]


def _known_seeds(records: Sequence[Record]) -> dict[str, int]:
    return {str(record.path): record.manifest.seed for record in records if record.manifest.seed is not None}


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
            return Missing(f"{name} is the reference"), ""
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
