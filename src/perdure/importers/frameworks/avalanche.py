"""avalanche: eval_results.csv of its CSVLogger, and the dictionary of EvaluationPlugin.get_all_metrics() dumped as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from perdure.base.errors import InputError
from perdure.base.files import MOST_STEPS, parse_csv_index, parse_csv_number, read_csv_file, shorten_text
from perdure.importers.imported_run import ImportedRun, ReadOptions, check_values, importer
from perdure.importers.metric_names import find_family
from perdure.importers.series import BEFORE_TRAINING, TimedEvaluation, arrange_evaluations
from perdure.importers.source import Source

CSV_COLUMNS = ["eval_exp", "training_exp", "eval_accuracy", "eval_loss", "forgetting"]
FOUR_DECIMALS = "avalanche's CSVLogger rounds to four decimals"


def _is_csv(source: Source) -> bool:
    return source.first_line.split(",")[:3] == CSV_COLUMNS[:3]


@importer("avalanche-csv", title="avalanche (eval_results.csv)", detects=_is_csv)
def read_avalanche_csv(sources: Sequence[Source], options: ReadOptions) -> list[ImportedRun]:
    """Read eval_results.csv: one row for each evaluated experience, experiences from 0, ``None`` before training.

    The logger writes 0 for a metric that is not monitored, and a float with four decimals otherwise.
    """
    return [_read_csv(source, options) for source in sources]


def _read_csv(source: Source, options: ReadOptions) -> ImportedRun:
    path = source.path
    header, *rows = read_csv_file(path)
    column = "eval_loss" if options.losses else "eval_accuracy"
    missing = [name for name in ("eval_exp", "training_exp", column) if name not in header]
    if missing:
        raise InputError(f"{path}: expected the column {missing[0]}, got {shorten_text(', '.join(header))}.")
    if not rows:
        raise InputError(f"{path}: expected at least one evaluation below the header, got none.")
    positions = {name: header.index(name) for name in ("eval_exp", "training_exp", column)}
    if all(row[positions[column]] == "0" for row in rows):
        metric = "loss_metrics" if options.losses else "accuracy_metrics"
        raise InputError(
            f"{path}, column {column}: all values are 0, which avalanche writes for a metric that is not monitored. Add"
            f" {metric}(experience=True) to the EvaluationPlugin."
        )
    evaluations: list[TimedEvaluation] = []
    repeated = 0
    seen: dict[int, str] = {}
    for number, row in enumerate(rows, start=2):
        task = parse_csv_index(path, number, "eval_exp", row[positions["eval_exp"]], lowest=0, highest=MOST_STEPS)
        trained_cell = row[positions["training_exp"]]
        trained = (
            BEFORE_TRAINING
            if trained_cell == "None"
            else parse_csv_index(path, number, "training_exp", trained_cell, lowest=0, highest=MOST_STEPS)
        )
        if not evaluations or evaluations[-1].trained != trained:
            seen = {}
        cell = row[positions[column]]
        repeated += seen.get(task, cell) != cell
        seen[task] = cell
        # One position per step: a second evaluation of the same stream replaces the first one.
        start = evaluations[-1].position if evaluations and evaluations[-1].trained == trained else number
        value = parse_csv_number(path, number, column, cell)
        evaluations.append(TimedEvaluation(float(start), {task: value}, trained))
    tasks = 1 + max(max(entry.trained, *entry.values) for entry in evaluations)
    arranged = arrange_evaluations(str(path), evaluations, tasks)
    check_values(str(path), arranged.table, options.measure)
    notes = [FOUR_DECIMALS]
    if repeated:
        notes.append(f"{repeated} experiences were evaluated again after the same training; the last value is used")
    return ImportedRun(
        format="avalanche-csv",
        files=(path,),
        source=path,
        table=arranged.table,
        curriculum=arranged.curriculum,
        initial=arranged.initial,
        measure=options.measure,
        notes=tuple(notes),
        missing=_missing(arranged.initial is None, has_evaluations=False),
    )


def _missing(no_initial: bool, has_evaluations: bool) -> tuple[str, ...]:
    missing = ["costs (parameters, stored examples, operations)"]
    if no_initial:
        missing.insert(0, "accuracies before training (call strategy.eval before the first strategy.train)")
    if not has_evaluations:
        missing.insert(0, "evaluations within tasks")
    return tuple(missing)


def _is_metrics(source: Source) -> bool:
    value = source.json
    if not isinstance(value, dict) or not value:
        return False
    return any("_phase/" in name and _is_series(series) for name, series in value.items())


def _is_series(series: Any) -> bool:
    return isinstance(series, list) and len(series) == 2 and all(isinstance(part, list) for part in series)


@importer("avalanche-metrics", title="avalanche (get_all_metrics() as JSON)", detects=_is_metrics)
def read_avalanche_metrics(sources: Sequence[Source], options: ReadOptions) -> list[ImportedRun]:
    """Read get_all_metrics(): each metric has a list of training iterations and a list of values.

    The dictionary does not say which experience is trained; experiences are trained once, in order. Values that are repeated at
    the same iteration (evaluations within training and an explicit call) count once, the last one.
    """
    return [_read_metrics(source, options) for source in sources]


def _read_metrics(source: Source, options: ReadOptions) -> ImportedRun:
    path = source.path
    series = {name: value for name, value in source.json.items() if _is_series(value)}
    family = find_family(str(path), series, losses=options.losses, metric=options.metric)
    rows: dict[tuple[float, int], dict[int, float]] = {}
    repeated = 0
    for name, task in family.names.items():
        times, values = series[name]
        if len(times) != len(values):
            raise InputError(
                f"{path}, key {shorten_text(name, 120)}: expected as many values as iterations, got {len(values)} and"
                f" {len(times)}."
            )
        for time, value in zip(times, values, strict=True):
            if not _is_number(time) or not _is_number(value):
                raise InputError(
                    f"{path}, key {shorten_text(name, 120)}: expected numbers, got {shorten_text(repr((time, value)), 80)}."
                )
            row = rows.setdefault((float(time), 0), {})
            repeated += task in row
            row[task] = float(value)
    evaluations = [
        TimedEvaluation(time, values) for (time, _), values in sorted(rows.items(), key=lambda item: item[0])
    ]
    arranged = arrange_evaluations(str(path), evaluations, family.tasks)
    check_values(str(path), arranged.table, options.measure)
    notes = [f"metric {family.pattern}", "experiences are trained once, in order (the file does not state it)"]
    if repeated:
        notes.append(f"{repeated} values have the same iteration as an earlier one; the last value is used")
    if family.others:
        notes.append(f"other metrics in the file: {', '.join(family.others)}")
    return ImportedRun(
        format="avalanche-metrics",
        files=(path,),
        source=path,
        table=arranged.table,
        curriculum=arranged.curriculum,
        initial=arranged.initial,
        evaluations=arranged.evaluations,
        measure=options.measure,
        notes=(*notes, *arranged.notes),
        missing=_missing(arranged.initial is None, bool(arranged.evaluations)),
        reported=_reported(series),
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _reported(series: dict[str, Any]) -> dict[str, float]:
    """Return the last values of avalanche's own forgetting and backward transfer over the test stream."""
    reported = {}
    for metric in ("StreamForgetting", "StreamBWT"):
        for name, (_, values) in series.items():
            if name == f"{metric}/eval_phase/test_stream" and values and _is_number(values[-1]):
                reported[metric] = float(np.float64(values[-1]))
    return reported
