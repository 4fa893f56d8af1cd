"""From a name or a path to a benchmark."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.base.errors import InputError, suggest
from perdure.tasks import registry
from perdure.tasks.benchmarks.tiny_imagenet import is_tiny_imagenet, tiny_imagenet_source
from perdure.tasks.files.archives import open_files
from perdure.tasks.files.download import data_folder
from perdure.tasks.own_data.arrays import npz_source
from perdure.tasks.own_data.folders import folder_source
from perdure.tasks.own_data.tables import table_source
from perdure.tasks.sequence import Plan, split_by_class

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.tasks.benchmark import Benchmark, Scenario
    from perdure.tasks.source import Source

_TABLES = {".csv", ".data", ".tsv"}


def load(
    name: str | os.PathLike[str],
    *,
    scenario: Scenario | None = None,
    seed: int = 0,
    order_seed: int | None = None,
    curriculum: Sequence[int] | None = None,
    per_class: int | None = None,
    validation: float = 0.0,
    tasks: int | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> Benchmark:
    """Return a benchmark by its registered name, or one made from a user's npz file, images or table.

    A benchmark of one's own is called by the file's name without its ending; ``provenance["source"]`` is
    the path.

    ``scenario``, ``tasks``: None for the benchmark's own. ``order_seed``: None for the official class
    order, a number for a random one. ``curriculum``: 0-based visits, None for each task once.
    ``per_class``: so many training examples of each class in a task. ``validation``: share of each class's
    training examples (after ``per_class``) set aside. ``seed`` draws the subset, the validation split and
    the permutations; never the test set. ``data_dir``: where the files are or are put, None for
    $PERDURE_DATA or the platform's cache folder.
    """
    name = os.fspath(name)
    given = Path(name).expanduser()
    known = name in registry.names()
    if not known and (not name or not given.exists()):
        raise InputError(_unknown(name))

    def plan(default: Scenario, count: int) -> Plan:
        made = Plan(
            name=name,
            scenario=scenario or default,
            tasks=count if tasks is None else tasks,
            seed=seed,
            order_seed=order_seed,
            curriculum=None if curriculum is None else tuple(curriculum),
            per_class=per_class,
            validation=validation,
        )
        made.visits()  # a mistake in the options should not cost a download first
        return made

    if known:
        entry = registry.find(name)
        ready = plan(entry.about.scenario, entry.about.tasks)
        return entry.cut(entry.read(data_folder(data_dir), progress), ready)
    source = _own_data(given)
    benchmark = split_by_class(source, plan("class", _fitting_tasks(len(source.class_names))))
    return replace(benchmark, name=given.resolve().stem)


def _unknown(name: str) -> str:
    """Say that a name is neither a benchmark nor a path, whichever it looks more like."""
    if "/" in name or "\\" in name or Path(name).suffix in {".npz", ".zip", *_TABLES}:
        return f"{name}: no such file or folder, expected an npz file, a folder or zip of images, or a csv table"
    return f"benchmark {name!r} is unknown: {suggest(name, registry.names())}"


def _own_data(path: Path) -> Source:
    """Read a user's data by what they are."""
    if path.suffix == ".npz":
        return npz_source(path)
    if path.suffix in _TABLES:
        return table_source(path)
    if path.is_dir() or path.suffix in {".zip", ".tar"}:
        files = open_files(path)
        return tiny_imagenet_source(files) if is_tiny_imagenet(files) else folder_source(files)
    raise InputError(f"{path}: a {path.suffix or 'nameless'} file, expected .npz, .csv, .tsv, .data, .zip or a folder")


def _fitting_tasks(classes: int) -> int:
    """Return the most tasks, ten at most, that give each two classes or more."""
    return max(count for count in range(1, 11) if classes % count == 0 and (classes // count > 1 or count == 1))
