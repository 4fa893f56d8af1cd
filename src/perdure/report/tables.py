"""The tables of an audit, each written as CSV, as LaTeX (booktabs) and as Markdown, and shown on the page."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

from perdure.audits import MEASURES, Audit, Interval, LatentProperties, LearnerAudit

LONG = 24
"""Letters of a word that may be broken."""
Cell = str | float | int | Interval | None

_LATEX = str.maketrans(
    {
        "&": r"\&",
        "%": r"\%",
        "$": r"\$",
        "#": r"\#",
        "_": r"\_",
        "{": r"\{",
        "}": r"\}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "\\": r"\textbackslash{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "\n": " ",
    }
)
_MARKDOWN = str.maketrans(
    {"|": r"\|", "\\": r"\\", "<": "&lt;", ">": "&gt;", "&": "&amp;", "*": r"\*", "`": r"\`", "\n": " "}
)


@dataclass(frozen=True)
class Table:
    """A table: its file's name, what it shows, and cells that are words, numbers or means with their interval."""

    name: str
    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    digits: int = 3

    @property
    def wordy(self) -> tuple[bool, ...]:
        """Which columns hold words, and so stand on the left."""
        return tuple(any(isinstance(row[place], str) for row in self.rows) for place in range(len(self.header)))

    @property
    def breadth(self) -> int:
        """How much room its columns want: one part each, two where an interval or a long word stands."""

        def wants_two(cell: Cell) -> bool:
            return isinstance(cell, Interval) or (isinstance(cell, str) and len(cell) > LONG)

        return sum(1 + any(wants_two(row[place]) for row in self.rows) for place in range(len(self.header)))

    def csv(self) -> str:
        """Return CSV; a column of intervals becomes four: mean, low, high and the number of runs. Nothing is rounded."""
        wide = [any(isinstance(row[place], Interval) for row in self.rows) for place in range(len(self.header))]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        header = [
            (name, *(f"{name} {end}" for end in ("low", "high", "runs"))) if several else (name,)
            for name, several in zip(self.header, wide, strict=True)
        ]
        writer.writerow([name for names in header for name in names])
        for row in self.rows:
            cells = [_csv_cells(cell, several) for cell, several in zip(row, wide, strict=True)]
            writer.writerow([cell for several in cells for cell in several])
        return text.getvalue()

    def latex(self) -> str:
        """Return a table for LaTeX; the document needs the package booktabs."""
        columns = "".join("l" if left else "r" for left in self.wordy)
        lines = [r"\begin{tabular}{" + columns + "}", r"\toprule", _latex_row(self.header, 0), r"\midrule"]
        lines += [_latex_row(row, self.digits) for row in self.rows]
        return "\n".join([f"% {self.title}", *lines, r"\bottomrule", r"\end{tabular}", ""])

    def markdown(self) -> str:
        """Return a Markdown table."""
        body = [[shown(cell, self.digits).translate(_MARKDOWN) for cell in row] for row in (self.header, *self.rows)]
        rule = "|" + " --- |" * len(self.header)
        lines = ["| " + " | ".join(row) + " |" for row in body]
        return "\n".join([lines[0], rule, *lines[1:], ""])


def shown(cell: Cell, digits: int = 3) -> str:
    """Return a cell as a reader wants it: numbers rounded, intervals in brackets, a dash for what is missing."""
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return "–"
    if isinstance(cell, Interval):
        if math.isnan(cell.mean):
            return "–"
        ends = "" if math.isnan(cell.low) else f" [{cell.low:.{digits}f}, {cell.high:.{digits}f}]"
        return f"{cell.mean:.{digits}f}{ends}"
    if isinstance(cell, float) and 0 < cell < 0.5 * 10**-digits:
        return f"<{10**-digits:.{digits}f}"
    return f"{cell:.{digits}f}" if isinstance(cell, float) else str(cell)


def _csv_cells(cell: Cell, several: bool) -> Sequence[object]:
    if isinstance(cell, Interval):
        return ["" if _empty(part) else part for part in (cell.mean, cell.low, cell.high)] + [cell.n]
    plain: object = "" if cell is None or _empty(cell) else cell
    return [plain, "", "", ""] if several else [plain]


def _empty(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _latex_row(cells: Sequence[Cell], digits: int) -> str:
    return " & ".join(shown(cell, digits).translate(_LATEX).replace("–", "--") for cell in cells) + r" \\"


def _who(audit: Audit) -> tuple[str, ...]:
    """Return the columns that name a learner: its benchmark only where there are several."""
    several = len({entry.benchmark for entry in audit.learners}) > 1
    return ("learner", "benchmark") if several else ("learner",)


def _named(entry: LearnerAudit, who: tuple[str, ...]) -> list[str]:
    return [entry.title, entry.benchmark][: len(who)]


def measures_table(audit: Audit) -> Table:
    """Every measure and score of every learner, over its runs."""
    names = [name for name in MEASURES if any(name in entry.measures for entry in audit.learners)]
    scores = list(audit.learners[0].scores)
    who = _who(audit)
    header = [*who, "runs", *(f"{MEASURES[name].label} {_arrow(name)}" for name in names)]
    header += [f"CL_score {name} ↑" for name in scores] + [f"CL_stability {name} ↑" for name in scores]
    rows = []
    for entry in audit.learners:
        row: list[Cell] = [*_named(entry, who), len(entry.runs)]
        row += [entry.measures.get(name) for name in names]
        row += [entry.scores.get(name) for name in scores]
        row += [entry.stability[name].mean for name in scores]
        if audit.first_places:
            row.append(audit.first_places.get(entry.learner))
        rows.append(tuple(row))
    if audit.first_places:
        header.append("first under this share of weightings")
    return Table(
        "measures", "Mean over runs with its interval; ↑ higher is better, ↓ lower", tuple(header), tuple(rows)
    )


def _arrow(name: str) -> str:
    return "↑" if MEASURES[name].higher_is_better else "↓"


def runs_table(audit: Audit) -> Table:
    """Every measure of every single run."""
    seeds = {run.run: run.seed for run in audit.provenance}
    names = [name for name in MEASURES if any(name in entry.run_values for entry in audit.learners)]
    who = _who(audit)
    rows = [
        (
            *_named(entry, who),
            seeds.get(run),
            *(entry.run_values[name][place] if name in entry.run_values else None for name in names),
            run,
        )
        for entry in audit.learners
        for place, run in enumerate(entry.runs)
    ]
    header = (*who, "seed", *(f"{MEASURES[name].label} {_arrow(name)}" for name in names), "run")
    return Table("runs", "Each run by itself", header, tuple(rows))


def accuracy_table(audit: Audit) -> Table:
    """The accuracy matrices, mean over runs."""
    width = max(len(entry.tasks) for entry in audit.learners)
    who = _who(audit)
    rows: list[tuple[Cell, ...]] = []
    for entry in audit.learners:
        for step, accuracies in enumerate(entry.table.tolist()):
            after = "all tasks" if entry.is_reference else str(step + 1)
            trained = "all" if entry.is_reference else entry.tasks[entry.curriculum[step]]
            rest = [None] * (width - len(accuracies))
            rows.append((*_named(entry, who), after, trained, *accuracies, *rest))
    header = (*who, "after step", "trained", *(f"task {task + 1}" for task in range(width)))
    return Table("accuracy", "Accuracy on each task after each step, mean over runs", header, tuple(rows))


def progress_table(audit: Audit) -> Table:
    """Average accuracy and forgetting after each step."""
    who = _who(audit)
    rows: list[tuple[Cell, ...]] = [
        (*_named(entry, who), step + 1, *(entry.progress[name][step] for name in entry.progress))
        for entry in audit.learners
        if entry.progress
        for step in range(len(entry.table))
    ]
    header = (*who, "after step", "average accuracy ↑", "forgetting ↓")
    return Table("progress", "Accuracy and forgetting over the tasks trained by then", header, tuple(rows))


def correlation_table(audit: Audit) -> Table:
    """The rank correlation of the criteria over learners."""
    rows: tuple[tuple[Cell, ...], ...] = tuple((name, *values.values()) for name, values in audit.correlation.items())
    return Table("correlation", "Rank correlation of the criteria over learners", ("", *audit.correlation), rows)


def properties_table(part: LatentProperties, name: str = "properties") -> Table:
    """The properties of each algorithm with the ends of their intervals, and whether the data alone determine them."""
    kinds = ("efficiency", "retention", "translation")
    header = ["algorithm", *(word for kind in kinds for word in (kind, f"{kind} low", f"{kind} high", "determined"))]
    rows = []
    for place, algorithm in enumerate(part.algorithms):
        row: list[Cell] = [algorithm]
        for kind in kinds:
            low, high = part.intervals[kind][place]
            row += [float(part.estimates[kind][place]), float(low), float(high)]
            row.append("yes" if part.supported[kind][place] else "no")
        rows.append(tuple(row))
    title = f"Properties of the algorithms ({part.benchmark or 'given matrices'}), relative to the mean efficiency"
    return Table(name, title, tuple(header), tuple(rows))


def transfer_table(part: LatentProperties, name: str = "transfer") -> Table:
    """The transfer matrix and the difficulty of each task."""
    transfer, difficulty = part.estimates["transfer"], part.estimates["difficulty"]
    rows: list[tuple[Cell, ...]] = [(task, *map(float, transfer[place])) for place, task in enumerate(part.tasks)]
    rows.append(("difficulty", *map(float, difficulty)))
    title = f"Transfer ({part.benchmark or 'given matrices'}): row trains, column is evaluated, own task = 1"
    return Table(name, title, ("trained", *part.tasks), tuple(rows))


def provenance_table(audit: Audit, commands: bool = True) -> Table:
    """Where each run comes from, and the command that makes it again."""
    software = list(dict.fromkeys(name for run in audit.provenance for name in run.software))
    hardware = list(dict.fromkeys(name for run in audit.provenance for name in run.hardware))
    rows = [
        (
            run.learner,
            run.seed,
            str(run.network.get("name", "")),
            *(str(run.software.get(name, "")) for name in software),
            *(str(run.hardware.get(name, "")) for name in hardware),
            str(run.data.get("data_sha256", "")),
            str(run.data.get("fingerprint", "")),
            run.run,
            *((run.command or "a loop of your own",) if commands else ()),
        )
        for run in audit.provenance
    ]
    header = ("learner", "seed", "network", *software, *hardware, "data SHA-256", "benchmark fingerprint", "run")
    return Table(
        "provenance", "Where each run comes from", (*header, "made again by") if commands else header, tuple(rows)
    )
