'''The registered benchmarks.

A benchmark is one file in ``perdure/tasks/benchmarks/``, or a module of another package that the entry-point group
``perdure.benchmarks`` names. The file describes the benchmark and reads its data. A complete example, which needs no
download:

```python
"""Gaussian blobs in the plane: six classes in three tasks."""

from pathlib import Path

import numpy as np

from perdure.tasks.registry import Description, register_benchmark
from perdure.tasks.benchmark import Source, examples_in_memory


@register_benchmark(
    Description(
        name="blobs", title="Gaussian blobs in the plane", classes=6, tasks=3, scenario="class", input_shape=(2,)
    )
)
def read_blobs(folder: Path, progress: bool) -> Source:
    """Return 50 training and 20 test points per class; the data do not depend on the seed of the benchmark."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(6), 70)
    centers = 4 * np.stack([np.cos(np.arange(6)), np.sin(np.arange(6))], axis=1)
    points = (centers[labels] + rng.normal(size=(len(labels), 2))).astype(np.float32)
    is_test = np.arange(len(labels)) % 70 >= 50
    return Source(
        train=examples_in_memory(points[~is_test], labels[~is_test]),
        test=examples_in_memory(points[is_test], labels[is_test]),
        class_names=tuple(f"blob {number + 1}" for number in range(6)),
    )
```

``perdure run naive --benchmark blobs`` and ``tasks.load("blobs")`` then work. If the file is part of another package, add
to the pyproject.toml of that package::

    [project.entry-points."perdure.benchmarks"]
    blobs = "my_package.blobs"
'''

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from perdure.base.registry import Registry
from perdure.tasks.benchmark import Benchmark, Scenario, Source
from perdure.tasks.sequence import Plan, split_by_class

Reader = Callable[[Path, bool], Source]
"""Reads the data set from a folder, after downloading missing files; the flag says whether to show progress."""
TaskSplit = Callable[[Source, Plan], Benchmark]
"""Divides the data set into tasks."""


@dataclass(frozen=True)
class Description:
    """A benchmark's metadata, available without reading data.

    ``title`` names the data in a few words. ``classes``, ``tasks`` and ``scenario`` are the defaults that the options of
    ``tasks.load`` change. ``download`` is the size of the files in bytes, 0 if there is nothing to download.
    """

    name: str
    title: str
    classes: int
    tasks: int
    scenario: Scenario
    input_shape: tuple[int, ...]
    source: str = ""
    licence: str = ""
    citation: str = ""
    download: int = 0

    @property
    def summary(self) -> str:
        """The data, their division into tasks and the size of the download, in one line."""
        tasks = f"{self.tasks} task{'' if self.tasks == 1 else 's'}"
        if self.scenario == "domain":
            division = f"{tasks} of {self.classes} classes, domain-incremental"
        else:
            division = f"{self.classes} classes in {tasks}"
        return f"{self.title}, {division}; {_size(self.download)}"


def _size(download: int) -> str:
    if download == 0:
        return "no download"
    return f"{download / 1e9:.1f} GB download" if download >= 1e9 else f"{download / 1e6:.0f} MB download"


@dataclass(frozen=True)
class RegisteredBenchmark:
    """A description, the function that reads the data and the function that divides them into tasks."""

    description: Description
    read: Reader
    split: TaskSplit


BENCHMARKS = Registry[RegisteredBenchmark]("benchmark", group="perdure.benchmarks", package="perdure.tasks.benchmarks")


def register_benchmark(description: Description, *, split: TaskSplit = split_by_class) -> Callable[[Reader], Reader]:
    """Return a decorator that registers the function reading a benchmark's data.

    ``split`` divides the data into tasks: by class (default), by domain, or by a transform of the images. One reader may
    be registered for several benchmarks.
    """

    def register(read: Reader) -> Reader:
        BENCHMARKS.add(description.name, RegisteredBenchmark(description, read, split), description.summary)
        return read

    return register


def names() -> list[str]:
    """Return the names of the registered benchmarks, sorted.

    Examples
    --------
    >>> from perdure import tasks
    >>> "split-digits" in tasks.names()
    True
    """
    return BENCHMARKS.names()


def summaries() -> dict[str, str]:
    """Return a one-line description of each registered benchmark, by name."""
    return BENCHMARKS.summaries()


def describe(name: str) -> Description:
    """Return the metadata of a registered benchmark without reading its data.

    Examples
    --------
    >>> from perdure import tasks
    >>> description = tasks.describe("split-cifar10")
    >>> description.tasks, description.input_shape, description.download > 100_000_000
    (5, (3, 32, 32), True)
    """
    return BENCHMARKS.get(name).description
