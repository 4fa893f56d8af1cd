"""SHAPC of several records: each run audited alike, its numbers joined with the others of its learner."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from perdure.audits.bias.records import one_explainer
from perdure.audits.results import MEASURES, Audit, LearnerAudit
from perdure.audits.shapc.differences import compare
from perdure.audits.shapc.results import ShapcResult
from perdure.audits.shapc.runner import shapc
from perdure.audits.shapc.settings import LEAST_BIASED
from perdure.metrics import Interval, Missing, interval
from perdure.record import Record

STABILITY = ("shapc_mean", "shapc_var", "shapc_calibrated")
Begin = Callable[[str], Any]
"""Called with a run's path before it is audited; what it returns is the run's progress."""


def audit_stability(
    runs: Sequence[str], options: Mapping[str, Any], retrain_reference: bool = False, begin: Begin | None = None
) -> tuple[ShapcResult, ...]:
    """Audit the stability of each run that is a sequence; ``options`` are those of `shapc`.

    The least biased explainer must be the same for all. With a retraining reference, runs of one learner serve each other
    as another seed; a single one is trained again.
    """
    manifests = {run: Record.open(run).manifest for run in runs}
    sequences = [run for run in runs if not manifests[run].trains_all]
    if options.get("method") == LEAST_BIASED and sequences:
        one_explainer(sequences)
    results = []
    for run in sequences:
        alike = [
            other
            for other in sequences
            if (manifests[other].benchmark, manifests[other].learner)
            == (manifests[run].benchmark, manifests[run].learner)
        ]
        reference: bool | str = retrain_reference
        if retrain_reference and len(alike) > 1:
            reference = alike[(alike.index(run) + 1) % len(alike)]
        progress = None if begin is None else begin(run)
        results.append(shapc(Path(run), retrain_reference=reference, progress=progress, **options))
    return tuple(results)


def with_stability(audit: Audit, results: Sequence[ShapcResult]) -> Audit:
    """Return an audit that also answers whether its learners keep deciding for the same reasons."""
    learners = tuple(_measured(entry, [one for one in results if one.run in entry.runs]) for entry in audit.learners)
    return replace(audit, learners=learners, stability=tuple(results), differences=compare(results))


def _measured(entry: LearnerAudit, results: Sequence[ShapcResult]) -> LearnerAudit:
    if not results:
        missing = Missing("it learns all tasks at once: there is no later network to compare with")
        found = {name: interval([missing]) for name in STABILITY}
    else:
        found = {
            "shapc_mean": _over_runs("shapc_mean", [one.mean for one in results]),
            "shapc_var": _over_runs("shapc_var", [one.var for one in results]),
            "shapc_calibrated": _over_runs("shapc_calibrated", [one.calibrated for one in results]),
        }
    single = {
        "shapc_mean": tuple(one.mean.mean for one in results),
        "shapc_var": tuple(one.var.mean for one in results),
        "shapc_calibrated": tuple(one.calibrated.mean for one in results),
    }
    values = {**entry.run_values, **single} if results else entry.run_values
    return replace(entry, measures={**entry.measures, **found}, run_values=values)


def _over_runs(name: str, values: Sequence[Interval]) -> Interval:
    """Return the interval over runs, or that over samples when there is one run."""
    if len(values) == 1:
        return values[0]
    means = [Missing(value.reason) if value.reason and value.mean != value.mean else value.mean for value in values]
    return interval(means, bounds=MEASURES[name].bounds)
