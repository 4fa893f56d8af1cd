"""lm-evaluation-harness: one results_*.json for each checkpoint; together they are a matrix of checkpoints and tasks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from perdure.base.errors import InputError
from perdure.base.files import shorten_text
from perdure.importers.imported_run import ImportedRun, ReadOptions, check_table_size, check_values, importer
from perdure.importers.source import Source, natural_key
from perdure.record.reader import FloatArray
from perdure.record.schema import Measure

_ACCURACIES = ("acc", "acc_norm", "exact_match", "em", "f1", "pass@1")
_LOSSES = ("word_perplexity", "perplexity", "byte_perplexity", "bits_per_byte")
_STEP = re.compile(r"(?:checkpoint|ckpt|step|iter|epoch|task)[-_=]?(\d{1,12})", re.IGNORECASE)
_BEFORE = re.compile(
    r"(?:^|[-_/.])(?:base|initial|pretrained)(?:$|[-_/.])|(?:checkpoint|ckpt|step|iter|epoch)[-_=]?0+(?!\d)"
)


@dataclass(frozen=True)
class _Checkpoint:
    """The results of one checkpoint: the value of each task, and how many examples were evaluated."""

    path: Path
    name: str
    """Path and name of the checkpoint's model, from which the order and the trained task are taken."""
    date: float
    values: dict[str, float]
    examples: dict[str, int] = field(default_factory=dict)
    metrics: dict[str, str] = field(default_factory=dict)


def _is_results(source: Source) -> bool:
    value = source.json
    return (
        isinstance(value, dict)
        and isinstance(value.get("results"), dict)
        and bool({"n-shot", "configs", "versions", "higher_is_better", "group_subtasks"} & value.keys())
    )


@importer("lm-evaluation-harness", title="lm-evaluation-harness (results_*.json)", detects=_is_results)
def read_lm_evaluation_harness(sources: Sequence[Source], options: ReadOptions) -> list[ImportedRun]:
    """Read one file for each checkpoint. Files below one folder, or given together, form one run.

    Checkpoints are ordered by the number in the name of the model (``checkpoint-500``), otherwise by the date of the
    evaluation. The trained task of a checkpoint is the task in its name, or the one that ``curriculum`` states. A
    checkpoint called base, initial or checkpoint-0 is before training.
    """
    groups: dict[Path, list[Source]] = {}
    for source in sources:
        groups.setdefault(_run_folder(source.path, sources), []).append(source)
    return [_run(folder, entries, options) for folder, entries in groups.items()]


def _run_folder(path: Path, sources: Sequence[Source]) -> Path:
    """Return the folder of the run: files of one folder are checkpoints of one run; so are files in one folder each."""
    counts = sum(source.path.parent == path.parent for source in sources)
    return path.parent if counts > 1 or path.parent.parent == path.parent else path.parent.parent


def _checkpoint(source: Source, options: ReadOptions) -> _Checkpoint:
    value = source.json
    directions = value.get("higher_is_better")
    subtasks = _subtasks(value.get("group_subtasks"))
    checkpoint = _Checkpoint(source.path, _name(source), _date(value.get("date")), {})
    for task, results in value["results"].items():
        if task in subtasks or not isinstance(results, dict):
            continue
        found = _metric(task, results, directions if isinstance(directions, dict) else {}, options)
        if found is not None:
            checkpoint.metrics[task], checkpoint.values[task] = found
            count = _examples(value, task)
            if count:
                checkpoint.examples[task] = count
    if not checkpoint.values:
        what = f"the metric {options.metric}" if options.metric else "a loss" if options.losses else "an accuracy"
        raise InputError(
            f"{source.path}: no task has {what}. Choose a metric with --metric, such as --metric acc_norm,none, or pass"
            " --losses"
            " for perplexities."
        )
    return checkpoint


def _subtasks(groups: Any) -> set[str]:
    """Return the tasks that are part of a group, whose own result is listed too."""
    if not isinstance(groups, dict):
        return set()
    return {str(name) for group, names in groups.items() if isinstance(names, list) for name in names if name != group}


def _name(source: Source) -> str:
    model = source.json.get("model_name")
    return f"{source.path.parent.name}/{source.path.stem}/{model if isinstance(model, str) else ''}"[:1000]


def _date(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


def _examples(value: Mapping[str, Any], task: str) -> int:
    counts = value.get("n-samples")
    entry = counts.get(task) if isinstance(counts, dict) else None
    number = entry.get("effective") if isinstance(entry, dict) else None
    return number if isinstance(number, int) and not isinstance(number, bool) and number > 0 else 0


def _metric(
    task: str, results: Mapping[str, Any], directions: Mapping[str, Any], options: ReadOptions
) -> tuple[str, float] | None:
    """Return name and value of the metric to read: the named one, or the first known accuracy (or loss) of the task."""
    numbers = {
        name: float(value)
        for name, value in results.items()
        if isinstance(value, int | float)
        and not isinstance(value, bool)
        and "_stderr" not in name
        and name != "sample_len"
    }
    if options.metric is not None:
        wanted = [name for name in numbers if options.metric in (name, name.partition(",")[0])]
        return (wanted[0], numbers[wanted[0]]) if wanted else None
    known = directions.get(task)
    preferred = _LOSSES if options.losses else _ACCURACIES
    ranked = sorted((preferred.index(base), name) for name in numbers if (base := name.partition(",")[0]) in preferred)
    if ranked:
        return ranked[0][1], numbers[ranked[0][1]]
    for name, value in numbers.items():
        direction = known.get(name.partition(",")[0]) if isinstance(known, dict) else None
        if direction is (not options.losses) and (options.losses or 0 <= value <= 1):
            return name, value
    return None


def _run(folder: Path, sources: Sequence[Source], options: ReadOptions) -> ImportedRun:
    checkpoints = _ordered([_checkpoint(source, options) for source in sources])
    tasks = list(dict.fromkeys(task for entry in checkpoints for task in entry.values))
    check_table_size(str(folder), len(checkpoints), len(tasks))
    initial, steps = _split_initial(checkpoints, options)
    curriculum = _curriculum(folder, steps, tasks, options)
    measure: Measure = options.measure
    table = _rows(steps, tasks)
    for step, row in enumerate(table):
        absent = [tasks[task] for task in set(curriculum[: step + 1]) if np.isnan(row[task])]
        if absent:
            raise InputError(
                f"{steps[step].path}: expected a result of {absent[0]!r}, which was trained by then, got none."
            )
    source = folder if len(sources) > 1 else sources[0].path
    check_values(str(source), table, measure)
    metrics = dict.fromkeys(entry.metrics[task] for entry in checkpoints for task in entry.metrics)
    examples = [min((entry.examples.get(task, 0) for entry in checkpoints), default=0) for task in tasks]
    missing = ["evaluations within tasks", "costs (parameters, stored examples, operations)"]
    if initial is None:
        missing.insert(0, "results before training (evaluate the base model and name it base)")
    return ImportedRun(
        format="lm-evaluation-harness",
        files=tuple(entry.path for entry in checkpoints),
        source=source,
        table=table,
        curriculum=curriculum,
        initial=None if initial is None else _rows([initial], tasks)[0],
        task_names=tuple(tasks),
        measure=measure,
        test_examples=tuple(examples) if all(examples) else (),
        notes=(
            f"{len(checkpoints)} checkpoints: {shorten_text(', '.join(_short_name(entry) for entry in checkpoints))}",
            f"metric {', '.join(metrics)}",
            f"trained tasks: {shorten_text(', '.join(tasks[task] for task in curriculum))}",
        ),
        missing=tuple(missing),
    )


def _short_name(checkpoint: _Checkpoint) -> str:
    return checkpoint.name.rpartition("/")[2] or checkpoint.path.name


def _rows(checkpoints: Sequence[_Checkpoint], tasks: Sequence[str]) -> FloatArray:
    return np.array([[entry.values.get(task, np.nan) for task in tasks] for entry in checkpoints])


def _ordered(checkpoints: list[_Checkpoint]) -> list[_Checkpoint]:
    numbers = [_step_number(entry) for entry in checkpoints]
    if all(number is not None for number in numbers) and len(set(numbers)) == len(numbers):
        return sorted(checkpoints, key=lambda entry: _step_number(entry) or 0)
    before = [entry for entry in checkpoints if _is_before(entry)]
    after = [entry for entry in checkpoints if not _is_before(entry)]
    return before + sorted(after, key=lambda entry: (entry.date, natural_key(entry.path.name)))


def _step_number(checkpoint: _Checkpoint) -> int | None:
    numbers = _STEP.findall(checkpoint.name)
    if numbers:
        return int(numbers[-1])
    return -1 if _is_before(checkpoint) else None


def _is_before(checkpoint: _Checkpoint) -> bool:
    return bool(_BEFORE.search(checkpoint.name))


def _split_initial(
    checkpoints: list[_Checkpoint], options: ReadOptions
) -> tuple[_Checkpoint | None, list[_Checkpoint]]:
    states_all = options.curriculum is not None and len(options.curriculum) == len(checkpoints)
    if len(checkpoints) > 1 and _is_before(checkpoints[0]) and not states_all:
        return checkpoints[0], checkpoints[1:]
    if options.curriculum is not None and len(options.curriculum) == len(checkpoints) - 1:
        return checkpoints[0], checkpoints[1:]
    return None, checkpoints


def _curriculum(
    folder: Path, steps: Sequence[_Checkpoint], tasks: Sequence[str], options: ReadOptions
) -> tuple[int, ...]:
    if options.curriculum is not None:
        return _given_curriculum(folder, steps, tasks, options.curriculum)
    trained = []
    for entry in steps:
        lower = entry.name.lower()
        named = [task for task in tasks if re.search(rf"(?<![a-z0-9]){re.escape(task.lower())}(?![a-z0-9])", lower)]
        if len(named) != 1:
            raise InputError(
                f"{entry.path}: the files do not state which task was trained before the checkpoint"
                f" {_short_name(entry)!r}. Name"
                f" the task of each of the {len(steps)} checkpoints: --curriculum {','.join(tasks)[:200]}."
            )
        trained.append(tasks.index(named[0]))
    return tuple(trained)


def _given_curriculum(
    folder: Path, steps: Sequence[_Checkpoint], tasks: Sequence[str], names: Sequence[str]
) -> tuple[int, ...]:
    if len(names) != len(steps):
        raise InputError(
            f"{folder}: expected the task of each of {len(steps)} checkpoints in --curriculum, got {len(names)}."
        )
    indices = []
    for name in names:
        if name in tasks:
            indices.append(tasks.index(name))
        elif name.isascii() and name.isdigit() and 1 <= int(name[:9]) <= len(tasks):
            indices.append(int(name) - 1)
        else:
            raise InputError(
                f"{steps[0].path}: unknown task {name[:80]!r} in --curriculum; the files hold {shorten_text(', '.join(tasks))}."
            )
    return tuple(indices)
