"""Loading of benchmarks by name, or from a user's files."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.base.errors import InputError
from perdure.tasks.benchmarks.tiny_imagenet import is_tiny_imagenet, tiny_imagenet_source
from perdure.tasks.files.archives import open_files
from perdure.tasks.registry import BENCHMARKS
from perdure.tasks.sequence import Plan, split_by_class
from perdure.tasks.user_data.arrays import npz_source
from perdure.tasks.user_data.image_folders import image_folder_source
from perdure.tasks.user_data.tables import table_source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.tasks.benchmark import Benchmark, Scenario, Source

_TABLES = {".csv", ".data", ".tsv"}
_MOST_TASKS = 10


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
    """Return a registered benchmark, or a benchmark made from a user's npz file, images or table.

    ``name``: a registered name, or a path. A benchmark from a path is named after the file without its suffix;
    ``provenance["source"]`` is the path.

    ``scenario``, ``tasks``: None for the benchmark's defaults. ``order_seed``: None for the official class order, an integer
    for a random order. ``curriculum``: the task (0-based) of each step, None for each task once. ``per_class``: training
    examples per class in a task. ``validation``: share of each class's training examples (after ``per_class``) that is set
    aside. ``seed``: draws the subset, the validation split and the permutations, never the test set. ``data_dir``: folder of
    the data files, where missing files are downloaded to; None for $PERDURE_DATA or the platform's cache folder.

    Examples
    --------
    >>> from perdure import tasks
    >>> benchmark = tasks.load("split-digits")
    >>> [task.classes for task in benchmark.tasks]
    [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]
    >>> benchmark.curriculum
    (0, 1, 2, 3, 4)
    >>> benchmark.tasks[0].train.x.shape
    (270, 1, 8, 8)

    Another order of the classes, and a curriculum that visits the first task twice:

    >>> order = [0, 1, 2, 3, 4, 0]
    >>> benchmark = tasks.load("split-digits", order_seed=1, curriculum=order)
    >>> len(benchmark.tasks), benchmark.curriculum
    (5, (0, 1, 2, 3, 4, 0))

    Your own data:

    >>> import numpy as np
    >>> x, y = np.random.default_rng(0).normal(size=(100, 3)), np.arange(100) % 4
    >>> train, test = (
    ...     {"x_train": x[:80], "y_train": y[:80]},
    ...     {"x_test": x[80:], "y_test": y[80:]},
    ... )
    >>> np.savez("mine.npz", **train, **test)
    >>> [task.classes for task in tasks.load("mine.npz", tasks=2).tasks]
    [(0, 1), (2, 3)]
    """
    name = os.fspath(name)

    def plan(default_scenario: Scenario, default_tasks: int) -> Plan:
        result = Plan(
            name=name,
            scenario=scenario or default_scenario,
            tasks=default_tasks if tasks is None else tasks,
            seed=seed,
            order_seed=order_seed,
            curriculum=None if curriculum is None else tuple(curriculum),
            per_class=per_class,
            validation=validation,
        )
        result.visits()  # raises errors in the curriculum before any download
        return result

    path = Path(name).expanduser()
    if name and name not in BENCHMARKS and (path.exists() or _looks_like_a_path(name)):
        source = _user_data(path)
        benchmark = split_by_class(source, plan("class", _default_tasks(len(source.class_names))))
        return replace(benchmark, name=path.resolve().stem)
    entry = BENCHMARKS.get(name)
    ready = plan(entry.description.scenario, entry.description.tasks)
    return entry.split(entry.read(data_folder(data_dir), progress), ready)


def _looks_like_a_path(name: str) -> bool:
    return "/" in name or "\\" in name or Path(name).suffix in {".npz", ".zip", *_TABLES}


def _user_data(path: Path) -> Source:
    """Read a user's data in the format that the suffix of the path names."""
    if not path.exists():
        raise InputError(
            f"{path}: no such file or folder. Expected an npz file, a folder or zip file of images, or a CSV table."
        )
    if path.suffix == ".npz":
        return npz_source(path)
    if path.suffix in _TABLES:
        return table_source(path)
    if path.is_dir() or path.suffix in {".zip", ".tar"}:
        files = open_files(path)
        return tiny_imagenet_source(files) if is_tiny_imagenet(files) else image_folder_source(files)
    raise InputError(f"{path}: expected .npz, .csv, .tsv, .data, .zip or a folder, got {path.suffix or 'no suffix'}.")


def _default_tasks(classes: int) -> int:
    """Return the largest number of equal tasks, at most ten, with at least two classes each; 1 if there is none."""
    counts = range(1, _MOST_TASKS + 1)
    return max(count for count in counts if classes % count == 0 and (classes // count > 1 or count == 1))


def data_folder(data_dir: str | os.PathLike[str] | None) -> Path:
    """Return the folder of the data files: ``data_dir``, else $PERDURE_DATA, else the platform's cache folder."""
    if data_dir is not None:
        return Path(data_dir).expanduser()
    if folder := os.environ.get("PERDURE_DATA"):
        return Path(folder).expanduser()
    import pooch  # noqa: PLC0415  (imports requests, which most calls do not need)

    return Path(pooch.os_cache("perdure"))
