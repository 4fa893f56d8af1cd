"""ocl_survey (Soutif-Cormerais et al. 2023): logs.json and logs_continual.json, JSON lines with avalanche's names."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perdure.base.errors import InputError, error_message
from perdure.base.files import MOST_VALUES, shorten_text
from perdure.importers.imported_run import ImportedRun, ReadOptions, check_values, importer
from perdure.importers.metric_names import find_family
from perdure.importers.run_names import names_from_path
from perdure.importers.series import TimedEvaluation, arrange_evaluations
from perdure.importers.source import Source

PROBING = "linear_probing"


def _is_log(source: Source) -> bool:
    line = source.first_line
    return line.startswith('{"step":') and source.json_keys == frozenset() and "_phase/" in source.text


@importer("ocl-survey", title="ocl_survey (logs.json, logs_continual.json)", detects=_is_log)
def read_ocl_survey(sources: Sequence[Source], options: ReadOptions) -> list[ImportedRun]:
    """Read JSON lines with the accuracies of the experiences seen so far; their number is the step.

    ``logs.json`` holds the test stream after each experience, ``logs_continual.json`` the validation stream within them. They
    are different data, so they are different runs.
    """
    return [_read(source, options) for source in sources]


def _read(source: Source, options: ReadOptions) -> ImportedRun:
    path = source.path
    records = _records(source)
    names = dict.fromkeys(name for _, record in records for name in record)
    family = find_family(str(path), names, losses=options.losses, metric=options.metric)
    evaluations = []
    for number, record in records:
        values = {task: record[name] for name, task in family.names.items() if record.get(name) is not None}
        if not values:
            continue
        for value in values.values():
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise InputError(f"{path}, line {number}: expected numbers, got {shorten_text(repr(value), 80)}.")
        index = record.get("mb_index", record.get("step"))
        if isinstance(index, bool) or not isinstance(index, int | float) or not math.isfinite(index):
            raise InputError(
                f"{path}, line {number}: expected a number under mb_index, got {shorten_text(repr(index), 80)}."
            )
        evaluations.append(TimedEvaluation(float(index), {task: float(value) for task, value in values.items()}))
    # Evaluations run in parallel, so the lines need not be in the order of time.
    evaluations.sort(key=lambda entry: entry.position)
    arranged = arrange_evaluations(str(path), evaluations, family.tasks)
    check_values(str(path), arranged.table, options.measure)
    learner, seed = names_from_path(path)
    stream = next((name for name in ("test", "valid", "train") if f"/{name}_stream" in family.pattern), "")
    return ImportedRun(
        format="ocl-survey",
        files=(path,),
        source=path,
        table=arranged.table,
        curriculum=arranged.curriculum,
        initial=arranged.initial,
        evaluations=arranged.evaluations,
        learner=f"{learner} ({PROBING.replace('_', ' ')})" if PROBING in path.parts else "",
        seed=seed,
        benchmark=f"{stream} stream" if stream else "",
        measure=options.measure,
        notes=(f"metric {family.pattern}", *arranged.notes),
        missing=_missing(bool(arranged.evaluations)),
    )


def _missing(has_evaluations: bool) -> tuple[str, ...]:
    missing = ("accuracies on future tasks and before training", "costs (parameters, stored examples, operations)")
    return missing if has_evaluations else ("evaluations within tasks (they are in logs_continual.json)", *missing)


def _records(source: Source) -> list[tuple[int, dict[str, Any]]]:
    """Return the objects that hold evaluations, with the number of their line."""
    records = []
    values = 0
    for number, line in enumerate(source.text.split("\n"), start=1):
        if "_phase/" not in line or "eval_phase" not in line:
            continue
        values += line.count(",") + 1
        if values > MOST_VALUES:
            raise InputError(f"{source.path}, line {number}: expected at most {MOST_VALUES} values.")
        records.append((number, parse_json_line(source.path, number, line)))
    if not records:
        raise InputError(f"{source.path}: expected lines with evaluations (eval_phase), got none.")
    return records


def parse_json_line(path: Path, number: int, line: str) -> dict[str, Any]:
    """Return the object in one line of a file of JSON lines."""
    try:
        value = json.loads(line, parse_constant=_refuse, parse_int=_parse_integer)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}, line {number}: not JSON ({error_message(error, 80)}).") from None
    if not isinstance(value, dict):
        raise InputError(f"{path}, line {number}: expected a JSON object.")
    return value


def _parse_integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= 18 else float(digits)


def _refuse(constant: str) -> float:
    if constant == "NaN":
        return math.nan
    raise ValueError(f"{constant} is not JSON")
