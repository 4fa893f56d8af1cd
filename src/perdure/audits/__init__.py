"""A record becomes an audit."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from perdure.audits.clamp import FittedCurves, LatentProperties, fit_runs, latent_properties
from perdure.audits.criteria import audit_runs, measure_run
from perdure.audits.findings import TrustFindings, read_findings
from perdure.audits.provenance import RunProvenance, provenance_of
from perdure.audits.results import FILE, MEASURES, Audit, LearnerAudit, Measure
from perdure.audits.retraining.summaries import CheckpointSummary, ExplainerScores, RetrainingSummary
from perdure.audits.shapc.differences import LearnerDifference, compare
from perdure.audits.shapc.example_views import ViewedSample, viewed_samples
from perdure.audits.shapc.results import ShapcResult
from perdure.base.errors import InputError
from perdure.metrics import CRITERIA, WEIGHTS, Interval
from perdure.record import Measurements, Record, find_records

__all__ = [
    "CRITERIA",
    "FILE",
    "MEASURES",
    "WEIGHTS",
    "Audit",
    "CheckpointSummary",
    "ExplainerScores",
    "FittedCurves",
    "Interval",
    "LatentProperties",
    "LearnerAudit",
    "LearnerDifference",
    "Measure",
    "RetrainingSummary",
    "RunProvenance",
    "ShapcResult",
    "TrustFindings",
    "ViewedSample",
    "across_checkpoints",
    "audit",
    "audit_runs",
    "audit_shapc",
    "compare",
    "fit_runs",
    "latent_properties",
    "measure_bias",
    "measure_run",
    "record_bias",
    "retrain",
    "viewed_samples",
    "with_trust",
]


def audit(
    paths: str | Path | Sequence[str | Path],
    *,
    network: Callable[[], Any] | None = None,
    data: Any = None,
    clamp: bool = False,
    stability: bool | Mapping[str, Any] = False,
    retrain_reference: bool = False,
    begin: Callable[[str], Any] | None = None,
    **options: Any,
) -> Audit:
    """Audit the records at or below some paths; runs of one learner on one benchmark are averaged.

    A run without a finished task, or unfinished beside finished runs of its learner, is left out and named in
    ``left_out``. ``clamp`` also tells the algorithms' doing from the tasks' (seconds; minutes with many tasks).
    What perdure trust has left in the records is part of it. ``stability`` also asks whether the learners keep deciding
    for the same reasons: True, or options of `shapc`. It is asked as well when ``network`` (a function that makes it) and
    ``data`` (inputs and labels of each task) of your own are given. ``begin`` is called with each run and returns its
    progress. Other options are those of `audit_runs`.
    """
    several = [paths] if isinstance(paths, str | Path) else list(paths)
    records = [Record.open(path) for path in find_records(several)]
    runs, left_out = _usable([record.measurements for record in records])
    if not runs:
        raise InputError(f"{next(iter(left_out))}: no task is finished yet, so there is nothing to audit")
    whole = replace(
        audit_runs(runs, **options),
        left_out=left_out,
        provenance=tuple(provenance_of(record) for record in records if str(record.path) not in left_out),
        latent=fit_runs(runs) if clamp else (),
    )
    audit = with_trust(whole)
    if not stability and network is None and data is None:
        return audit
    from perdure.audits.shapc.records import audit_stability, with_stability  # noqa: PLC0415  (it needs torch)

    asked: dict[str, Any] = dict(stability) if isinstance(stability, Mapping) else {}
    asked |= {name: value for name, value in (("network", network), ("data", data)) if value is not None}
    return with_stability(audit, audit_stability([run.run for run in runs], asked, retrain_reference, begin))


def with_trust(audit: Audit) -> Audit:
    """Return an audit with what perdure trust has left in its records; of a record that is not here, what it knew is kept."""
    seeds = {run.run: run.seed for run in audit.provenance}
    known = {findings.run: findings for findings in audit.trust}
    found = []
    for entry in audit.learners:
        for run in entry.runs:
            if Path(run).is_dir():
                found.append(read_findings(run, entry.learner, entry.benchmark, seeds.get(run)))
            elif run in known:
                found.append(known[run])
    return replace(audit, trust=tuple(findings for findings in found if not findings.empty))


def audit_shapc(record: str | Path, **options: Any) -> ShapcResult:
    """Ask whether a run keeps deciding for the same reasons; see `perdure.audits.shapc.runner.shapc` for the options."""
    from perdure.audits.shapc.runner import shapc as audit_one  # noqa: PLC0415  (it needs torch)

    return audit_one(record, **options)


def measure_bias(network: Any, x: Any, target: Any, **options: Any) -> Any:
    """Ask which explainer can be believed on a network; see `perdure.audits.bias.measure.measure_bias` for the options."""
    from perdure.audits.bias.measure import measure_bias as measure  # noqa: PLC0415  (it needs torch)

    return measure(network, x, target, **options)


def record_bias(record: str | Path, **options: Any) -> Any:
    """Ask the same of a record's network; see `perdure.audits.bias.records.record_bias` for the options."""
    from perdure.audits.bias.records import record_bias as measure  # noqa: PLC0415  (it needs torch)

    return measure(record, **options)


def retrain(data: Any, **options: Any) -> Any:
    """Ask whether explanations survive retraining; see `perdure.audits.retraining.retrain.retrain` for the options."""
    from perdure.audits.retraining.retrain import retrain as measure  # noqa: PLC0415  (it needs torch)

    return measure(data, **options)


def across_checkpoints(record: str | Path, **options: Any) -> Any:
    """Ask the same across a run's checkpoints; see `perdure.audits.retraining.checkpoints.across_checkpoints`."""
    from perdure.audits.retraining.checkpoints import across_checkpoints as measure  # noqa: PLC0415  (it needs torch)

    return measure(record, **options)


def _usable(runs: Sequence[Measurements]) -> tuple[list[Measurements], dict[str, str]]:
    """Return the runs that can be averaged, and why others are left out: unfinished ones beside finished of their learner."""
    finished = {(run.benchmark, run.learner) for run in runs if run.complete}
    used, left_out = [], {}
    for run in runs:
        if len(run.table) == 0:
            left_out[run.run] = "no task is finished yet"
        elif not run.complete and (run.benchmark, run.learner) in finished:
            left_out[run.run] = "unfinished, while other runs of the learner are finished"
        else:
            used.append(run)
    return used, left_out
