"""The tables of an audit, in CSV, LaTeX (booktabs) and Markdown; the report shows them too."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

from perdure.audits import MEASURES, Audit, Interval, LatentProperties, LearnerAudit
from perdure.base.errors import escape_control_characters

LONG_TEXT = 24
"""Texts of more characters than this are wrapped and count as two columns."""
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
        "|": r"\textbar{}",
        "↑": r"$\uparrow$",
        "↓": r"$\downarrow$",
        "≠": r"$\neq$",
        "±": r"$\pm$",
        "–": "--",
    }
)
_MARKDOWN = str.maketrans(
    {"<": "&lt;", ">": "&gt;", "&": "&amp;"} | {character: f"\\{character}" for character in r"|\*`[]~$"}
)
_FORMULA_STARTS = ("=", "+", "-", "@")
"""Spreadsheets compute texts that begin with one of these characters."""


@dataclass(frozen=True)
class Table:
    """A table: file name, title, header, and cells with texts, numbers or means with intervals."""

    name: str
    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    digits: int = 3
    terms: tuple[str, ...] = ()
    """For each column, the number that it holds, as a key of the report's glossary; empty for others."""

    @property
    def text_columns(self) -> tuple[bool, ...]:
        """Which columns contain text; they are left-aligned."""
        return tuple(any(isinstance(row[index], str) for row in self.rows) for index in range(len(self.header)))

    @property
    def breadth(self) -> int:
        """The relative width: 1 per column, 2 for columns with intervals or long texts."""

        def is_wide(cell: Cell) -> bool:
            return isinstance(cell, Interval) or (isinstance(cell, str) and len(cell) > LONG_TEXT)

        return sum(1 + any(is_wide(row[index]) for row in self.rows) for index in range(len(self.header)))

    def csv(self) -> str:
        """Return CSV, unrounded; a column of intervals becomes four columns: mean, low, high and number of runs."""
        has_intervals = [
            any(isinstance(row[index], Interval) for row in self.rows) for index in range(len(self.header))
        ]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        header = [
            (name, *(f"{name} {part}" for part in ("low", "high", "runs"))) if intervals else (name,)
            for name, intervals in zip(self.header, has_intervals, strict=True)
        ]
        writer.writerow([csv_text(name) for names in header for name in names])
        for row in self.rows:
            groups = [_csv_cells(cell, intervals) for cell, intervals in zip(row, has_intervals, strict=True)]
            writer.writerow([cell for group in groups for cell in group])
        return text.getvalue()

    def latex(self) -> str:
        """Return a LaTeX tabular; the document needs the package booktabs."""
        columns = "".join("l" if is_text else "r" for is_text in self.text_columns)
        lines = [r"\begin{tabular}{" + columns + "}", r"\toprule", _latex_row(self.header, 0), r"\midrule"]
        lines += [_latex_row(row, self.digits) for row in self.rows]
        return "\n".join([f"% {escape_control_characters(self.title)}", *lines, r"\bottomrule", r"\end{tabular}", ""])

    def markdown(self) -> str:
        """Return a Markdown table."""
        body = [[_markdown_cell(cell, self.digits) for cell in row] for row in (self.header, *self.rows)]
        rule = "|" + " --- |" * len(self.header)
        lines = ["| " + " | ".join(row) + " |" for row in body]
        return "\n".join([lines[0], rule, *lines[1:], ""])


def transposed(table: Table) -> Table:
    """Return a table with rows and columns exchanged; the cells of the first column become the header."""
    header = (table.header[0], *(format_report_cell(row[0], table.digits) for row in table.rows))
    columns = [(name, *(row[index] for row in table.rows)) for index, name in enumerate(table.header[1:], start=1)]
    return Table(table.name, table.title, header, tuple(columns), table.digits)


def format_report_cell(cell: Cell, digits: int = 3) -> str:
    """Return a cell as text: rounded numbers, intervals in brackets, a dash for missing values."""
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return "–"
    if isinstance(cell, Interval):
        if math.isnan(cell.mean):
            return "–"
        bounds = "" if math.isnan(cell.low) else f" [{cell.low:.{digits}f}, {cell.high:.{digits}f}]"
        return f"{cell.mean:.{digits}f}{bounds}"
    if isinstance(cell, float) and 0 < cell < 0.5 * 10**-digits:
        return f"<{10**-digits:.{digits}f}"
    return f"{cell:.{digits}f}" if isinstance(cell, float) else str(cell)


def _csv_cells(cell: Cell, intervals: bool) -> Sequence[object]:
    if isinstance(cell, Interval):
        return ["" if _is_nan(part) else part for part in (cell.mean, cell.low, cell.high)] + [cell.n]
    value: object = "" if cell is None or _is_nan(cell) else csv_text(cell) if isinstance(cell, str) else cell
    return [value, "", "", ""] if intervals else [value]


def csv_text(text: str) -> str:
    """Return a text for CSV: on one line, and after an apostrophe if a spreadsheet would compute it as a formula."""
    escaped = escape_control_characters(text)
    return f"'{escaped}" if escaped.startswith(_FORMULA_STARTS) else escaped


def _markdown_cell(cell: Cell, digits: int) -> str:
    """Return a cell for Markdown; only texts contain characters that Markdown would interpret."""
    text = format_report_cell(cell, digits)
    return escape_control_characters(text).translate(_MARKDOWN) if isinstance(cell, str) else text.replace("<", "&lt;")


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _latex_row(cells: Sequence[Cell], digits: int) -> str:
    return " & ".join(latex_cell(cell, digits) for cell in cells) + r" \\"


def latex_cell(cell: Cell, digits: int) -> str:
    """Return a cell for LaTeX."""
    text = escape_control_characters(format_report_cell(cell, digits)).translate(_LATEX)
    return f"{{{text[0]}}}{text[1:]}" if text.startswith(("[", "*")) else text  # otherwise an argument of \\


def _learner_columns(audit: Audit) -> tuple[str, ...]:
    """Return the columns that identify a learner; the benchmark is one of them if there are several."""
    several_benchmarks = len({entry.benchmark for entry in audit.learners}) > 1
    return ("learner", "benchmark") if several_benchmarks else ("learner",)


def _learner_cells(entry: LearnerAudit, columns: tuple[str, ...]) -> list[str]:
    return [entry.title, entry.benchmark][: len(columns)]


def measures_table(audit: Audit) -> Table:
    """Return every measure and score of every learner, averaged over its runs."""
    names = [name for name in MEASURES if any(name in entry.measures for entry in audit.learners)]
    scores = list(audit.learners[0].scores)
    columns = _learner_columns(audit)
    header = [*columns, "runs", *(f"{audit.label(name)} {_arrow(name)}" for name in names)]
    header += [f"CL_score {name} ↑" for name in scores] + [f"CL_stability {name} ↑" for name in scores]
    rows = []
    for entry in audit.learners:
        row: list[Cell] = [*_learner_cells(entry, columns), len(entry.runs)]
        row += [entry.measures.get(name) for name in names]
        row += [entry.scores.get(name) for name in scores]
        row += [entry.cl_stability[name].mean for name in scores]
        if audit.first_places:
            row.append(audit.first_places.get(entry.learner))
        rows.append(tuple(row))
    if audit.first_places:
        header.append("share of weightings ranked first")
    title = "Means over runs with intervals (↑ higher is better, ↓ lower is better)"
    terms = [*[""] * (len(columns) + 1), *names, *["cl_score"] * len(scores), *["cl_stability"] * len(scores)]
    terms += ["first_places"] * (len(header) - len(terms))
    return Table("measures", title, tuple(header), tuple(rows), terms=tuple(terms))


def _arrow(name: str) -> str:
    return "↑" if MEASURES[name].higher_is_better else "↓"


def runs_table(audit: Audit) -> Table:
    """Return every measure of every run."""
    seeds = {run.run: run.seed for run in audit.provenance}
    names = [name for name in MEASURES if any(name in entry.run_values for entry in audit.learners)]
    columns = _learner_columns(audit)
    rows = [
        (
            *_learner_cells(entry, columns),
            seeds.get(run),
            *(entry.run_values[name][index] if name in entry.run_values else None for name in names),
            run,
        )
        for entry in audit.learners
        for index, run in enumerate(entry.runs)
    ]
    header = (*columns, "seed", *(f"{audit.label(name)} {_arrow(name)}" for name in names), "run")
    terms = (*[""] * (len(columns) + 1), *names, "")
    return Table("runs", "Measures of each run", header, tuple(rows), terms=terms)


def has_variants(audit: Audit) -> bool:
    """Return whether the audit has other frameworks' variants; those of earlier versions have none."""
    return any(entry.variants for entry in audit.learners)


def variants_table(audit: Audit) -> Table:
    """Return other frameworks' variants of the metrics, averaged over runs."""
    names = list(dict.fromkeys(name for entry in audit.learners for name in entry.variants if name in MEASURES))
    columns = _learner_columns(audit)
    rows: list[tuple[Cell, ...]] = [
        (*_learner_cells(entry, columns), len(entry.runs), *(entry.variants.get(name) for name in names))
        for entry in audit.learners
    ]
    header = (*columns, "runs", *(f"{audit.label(name)} {_arrow(name)}" for name in names))
    terms = (*[""] * (len(columns) + 1), *names)
    title = "Other frameworks' variants, means over runs with intervals"
    return Table("variants", title, header, tuple(rows), terms=terms)


def accuracy_differences_table(audit: Audit) -> Table:
    """Return the differences of accuracy metrics between pairs of learners, paired over common seeds."""
    several_benchmarks = len({entry.benchmark for entry in audit.learners}) > 1
    rows: list[tuple[Cell, ...]] = []
    for entry in audit.accuracy_differences:
        value = entry.difference
        interval = Interval(value.mean, value.low, value.high, value.runs, value.method, value.reason, value.level)
        family = f"{entry.family} pair{'s' if entry.family != 1 else ''}" if entry.tested else None
        pair = (entry.first, entry.second, *((entry.benchmark,) if several_benchmarks else ()))
        metric = f"{audit.label(entry.metric)} {_arrow(entry.metric)}"
        rows.append((metric, *pair, interval, entry.p, family, value.runs, value.reason or ""))
    benchmark = ("benchmark",) if several_benchmarks else ()
    header = ("metric", "learner", "minus", *benchmark, "difference", "p (Holm)", "corrected over", "seeds", "note")
    title = "Differences between learners over common seeds; intervals of single pairs, p corrected over all pairs of a metric"
    return Table("accuracy-differences", title, header, tuple(rows))


def accuracy_table(audit: Audit) -> Table:
    """Return the accuracy matrices, averaged over runs."""
    width = max(len(entry.tasks) for entry in audit.learners)
    columns = _learner_columns(audit)
    rows: list[tuple[Cell, ...]] = []
    for entry in audit.learners:
        for step, accuracies in enumerate(entry.table.tolist()):
            after = "all tasks" if entry.is_reference else str(step + 1)
            trained = "all" if entry.is_reference else entry.tasks[entry.curriculum[step]]
            padding = [None] * (width - len(accuracies))
            rows.append((*_learner_cells(entry, columns), after, trained, *accuracies, *padding))
    header = (*columns, "after step", "trained", *(f"task {task + 1}" for task in range(width)))
    kinds = list(dict.fromkeys(entry.measure for entry in audit.learners))
    title = f"{' or '.join(kinds).capitalize()} on each task after each step, mean over runs"
    return Table("accuracy", title, header, tuple(rows))


def progress_table(audit: Audit) -> Table:
    """Return average accuracy and forgetting after each step."""
    columns = _learner_columns(audit)
    rows: list[tuple[Cell, ...]] = [
        (*_learner_cells(entry, columns), step + 1, *(entry.progress[name][step] for name in entry.progress))
        for entry in audit.learners
        if entry.progress
        for step in range(len(entry.table))
    ]
    header = (*columns, "after step", "average accuracy ↑", "forgetting ↓")
    return Table("progress", "Accuracy and forgetting of the tasks trained so far", header, tuple(rows))


def correlation_table(audit: Audit) -> Table:
    """Return the rank correlation of the criteria over learners."""
    rows: tuple[tuple[Cell, ...], ...] = tuple((name, *values.values()) for name, values in audit.correlation.items())
    return Table("correlation", "Rank correlation of the criteria over learners", ("", *audit.correlation), rows)


def properties_table(fit: LatentProperties, name: str = "properties") -> Table:
    """Return the properties of each algorithm with their intervals, and whether the data alone determine them."""
    properties = ("efficiency", "retention", "translation")
    header = ["algorithm", *(text for p in properties for text in (p, f"{p} low", f"{p} high", "determined"))]
    rows = []
    for index, algorithm in enumerate(fit.algorithms):
        row: list[Cell] = [algorithm]
        for key in properties:
            low, high = fit.intervals[key][index]
            row += [float(fit.estimates[key][index]), float(low), float(high)]
            row.append("yes" if fit.supported[key][index] else "no")
        rows.append(tuple(row))
    title = f"Properties of the algorithms ({fit.benchmark or 'given matrices'}), relative to the mean efficiency"
    return Table(name, title, tuple(header), tuple(rows))


def transfer_table(fit: LatentProperties, name: str = "transfer") -> Table:
    """Return the transfer matrix and the difficulty of each task."""
    transfer, difficulty = fit.estimates["transfer"], fit.estimates["difficulty"]
    rows: list[tuple[Cell, ...]] = [(task, *map(float, transfer[index])) for index, task in enumerate(fit.tasks)]
    rows.append(("difficulty", *map(float, difficulty)))
    title = f"Transfer ({fit.benchmark or 'given matrices'}) from trained (row) to evaluated task (column); 1 to itself"
    return Table(name, title, ("trained", *fit.tasks), tuple(rows))


def provenance_table(audit: Audit, commands: bool = True) -> Table:
    """Return seed, software, hardware and data of each run, and the command that repeats it."""
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
            *((run.command or "custom training loop",) if commands else ()),
        )
        for run in audit.provenance
    ]
    header = ("learner", "seed", "network", *software, *hardware, "data SHA-256", "benchmark fingerprint", "run")
    title = "Software, hardware and data of each run"
    return Table("provenance", title, (*header, "command") if commands else header, tuple(rows))
