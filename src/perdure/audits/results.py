"""What an audit says: numbers with intervals and reasons, serialisable and comparable."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.audits.clamp import LatentProperties
from perdure.audits.findings import TrustFindings
from perdure.audits.provenance import RunProvenance
from perdure.audits.shapc.differences import LearnerDifference
from perdure.audits.shapc.results import ShapcResult
from perdure.base.errors import InputError
from perdure.base.files import read_versioned, write_json
from perdure.base.json_values import (
    float_of,
    interval_from_json,
    interval_to_json,
    matrix_from_json,
    matrix_to_json,
    number_of,
)
from perdure.metrics import METRICS, Interval

SCHEMA = 3
FILE = "audit.json"


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
        "consistency on a scale from chance (0) to identical reasons (1)",
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
    """One learner on one benchmark: each measure over its runs, its scores, and the mean accuracy table."""

    learner: str
    benchmark: str
    runs: tuple[str, ...]
    measures: dict[str, Interval]
    scores: dict[str, Interval]
    cl_stability: dict[str, Interval]
    tasks: tuple[str, ...]
    curriculum: tuple[int, ...]
    table: NDArray[np.float64]
    initial: NDArray[np.float64] | None
    complete: bool = True
    is_reference: bool = False
    """All tasks were learned at once: a row to compare with, not a sequence."""
    run_values: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """Each measure of each run, in the order of ``runs``."""
    progress: dict[str, tuple[Interval, ...]] = field(default_factory=dict)
    """Average accuracy and forgetting after each step, over the tasks trained by then."""

    @property
    def title(self) -> str:
        """The learner's name, with a warning when its curriculum is not done."""
        return self.learner if self.complete else f"{self.learner} (unfinished)"

    def reasons(self) -> dict[str, str]:
        """Why each missing number is missing."""
        named = {**self.measures, **{f"CL_score {name}": value for name, value in self.scores.items()}}
        return {name: value.reason or "" for name, value in named.items() if math.isnan(value.mean)}


@dataclass(frozen=True)
class Audit:
    """Everything that was found about the learners of some records.

    ``first_places`` is the share of all weightings under which each learner has the highest CL_score; ``correlation`` the
    rank correlation of the criteria over learners (three or more). ``partial_scores`` says that scores were taken over the
    known criteria only.
    """

    learners: tuple[LearnerAudit, ...]
    first_places: dict[str, float]
    first_place_criteria: tuple[str, ...]
    correlation: dict[str, dict[str, float]]
    partial_scores: bool = False
    left_out: dict[str, str] = field(default_factory=dict)
    """Records that took no part, and why."""
    weights: dict[str, dict[str, float]] = field(default_factory=dict)
    """The weight vectors behind the scores."""
    provenance: tuple[RunProvenance, ...] = ()
    """Where each run comes from; empty for numbers that came without a record."""
    clamp: tuple[LatentProperties, ...] = ()
    """CLAMP's properties, one fit for each benchmark, where they were asked for."""
    shapc: tuple[ShapcResult, ...] = ()
    """SHAPC of each run, if it was asked for."""
    differences: tuple[LearnerDifference, ...] = ()
    """Which learner decides more stably, pair by pair."""
    trust: tuple[TrustFindings, ...] = ()
    """What perdure trust found about the explanations of each run; runs of which nothing is known are not named."""

    def __str__(self) -> str:
        lines = []
        for entry in self.learners:
            lines.append(f"{entry.title} on {entry.benchmark or 'given matrices'}, {len(entry.runs)} run(s)")
            lines += [f"  {MEASURES[name].label:22} {value}" for name, value in entry.measures.items()]
            lines += [f"  {'CL_score ' + name:22} {value}" for name, value in entry.scores.items()]
            lines += [f"  {name} is missing: {why}" for name, why in entry.reasons().items()]
        lines += [f"left out: {run}: {why}" for run, why in self.left_out.items()]
        lines += [str(difference) for difference in self.differences]
        return "\n".join(lines)

    def missing(self) -> dict[str, dict[str, list[str]]]:
        """Return each reason with the learners and the measures, by their printed names, that miss something for it."""
        found: dict[str, dict[str, list[str]]] = {}
        for entry in self.learners:
            for name, why in entry.reasons().items():
                label = MEASURES[name].label if name in MEASURES else name
                found.setdefault(why, {}).setdefault(entry.learner, []).append(label)
            if len(entry.runs) == 1:
                unknown = [f"CL_stability {name}" for name in entry.cl_stability]
                found.setdefault("stability needs at least two runs", {})[entry.learner] = unknown
        return found

    def to_json(self) -> dict[str, Any]:
        """Return a JSON form; NaN becomes null, tasks are 1-based."""
        return {
            "schema": SCHEMA,
            "learners": [_learner_to_json(entry) for entry in self.learners],
            "first_places": self.first_places,
            "first_place_criteria": list(self.first_place_criteria),
            "correlation": {
                row: {column: number_of(value) for column, value in values.items()}
                for row, values in self.correlation.items()
            },
            "partial_scores": self.partial_scores,
            "left_out": self.left_out,
            "weights": self.weights,
            "provenance": [run.to_json() for run in self.provenance],
            "latent": [part.to_json() for part in self.clamp],
            "stability": [result.to_json() for result in self.shapc],
            "differences": [difference.to_json() for difference in self.differences],
            "trust": [findings.to_json() for findings in self.trust],
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Audit:
        """Return the audit that `to_json` wrote; what older schemas did not have yet is empty."""
        return cls(
            learners=tuple(_learner_from_json(entry) for entry in value["learners"]),
            first_places=value["first_places"],
            first_place_criteria=tuple(value["first_place_criteria"]),
            correlation={
                row: {column: float_of(cell) for column, cell in cells.items()}
                for row, cells in value["correlation"].items()
            },
            partial_scores=value["partial_scores"],
            left_out=value["left_out"],
            weights=value.get("weights", {}),
            provenance=tuple(RunProvenance(**run) for run in value.get("provenance", [])),
            clamp=tuple(LatentProperties.from_json(part) for part in value.get("latent", [])),
            shapc=tuple(ShapcResult.from_json(result) for result in value.get("stability", ())),
            differences=tuple(LearnerDifference.from_json(entry) for entry in value.get("differences", ())),
            trust=tuple(TrustFindings.from_json(findings) for findings in value.get("trust", ())),
        )

    def save(self, path: str | Path) -> None:
        """Write the audit as JSON."""
        write_json(Path(path), self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> Audit:
        """Read an audit; a newer schema or a foreign file is refused."""
        path = Path(path)
        value = read_versioned(path, "audit", SCHEMA)
        try:
            return cls.from_json(value)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"{path}: a field is missing or malformed ({error})") from None

    def report(self, path: str | Path) -> Path:
        """Write the page of this audit and return where it is."""
        from perdure.report import write_page  # noqa: PLC0415  (the report is a later room)

        return write_page(self, Path(path))

    def tables(self, folder: str | Path) -> list[Path]:
        """Write every table of this audit as CSV, LaTeX (booktabs) and Markdown and return the files."""
        from perdure.report import write_tables  # noqa: PLC0415

        return write_tables(self, Path(folder))

    def figures(self, folder: str | Path) -> list[Path]:
        """Write every figure of this audit as PDF and SVG and return the files."""
        from perdure.report import write_figures  # noqa: PLC0415

        return write_figures(self, Path(folder))


def _learner_to_json(entry: LearnerAudit) -> dict[str, Any]:
    return {
        "learner": entry.learner,
        "benchmark": entry.benchmark,
        "runs": list(entry.runs),
        "complete": entry.complete,
        "is_reference": entry.is_reference,
        **{
            group: {name: interval_to_json(value) for name, value in getattr(entry, group).items()}
            for group in ("measures", "scores", "stability")
        },
        "tasks": list(entry.tasks),
        "curriculum": [task + 1 for task in entry.curriculum],
        "table": matrix_to_json(entry.table),
        "initial": None if entry.initial is None else matrix_to_json(entry.initial[None])[0],
        "run_values": {name: [number_of(value) for value in values] for name, values in entry.run_values.items()},
        "progress": {name: [interval_to_json(value) for value in steps] for name, steps in entry.progress.items()},
    }


def _learner_from_json(value: dict[str, Any]) -> LearnerAudit:
    groups = {
        group: {name: interval_from_json(cell) for name, cell in value[group].items()}
        for group in ("measures", "scores", "stability")
    }
    initial = value["initial"]
    return LearnerAudit(
        learner=value["learner"],
        benchmark=value["benchmark"],
        runs=tuple(value["runs"]),
        complete=value["complete"],
        is_reference=value.get("is_reference", False),
        run_values={
            name: tuple(float_of(cell) for cell in cells) for name, cells in value.get("run_values", {}).items()
        },
        progress={
            name: tuple(interval_from_json(cell) for cell in steps) for name, steps in value.get("progress", {}).items()
        },
        tasks=tuple(value["tasks"]),
        curriculum=tuple(task - 1 for task in value["curriculum"]),
        table=matrix_from_json(value["table"]),
        initial=None if initial is None else np.array([float_of(cell) for cell in initial]),
        **groups,
    )
