"""PyCIL and LAMDA-PILOT: logs with the accuracy of each group of classes after each task, and the printed matrix."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from perdure.base.errors import InputError
from perdure.base.files import MOST_STEPS, shorten_text
from perdure.importers.imported_run import ImportedRun, ReadOptions, check_table_size, check_values, importer
from perdure.importers.parsers.python_literals import parse_python_value
from perdure.importers.source import Source, natural_key
from perdure.record.reader import FloatArray

_LINE = re.compile(r"(?:[^\n]{0,60}?\[[\w.]{1,60}\] => )?(?P<message>[^\n]*)")
_GROUPED = re.compile(r"(?P<rule>CNN|NME): (?P<value>\{.*\})\s*")
_CURVE = re.compile(r"(?P<rule>CNN|NME) top1 curve: (?P<value>\[.*\])\s*")
_ARGUMENT = re.compile(r"(?P<name>[a-z_]{1,40}): (?P<value>[^\n]{0,200})")
_FORGETTING = re.compile(r"Forgetting \((?P<rule>CNN|NME)\): (?P<value>[-+.\deE]{1,40})\s*")
_MATRIX = re.compile(r"Accuracy Matrix \((?P<rule>CNN|NME)\):\s*")
_CLASSES = re.compile(r"\d{1,9}-\d{1,9}")
_SETTINGS = (
    "init_cls",
    "increment",
    "memory_size",
    "memory_per_class",
    "fixed_memory",
    "convnet_type",
    "backbone_type",
)
_DECIDES_BY = {"CNN": "", "NME": " (nearest class mean)"}


def _is_log(source: Source) -> bool:
    return bool(
        re.search(
            r"(?:^|=> )(?:CNN: \{'total'|CNN top1 curve: \[)|^Accuracy Matrix \(CNN\):", source.text, re.MULTILINE
        )
    )


@dataclass
class _Trial:
    """What the log says about one seed: the arguments, and the rows, curve, matrix and forgetting of each decision rule."""

    arguments: dict[str, str] = field(default_factory=dict)
    rows: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    curves: dict[str, list[float]] = field(default_factory=dict)
    matrices: dict[str, FloatArray] = field(default_factory=dict)
    forgetting: dict[str, float] = field(default_factory=dict)

    @property
    def has_results(self) -> bool:
        return bool(self.rows or self.matrices or self.curves)


@importer("pycil", title="PyCIL and LAMDA-PILOT (logs)", detects=_is_log)
def read_pycil(sources: Sequence[Source], options: ReadOptions) -> list[ImportedRun]:
    """Read the log file or the printed output. The lines ``CNN: {...}`` hold one accuracy in percent for each group of classes.

    The nearest-class-mean rule (NME) is a learner of its own. One log holds several seeds if they were trained in one process.
    """
    if options.losses:
        raise InputError(f"{sources[0].path}: these logs hold accuracies, not losses. Leave out --losses.")
    return [run for source in sources for run in _read_file(source)]


def _read_file(source: Source) -> list[ImportedRun]:
    trials = [trial for trial in _trials(source) if trial.has_results]
    runs = []
    for number, trial in enumerate(trials, start=1):
        for rule in sorted({*trial.rows, *trial.matrices, *trial.curves}):
            key = " ".join(
                part for part in (f"trial {number}" if len(trials) > 1 else "", rule if rule != "CNN" else "") if part
            )
            runs.append(_run(source.path, trial, rule, key))
    return runs


def _trials(source: Source) -> list[_Trial]:
    lines = source.text.split("\n")
    trials = [_Trial()]
    for number, line in enumerate(lines, start=1):
        match = _LINE.fullmatch(line)
        message = match["message"] if match else line
        where = f"{source.path}, line {number}"
        if grouped := _GROUPED.fullmatch(message):
            trials[-1].rows.setdefault(grouped["rule"], []).append(_groups(where, grouped["value"]))
        elif curve := _CURVE.fullmatch(message):
            trials[-1].curves[curve["rule"]] = _numbers(where, curve["value"])
        elif forgetting := _FORGETTING.fullmatch(message):
            trials[-1].forgetting[forgetting["rule"]] = _number(where, forgetting["value"])
        elif matrix := _MATRIX.fullmatch(message):
            trials[-1].matrices[matrix["rule"]] = _printed_matrix(where, lines[number:])
        elif (argument := _ARGUMENT.fullmatch(message)) and "=>" in line:
            if trials[-1].has_results and argument["name"] in ("prefix", "dataset", "seed"):
                trials.append(_Trial())  # the arguments of the next seed
            trials[-1].arguments.setdefault(argument["name"], argument["value"].strip())
    return trials


def _groups(where: str, text: str) -> dict[str, float]:
    value = parse_python_value(where, text)
    if not isinstance(value, dict):
        raise InputError(f"{where}: expected a dictionary of accuracies.")
    groups = {}
    for name, accuracy in value.items():
        if isinstance(accuracy, bool) or not isinstance(accuracy, int | float):
            raise InputError(f"{where}: expected a percentage for {str(name)[:80]!r}, got {str(accuracy)[:80]!r}.")
        groups[str(name)] = float(accuracy)
    return groups


def _numbers(where: str, text: str) -> list[float]:
    value = parse_python_value(where, text)
    if not isinstance(value, list) or not all(isinstance(item, int | float) for item in value):
        raise InputError(f"{where}: expected a list of percentages.")
    return [float(item) for item in value]


def _number(where: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{where}: expected a number, got {text[:80]!r}.") from None


def _printed_matrix(where: str, lines: Sequence[str]) -> FloatArray:
    """Return a matrix as numpy prints it: tasks x steps, 0 where nothing was measured."""
    text = ""
    for line in lines[: 4 * MOST_STEPS]:
        text += f"{line} "
        if "]]" in line or len(text) > 10_000_000:
            break
    rows = re.findall(r"\[([^][]*)\]", text)
    if "..." in text:
        raise InputError(f"{where}: the printed matrix is abbreviated (...). Use the log file, which holds all values.")
    try:
        values = [[float(cell) for cell in row.split()] for row in rows]
    except ValueError:
        raise InputError(f"{where}: expected a printed matrix of numbers, got {shorten_text(text, 80)!r}.") from None
    if not values or any(len(row) != len(values) for row in values):
        raise InputError(f"{where}: expected a printed square matrix, got {shorten_text(text, 80)!r}.")
    return np.array(values)


def _run(path: Path, trial: _Trial, rule: str, key: str) -> ImportedRun:
    arguments = trial.arguments
    where = f"{path}: {key}" if key else str(path)
    table, names, notes = _table(where, trial, rule)
    check_values(where, table, "accuracy")
    seed = arguments.get("seed", "")
    learner = arguments.get("model_name", "")
    reported = {}
    if trial.curves.get(rule):
        reported["Average Accuracy"] = float(np.mean(trial.curves[rule]))
    if rule in trial.forgetting:
        reported["Forgetting"] = trial.forgetting[rule]
    return ImportedRun(
        format="pycil",
        files=(path,),
        source=path,
        key=key,
        table=table,
        curriculum=tuple(range(len(table))),
        learner=f"{learner}{_DECIDES_BY[rule]}" if learner else "",
        seed=int(seed) if seed.isascii() and seed.isdigit() and len(seed) <= 18 else _seed_in_name(path),
        task_names=names,
        benchmark=arguments.get("dataset", ""),
        scenario="class",
        settings={name: arguments[name] for name in _SETTINGS if name in arguments},
        notes=("percentages with two decimals", *notes),
        missing=(
            "evaluations within tasks",
            "accuracies on future tasks and before training",
            "costs (stored examples, operations)",
        ),
        reported=reported,
    )


def _seed_in_name(path: Path) -> int | None:
    """Return the seed in ``{prefix}_{seed}_{network}.log``."""
    match = re.fullmatch(r".*_(\d{1,9})_[^_]+", path.stem)
    return int(match[1]) if match else None


def _table(where: str, trial: _Trial, rule: str) -> tuple[FloatArray, tuple[str, ...], tuple[str, ...]]:
    """Return accuracies in [0, 1], the classes of each task, and notes."""
    if rule in trial.rows:
        return _from_groups(where, trial.rows[rule])
    if rule in trial.matrices:
        matrix = trial.matrices[rule].T / 100
        matrix[np.triu_indices(len(matrix), 1)] = np.nan
        notes = ["printed matrix (tasks x steps), transposed; values above the diagonal were not measured"]
        if len(matrix) > 10:
            notes.append(
                "PyCIL sorts groups of classes as text: from 100 classes on, use the log file instead of the matrix"
            )
        return matrix, (), tuple(notes)
    raise InputError(
        f"{where}: found only the curve of the total accuracy ({len(trial.curves[rule])} tasks), not the accuracy of each task."
        " Use the log file with the lines 'CNN: {...}'."
    )


def _from_groups(where: str, rows: list[dict[str, float]]) -> tuple[FloatArray, tuple[str, ...], tuple[str, ...]]:
    """Return the table; the groups of classes that appear after a task belong to it."""
    groups: list[list[str]] = []
    known: set[str] = set()
    for step, row in enumerate(rows):
        new = sorted({name for name in row if _CLASSES.fullmatch(name)} - known, key=natural_key)
        if not new or not known <= row.keys():
            raise InputError(
                f"{where}: expected the accuracies of all classes so far and of new ones after task {step + 1}."
            )
        groups.append(new)
        known |= set(new)
    check_table_size(where, len(rows), len(groups))
    table = np.full((len(rows), len(groups)), np.nan)
    for step, row in enumerate(rows):
        for task, names in enumerate(groups[: step + 1]):
            table[step, task] = float(np.mean([row[name] for name in names])) / 100
    several = [str(task + 1) for task, names in enumerate(groups) if len(names) > 1]
    notes = (f"task {', '.join(several[:10])}: mean over several groups of classes",) if several else ()
    return table, tuple(f"classes {_span(names)}" for names in groups), notes


def _span(names: Sequence[str]) -> str:
    """Return the first and the last class of consecutive groups: ``00-09``, ``10-19`` give ``00-19``."""
    return f"{names[0].partition('-')[0]}-{names[-1].partition('-')[2]}"
