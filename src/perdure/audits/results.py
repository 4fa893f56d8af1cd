"""The result of an audit: numbers with intervals, reasons for missing numbers, findings about explanations, provenance."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from perdure.audits import serialization
from perdure.audits.bias.results import FILE as BIAS
from perdure.audits.bias.results import SCHEMA as BIAS_SCHEMA
from perdure.audits.bias.results import BiasResult
from perdure.audits.clamp import LatentProperties
from perdure.audits.fingerprint import audit_fingerprint
from perdure.audits.lifelong import LifelongMetrics
from perdure.audits.retraining.summaries import CheckpointSummary, RetrainingSummary
from perdure.audits.serialization import OneBased
from perdure.audits.shapc.results import LearnerDifference, ShapcResult
from perdure.audits.upgrade import upgraded_audit, upgraded_bias, upgraded_checkpoints, upgraded_retraining
from perdure.base.errors import InputError, error_message
from perdure.base.files import check_digest, lock_folder, read_versioned_file, write_json
from perdure.metrics import CE_EPSILON, METRICS, Interval, RunDifference
from perdure.policies.reading import PolicySource, as_policy

TRUST_SCHEMA = 2
RETRAINING = Path("trust") / "retraining.json"
CHECKPOINTS = Path("trust") / "checkpoints.json"
Part = TypeVar("Part")
Upgrade = Callable[[Mapping[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class TrustFindings:
    """What is known about the explanations of one run; None for a part that was not measured."""

    run: str
    learner: str
    benchmark: str
    seed: int | None
    bias: BiasResult | None = None
    retraining: RetrainingSummary | None = None
    checkpoints: CheckpointSummary | None = None

    @property
    def empty(self) -> bool:
        """Whether nothing was measured."""
        return self.bias is None and self.retraining is None and self.checkpoints is None


def save_findings(
    record: Path, retraining: RetrainingSummary | None = None, checkpoints: CheckpointSummary | None = None
) -> None:
    """Store findings in a record; parts that are None stay as they are there."""
    for file, summary in ((RETRAINING, retraining), (CHECKPOINTS, checkpoints)):
        if summary is not None:
            (record / file).parent.mkdir(exist_ok=True)
            with lock_folder((record / file).parent, wait=True):
                write_json(record / file, {"schema": TRUST_SCHEMA, **serialization.to_json(summary)}, digest=True)


def read_findings(run: str, learner: str, benchmark: str, seed: int | None) -> TrustFindings:
    """Return the findings stored in a run's folder."""
    folder = Path(run)
    return TrustFindings(
        run,
        learner,
        benchmark,
        seed,
        bias=_read_finding(folder / BIAS, "bias result", BIAS_SCHEMA, BiasResult, upgraded_bias),
        retraining=_read_finding(
            folder / RETRAINING, "retraining summary", TRUST_SCHEMA, RetrainingSummary, upgraded_retraining
        ),
        checkpoints=_read_finding(
            folder / CHECKPOINTS, "checkpoint summary", TRUST_SCHEMA, CheckpointSummary, upgraded_checkpoints
        ),
    )


def _read_finding(file: Path, name: str, schema: int, kind: type[Part], upgrade: Upgrade) -> Part | None:
    """Read a part of the findings; a file of an earlier version is upgraded."""
    check_digest(file)
    if not file.exists():
        return None
    value = read_versioned_file(file, name, schema)
    try:
        return serialization.from_json(value if value["schema"] == schema else upgrade(value), kind)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise InputError(
            f"{file}: a field is missing or malformed ({error_message(error)}); run perdure trust again"
        ) from None


if TYPE_CHECKING:
    import pandas as pd

    from perdure.audits.summary import AuditSummary, LearnerSummary

SCHEMA = 5
FILE = "audit.json"
AT_BOUNDARIES = "task boundaries"
WITHIN_TASKS = "within tasks"
DEPENDS_ON_EVALUATIONS = ("min_accuracy", "worst_case_accuracy")
"""Metrics that are upper bounds if accuracies were evaluated at task boundaries only."""
BOUNDARIES_NOTE = (
    "upper bound; accuracies were evaluated at task boundaries only, so drops within tasks are not seen (to see them: perdure "
    "run --evaluate-every N, or Recorder.after_task(evaluations=...))"
)
ANYTIME_NOTE = "accuracies were evaluated at task boundaries only, where it equals incremental accuracy"
LEVEL = 0.05
PYTHON_OBJECT = "an object in Python"
"""In place of a network or data that were passed as an object, so no command line can name them."""


@dataclass(frozen=True)
class Measure:
    """How to read a number: its printed name, its direction, a one-line description and its possible range."""

    label: str
    higher_is_better: bool
    meaning: str
    bounds: tuple[float, float] = (0.0, 1.0)


_SHAPC_MEASURES = {
    "shapc_mean": Measure("SHAPC-Mean", True, "consistency of the reasons for decisions, sampling noise included"),
    "shapc_var": Measure("SHAPC-Var", False, "spread of SHAPC over examples, divided by its mean", (0, math.inf)),
    "shapc_calibrated": Measure(
        "calibrated SHAPC",
        True,
        "consistency of the reasons from 0, as similar as an untrained network, to 1, identical reasons",
        (-math.inf, math.inf),
    ),
}


class _Measures(Mapping[str, Measure]):
    """The registered metrics in order, then the SHAPC scores. Read from the registry when used, so plug-ins load late."""

    def __getitem__(self, name: str) -> Measure:
        if name in _SHAPC_MEASURES:
            return _SHAPC_MEASURES[name]
        if name not in METRICS:
            raise KeyError(name)
        metric = METRICS.get(name)
        return Measure(metric.label, metric.higher_is_better, metric.meaning, metric.bounds)

    def __iter__(self) -> Iterator[str]:
        return iter((*METRICS.entries(), *_SHAPC_MEASURES))

    def __len__(self) -> int:
        return len(METRICS.entries()) + len(_SHAPC_MEASURES)


MEASURES: Mapping[str, Measure] = _Measures()


@dataclass(frozen=True)
class LearnerAudit:
    """One learner on one benchmark: each metric over its runs, its scores, and the mean accuracy table."""

    learner: str
    benchmark: str
    runs: tuple[str, ...]
    measures: dict[str, Interval]
    scores: dict[str, Interval]
    cl_stability: dict[str, Interval]
    tasks: tuple[str, ...]
    curriculum: tuple[OneBased, ...]
    table: NDArray[np.float64]
    initial: NDArray[np.float64] | None
    complete: bool = True
    is_reference: bool = False
    """Whether all tasks were learned at once: a reference, not a sequence."""
    run_values: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """Each metric of each run, in the order of ``runs``."""
    progress: dict[str, tuple[Interval, ...]] = field(default_factory=dict)
    """Average accuracy and forgetting after each step, over the tasks trained by then."""
    seeds: tuple[int | None, ...] = ()
    """The seed of each run, in the order of ``runs``; None if it is unknown."""
    evaluated: str = AT_BOUNDARIES
    """When accuracies were evaluated: "task boundaries" only, or also "within tasks"."""
    variants: dict[str, Interval] = field(default_factory=dict)
    """Other frameworks' variants of the metrics."""
    variant_values: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """Each variant of each run, in the order of ``runs``."""
    notes: dict[str, str] = field(default_factory=dict)
    """What must be known to read a metric or a variant, by its name."""
    measure: str = "accuracy"
    """What the values of ``table`` are: accuracy, loss or performance."""
    test_examples: tuple[int, ...] = ()
    """Number of test examples of each task; empty if it is unknown or differs between the runs."""

    @property
    def title(self) -> str:
        """The learner's name, marked if its runs are unfinished."""
        return self.learner if self.complete else f"{self.learner} (unfinished)"

    def reasons(self, variants: bool = False) -> dict[str, str]:
        """Return the reason for each missing number; ``variants`` includes those of the variants."""
        named = {**self.measures, **{f"CL_score {name}": value for name, value in self.scores.items()}}
        if variants:
            named |= self.variants
        return {name: value.reason or "" for name, value in named.items() if math.isnan(value.mean)}


@dataclass(frozen=True)
class AccuracyDifference:
    """A metric of one learner minus that of another, over the runs whose seeds both have.

    ``p`` is corrected with Holm's method over the ``family``: all pairs of learners of the audit that have at least two
    common runs, within the metric. It is NaN without an interval; ``difference.reason`` then says why.
    """

    metric: str
    first: str
    second: str
    benchmark: str
    difference: RunDifference
    p: float
    family: int
    """Number of pairs over which ``p`` is corrected."""
    seeds: tuple[int, ...]
    """The common seeds; empty if they are unknown."""

    @property
    def label(self) -> str:
        """The printed name of the metric."""
        return METRICS.get(self.metric).label if self.metric in METRICS else self.metric

    @property
    def tested(self) -> bool:
        """Whether there is an interval and a p-value."""
        return not math.isnan(self.p)

    def __str__(self) -> str:
        value = self.difference
        pair = f"{self.label} of {self.first} and {self.second}"
        if math.isnan(value.mean):
            return f"{pair} cannot be compared: {value.reason}"
        if not self.tested:
            return f"{pair}: difference {value.mean:+.3f} without an interval ({value.reason})"
        pairs = f"{self.family} pair{'s' if self.family != 1 else ''}"
        numbers = (
            f"{value.mean:+.3f} [{value.low:+.3f}, {value.high:+.3f}], {format_p(self.p)} (Holm, {pairs}), "
            f"{value.runs} seeds"
        )
        if self.p < LEVEL:
            word = "higher" if value.mean > 0 else "lower"
            return f"{self.label} of {self.first} is {word} than that of {self.second}: {numbers}"
        return f"{pair} does not differ significantly: {numbers}"


def format_p(p: float) -> str:
    """Return a p-value as text."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


@dataclass(frozen=True)
class RunProvenance:
    """Everything needed to judge and repeat one run. ``command`` is None for a run recorded by a user's own loop."""

    run: str
    learner: str
    benchmark: str
    seed: int | None
    command: str | None
    settings: Mapping[str, Any]
    network: Mapping[str, Any]
    data: Mapping[str, Any]
    software: Mapping[str, str]
    hardware: Mapping[str, Any]
    checkpoints: Mapping[str, str]
    """The SHA-256 of the checkpoint after each step; steps are 1-based."""


@dataclass(frozen=True)
class Origin:
    """How an audit was made. ``options`` holds every option that influences the result, under its name in Python."""

    command: str
    """``audit`` or ``score``."""
    options: dict[str, Any] = field(default_factory=dict)
    imported: tuple[str, ...] = ()
    """Paths of results of other frameworks."""
    files: dict[str, str] = field(default_factory=dict)
    """SHA-256 of the files of imported results and of records that no command of perdure can write again."""
    software: dict[str, str] = field(default_factory=dict)
    """Versions of Python and of the packages that affect results."""
    threads: int | None = None
    """Threads of torch, if the audit used it."""
    named_networks: tuple[str, ...] = ()
    """Runs of the user's own training loops whose records name their network."""


@dataclass(frozen=True)
class Audit:
    """The results of all learners of some records.

    ``first_places`` is the share of all weightings under which each learner has the highest CL_score. ``correlation`` is the
    rank correlation of the criteria over learners (three or more). ``partial_scores`` states whether scores cover only the
    known criteria.

    Examples
    --------
    >>> import perdure
    >>> audit = perdure.Audit.load("demo/audit.json")  # of ``make demo``
    >>> naive = next(entry for entry in audit.learners if entry.learner == "naive")
    >>> naive.measures["forgetting"].mean > 0.3
    True
    >>> naive.measures["forgetting"].reason  # one run per learner
    'one run has no interval'
    >>> "accuracy.csv" in [path.name for path in audit.tables("tables")]
    True
    >>> audit.report("report.html").name
    'report.html'
    """

    learners: tuple[LearnerAudit, ...]
    first_places: dict[str, float]
    first_place_criteria: tuple[str, ...]
    correlation: dict[str, dict[str, float]]
    partial_scores: bool = False
    left_out: dict[str, str] = field(default_factory=dict)
    """Records that are not part of the audit, and why."""
    weights: dict[str, dict[str, float]] = field(default_factory=dict)
    """The weight vectors of the scores."""
    provenance: tuple[RunProvenance, ...] = ()
    """Settings, versions and data of each run; empty for numbers without a record."""
    clamp: tuple[LatentProperties, ...] = ()
    """The CLAMP fit of each benchmark, if requested."""
    shapc: tuple[ShapcResult, ...] = ()
    """SHAPC of each run, if requested."""
    differences: tuple[LearnerDifference, ...] = ()
    """Differences of SHAPC-Mean and of the calibrated score between pairs of learners."""
    accuracy_differences: tuple[AccuracyDifference, ...] = ()
    """Differences of accuracy metrics between pairs of learners, paired over common seeds."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings of the metrics: ``ce_epsilon``, ``count_teachers`` and ``renormalise``."""
    trust: tuple[TrustFindings, ...] = ()
    """Results of `perdure trust` for each run that has any."""
    lifelong: tuple[LifelongMetrics, ...] = ()
    """Lifelong-learning metrics of runs that were logged with l2logger."""
    sources: dict[str, str] = field(default_factory=dict)
    """All records that were found, with the SHA-256 of their measurements."""
    origin: Origin | None = None
    """The command and its options; None for an audit of an earlier version, or of numbers in Python."""

    def summary(self, policy: PolicySource | None = None) -> AuditSummary:
        """Return the answer of this audit: a sentence, the learners in ranked order, and a verdict on each question.

        ``policy``: a policy file, a `Policy` or a mapping with its keys, whose thresholds and ranking replace the defaults.
        """
        from perdure.audits.summary import summarize  # noqa: PLC0415  (the summary depends on results)

        return summarize(self, None if policy is None else as_policy(policy).verdicts)

    @property
    def verdicts(self) -> tuple[LearnerSummary, ...]:
        """The learners in ranked order, each with a verdict on every question, at the default thresholds."""
        return self.summary().learners

    def __str__(self) -> str:
        from perdure.audits.summary.text import summary_text  # noqa: PLC0415

        left_out = [f"Not included: {run}: {why}" for run, why in self.left_out.items()]
        return "\n".join([summary_text(self.summary()), *left_out])

    def details(self) -> str:
        """Return every number of every learner with its interval, the reasons of missing ones, and the differences."""
        lines = []
        for entry in self.learners:
            lines.append(f"{entry.title} on {entry.benchmark or 'given matrices'}, {len(entry.runs)} run(s)")
            lines += [f"  {self.label(name):22} {value}" for name, value in entry.measures.items()]
            lines += [f"  {'CL_score ' + name:22} {value}" for name, value in entry.scores.items()]
            lines += [f"  {name} is missing: {why}" for name, why in entry.reasons().items()]
        lines += [f"not included: {run}: {why}" for run, why in self.left_out.items()]
        lines += self.remarks()
        lines += [str(entry) for entry in self.accuracy_differences if entry.metric == "average_accuracy"]
        lines += [str(difference) for difference in self.differences]
        return "\n".join(lines)

    def label(self, name: str) -> str:
        """Return the printed name of a metric, marked if all values in this audit are upper bounds."""
        holders = [entry for entry in self.learners if name in entry.measures and not _is_missing(entry, name)]
        bounds = [entry for entry in holders if entry.evaluated == AT_BOUNDARIES]
        marked = name in DEPENDS_ON_EVALUATIONS and bounds and len(bounds) == len(holders)
        return f"{_label(name)} upper bound" if marked else _label(name)

    def remarks(self, variants: bool = False) -> list[str]:
        """Return what must be known to read the numbers: notes on metrics, and settings that are not the default."""
        remarks: dict[str, dict[str, list[str]]] = {}
        for entry in self.learners:
            for name, note in entry.notes.items():
                if name in entry.measures or variants:
                    remarks.setdefault(note, {}).setdefault(entry.learner, []).append(_label(name))
        lines = []
        for note, holders in remarks.items():
            labels = ", ".join(dict.fromkeys(label for names in holders.values() for label in names))
            lines.append(f"{labels} ({_join_learners(holders, len(self.learners))}): {note}")
        epsilon = self.settings.get("ce_epsilon", CE_EPSILON)
        if epsilon != CE_EPSILON:
            lines.append(f"CE, and CL_score with it, for epsilon = {epsilon:g} instead of {CE_EPSILON:g}")
        if self.settings.get("count_teachers"):
            lines.append("MS counts frozen old networks (teachers)")
        return lines

    def missing(self, variants: bool = False) -> dict[str, dict[str, list[str]]]:
        """Return for each reason the learners and the labels of their missing metrics."""
        reasons: dict[str, dict[str, list[str]]] = {}
        for entry in self.learners:
            for name, why in entry.reasons(variants).items():
                reasons.setdefault(why, {}).setdefault(entry.learner, []).append(_label(name))
            if len(entry.runs) == 1:
                unknown = [f"CL_stability {name}" for name in entry.cl_stability]
                reasons.setdefault("stability needs at least two runs", {})[entry.learner] = unknown
        return reasons

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the results and data fingerprints: equal audits have equal fingerprints.

        Paths, hardware, versions and the order of runs do not count; numbers count with nine significant digits.
        """
        return audit_fingerprint(self)

    def to_json(self, policy: PolicySource | None = None) -> dict[str, Any]:
        """Return plain values for JSON: NaN becomes null, tasks and steps are 1-based.

        ``summary`` holds the verdicts, with the thresholds of ``policy`` if one is given; reading the file ignores it.
        """
        return {"schema": SCHEMA, "summary": self.summary(policy).to_json(), **serialization.to_json(self)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Audit:
        """Return the audit that `to_json` wrote, in this schema or an older one."""
        audit = upgraded_audit(value)
        learners = [_with_evaluation_times(learner) for learner in audit["learners"]]
        return serialization.from_json({**audit, "learners": learners}, cls)

    def save(self, path: str | Path) -> None:
        """Write the audit as JSON."""
        write_json(Path(path), self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> Audit:
        """Read an audit; a newer schema or another kind of file raises `InputError`."""
        path = Path(path)
        value = read_versioned_file(path, "audit", SCHEMA)
        try:
            return cls.from_json(value)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise InputError(f"{path}: a field is missing or malformed ({error_message(error)})") from None

    def to_pandas(self) -> pd.DataFrame:
        """Return the numbers as a DataFrame: one row per learner and number, with mean, interval, runs and reason.

        Needs pandas (``pip install "perdure[pandas]"``). ``exporters.tidy_table`` describes the columns.
        """
        from perdure.exporters import optional_package  # noqa: PLC0415  (exporters depend on audits)
        from perdure.exporters.tidy_table import TIDY_COLUMNS, tidy_rows  # noqa: PLC0415

        with optional_package("pandas", "pandas"):
            import pandas as pd  # noqa: PLC0415
        return pd.DataFrame(tidy_rows(self), columns=list(TIDY_COLUMNS))

    def export(self, to: str, out: str | Path) -> list[str]:
        """Write this audit in another tool's format (csv, latex, mlflow, ...); return what was written."""
        from perdure.exporters import export  # noqa: PLC0415

        return export(self, to, out)

    def _repr_html_(self) -> str:
        """Return the ranked table that notebooks show."""
        from perdure.exporters.notebook import audit_html  # noqa: PLC0415

        return audit_html(self)

    def report(
        self, path: str | Path, *, policy: PolicySource | None = None, baseline: str | Path | None = None
    ) -> Path:
        """Write the report of this audit as an HTML page and return its path.

        ``policy``: thresholds and ranking of the verdicts; its rules, if it has any, are checked for each learner.
        ``baseline``: a record or a folder with the seeds of one learner. The rules compare with it; without rules, the
        networks of each learner are compared with it. The release decision is then part of the table.
        """
        from perdure.comparisons.release import release_decisions  # noqa: PLC0415  (these depend on audits)
        from perdure.report import write_page  # noqa: PLC0415

        read = None if policy is None else as_policy(policy)
        return write_page(self, Path(path), policy=read, decisions=release_decisions(self, read, baseline))

    def reproduction_script(self) -> str:
        """Return a bash script that trains, measures and audits again, and compares the result with this audit."""
        from perdure.report import reproduction_script  # noqa: PLC0415

        return reproduction_script(self)

    def tables(self, folder: str | Path) -> list[Path]:
        """Write every table of this audit as CSV, LaTeX (booktabs) and Markdown; return the paths."""
        from perdure.report import export_tables  # noqa: PLC0415

        return export_tables(self, Path(folder))

    def figures(self, folder: str | Path) -> list[Path]:
        """Write every figure of this audit as PDF and SVG; return the paths."""
        from perdure.report import export_figures  # noqa: PLC0415

        return export_figures(self, Path(folder))


def evaluation_notes(evaluated: str, is_reference: bool) -> dict[str, str]:
    """Return a note for each metric that would need evaluations within tasks; a reference has none of these metrics."""
    if evaluated == WITHIN_TASKS or is_reference:
        return {}
    return {**dict.fromkeys(DEPENDS_ON_EVALUATIONS, BOUNDARIES_NOTE), "average_anytime_accuracy": ANYTIME_NOTE}


def _with_evaluation_times(learner: Mapping[str, Any]) -> dict[str, Any]:
    """Add when accuracies were evaluated to the JSON form of a learner of an earlier version.

    Only learners that were evaluated within tasks have windowed forgetting.
    """
    evaluated = WITHIN_TASKS if "windowed_forgetting" in learner["measures"] else AT_BOUNDARIES
    notes = evaluation_notes(evaluated, learner.get("is_reference", False))
    return {"evaluated": evaluated, "notes": notes, **learner}


def _is_missing(entry: LearnerAudit, name: str) -> bool:
    return math.isnan(entry.measures[name].mean)


def _join_learners(names: Collection[str], count: int) -> str:
    """Return the names of learners, or "all" if there are no others."""
    return "all learners" if 1 < count == len(names) else ", ".join(names)


def _label(name: str) -> str:
    """Return the printed name of a metric; its own name if the package that registers it is not installed."""
    return MEASURES[name].label if name in MEASURES else name
