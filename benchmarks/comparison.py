"""What a benchmark yields if it compares perdure with another library, and what the page needs to know about it."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, TypeAlias

from perdure.reproduce.provenance import Provenance

SHAPIQ_PYTHON = "PERDURE_SHAPIQ_PYTHON"
"""Environment variable: the Python of an environment with shapiq 1.8 and lightgbm."""
SAME_RESULT = "CPU seconds for the same result"
SAME_ERROR = "CPU seconds to the same error"
ERROR = "error at the same number of evaluations"
Bound: TypeAlias = Literal["", "at least", "at most"]


@dataclass(frozen=True)
class Side:
    """One side of a comparison: what was run, the compared value (smaller is better), and what else was measured."""

    name: str
    version: str
    value: float
    seconds: float | None = None
    error: float | None = None
    evaluations: int | None = None


@dataclass(frozen=True)
class Comparison:
    """One quantity of ours and of the alternative. ``ratio``: the value of the alternative divided by ours.

    ``ratio`` is given if it is not the quotient of the two values, for example a median of paired ratios. ``bound``: the ratio
    is only a bound. ``summary``: whether the first table of the page shows it.
    """

    task: str
    quantity: str
    ours: Side
    other: Side
    ratio: float = field(default=0.0)
    bound: Bound = ""
    summary: bool = True
    note: str = ""

    def __post_init__(self) -> None:
        if not self.ratio:
            object.__setattr__(self, "ratio", self.other.value / self.ours.value)

    def row(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self)

    def line(self) -> str:
        """Return the comparison as one line of text."""
        bound = f" {self.bound}" if self.bound else ""
        return (
            f"{self.task}; {self.other.name} ({self.other.version}) / {self.ours.name}, {self.quantity}: "
            f"{self.other.value:.4g} / {self.ours.value:.4g}, ratio{bound} {self.ratio:.3g}"
        ).replace("`", "")


@dataclass(frozen=True)
class NotMeasured:
    """An alternative that was not compared, and why."""

    task: str
    other: str
    reason: str

    def row(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self)

    def line(self) -> str:
        """Return the reason as one line of text."""
        return f"{self.task}; {self.other}: not measured: {self.reason}"


def comparison_from_row(row: Mapping[str, Any]) -> Comparison | NotMeasured:
    """Return what a stored row holds."""
    if "reason" in row:
        return NotMeasured(row["task"], row["other"], row["reason"])
    return Comparison(
        row["task"],
        row["quantity"],
        Side(**row["ours"]),
        Side(**row["other"]),
        row["ratio"],
        row["bound"],
        row["summary"],
        row["note"],
    )


@dataclass(frozen=True)
class Options:
    """Options of all comparisons. ``smoke``: the smallest sizes, a few seconds; the numbers mean nothing."""

    smoke: bool = False
    data_dir: Path | None = None
    shapiq_python: str | None = None


@dataclass(frozen=True)
class Benchmark:
    """Comparisons that are measured together and form one section of the page.

    ``method``: Markdown, how it is measured. ``packages``: packages whose versions the section states. ``plain``: compared with
    plain code instead of a library. ``stored``: returns the provenance of comparisons that are computed from rows which
    another command measures; those are not measured again.
    """

    name: str
    title: str
    method: str
    comparisons: Callable[[Options], Iterator[Comparison | NotMeasured]]
    packages: tuple[str, ...] = ()
    plain: bool = False
    stored: Callable[[], Provenance] | None = None


def our_side(
    name: str,
    value: float,
    *,
    seconds: float | None = None,
    error: float | None = None,
    evaluations: int | None = None,
) -> Side:
    """Return our side of a comparison."""
    return Side(name, f"perdure {version('perdure')}", value, seconds, error, evaluations)


def package_version(package: str) -> str:
    """Return name and version of an installed package; ``""`` if it is not installed."""
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return ""


def missing(*packages: str) -> str:
    """Return why a comparison cannot be made: the packages that are not installed; ``""`` if all are."""
    absent = [package for package in packages if find_spec(package) is None]
    return f"{', '.join(absent)} {'is' if len(absent) == 1 else 'are'} not installed" if absent else ""


def timed(call: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """Return the result of a call and its CPU seconds."""
    start = time.process_time()
    result = call(*arguments)
    return result, time.process_time() - start


def shortest(first: Callable[[], Any], second: Callable[[], Any], repeats: int) -> tuple[float, float]:
    """Return the shortest CPU seconds of two calls that are timed alternately; below the clock's resolution: one tick."""
    times = [(timed(first)[1], timed(second)[1]) for _ in range(repeats)]
    tick = time.get_clock_info("process_time").resolution
    return max(min(a for a, _ in times), tick), max(min(b for _, b in times), tick)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that several benchmarks have."""
    parser.add_argument(
        "--data-dir", type=Path, help="folder with CIFAR-10; default: $PERDURE_DATA or the cache folder"
    )
    parser.add_argument(
        "--shapiq-python",
        default=os.environ.get(SHAPIQ_PYTHON),
        help=f"Python of an environment with shapiq 1.8 and lightgbm (Python 3.12); default: ${SHAPIQ_PYTHON}",
    )
