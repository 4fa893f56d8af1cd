"""The benchmarks known by name: what they are, where they come from, how they are read and cut."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from perdure.tasks.benchmark import Benchmark, Scenario
from perdure.tasks.digits import read_digits
from perdure.tasks.sequence import Plan, split_by_class
from perdure.tasks.source import Source

Reader = Callable[[Path, bool], Source]
Cutter = Callable[[Source, Plan], Benchmark]


@dataclass(frozen=True)
class Description:
    """What a user wants to know of a benchmark before running it; ``download`` is in bytes, 0 for none."""

    name: str
    classes: int
    tasks: int
    scenario: Scenario
    input_shape: tuple[int, ...]
    source: str
    licence: str
    citation: str
    download: int


@dataclass(frozen=True)
class Entry:
    """A benchmark's description, the reader of its files and the way its data become tasks."""

    about: Description
    read: Reader
    cut: Cutter = split_by_class


def entries() -> dict[str, Entry]:
    """Return every registered benchmark by its name."""
    listed = [
        Entry(
            Description(
                name="split-digits",
                classes=10,
                tasks=5,
                scenario="class",
                input_shape=(1, 8, 8),
                source="scikit-learn, load_digits",
                licence="CC BY 4.0",
                citation="Alpaydin & Kaynak 1998, Optical Recognition of Handwritten Digits (UCI)",
                download=0,
            ),
            read_digits,
        ),
    ]
    return {entry.about.name: entry for entry in listed}
