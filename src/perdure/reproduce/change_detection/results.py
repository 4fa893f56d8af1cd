"""The results of one data set: scores of every method in every trial, stored as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.audits.serialization import from_json, to_json
from perdure.base.errors import InputError
from perdure.base.files import read_json, write_json
from perdure.reproduce.change_detection.rates import Scores
from perdure.reproduce.provenance import UNKNOWN, Provenance

FOLDER = "change-detection"


@dataclass(frozen=True, eq=False)
class MethodResult:
    """A method's scores: harmless trials, and changed trials by kind."""

    name: str
    title: str
    examples: int
    """Explained examples; 0 for a method that uses no attributions."""
    references: int
    """Versions that were retrained on the same data; 0 for a method that compares OLD with NEW only."""
    harmless: Scores
    changed: dict[str, Scores]


@dataclass(frozen=True)
class DataSetResult:
    """All methods on one data set."""

    name: str
    title: str
    key: dict[str, Any]
    """What determines the results."""
    date: str
    software: dict[str, str]
    accuracy: dict[str, NDArray[np.float64]]
    """Accuracy of each model, by kind."""
    methods: tuple[MethodResult, ...]
    not_run: dict[str, str]
    """Why a method was not run, by its title."""
    commit: str = UNKNOWN
    modified: bool = False

    @property
    def provenance(self) -> Provenance:
        """When and with which code the results were computed."""
        day = date.fromisoformat(self.date)
        software = ", ".join(f"{name} {version}" for name, version in self.software.items())
        return Provenance(day, day, self.commit, self.modified, software, "")

    def method(self, name: str, examples: int | None = None, references: int | None = None) -> MethodResult | None:
        """Return a method's result; None if there is none."""
        for method in self.methods:
            if method.name == name and examples in (None, method.examples) and references in (None, method.references):
                return method
        return None

    def accuracy_change(self, kind: str) -> float:
        """Return the mean accuracy of the changed models minus that of the harmless ones."""
        return float(self.accuracy[kind].mean() - self.accuracy["retrained"].mean())


def joined_provenance(results: Sequence[DataSetResult]) -> Provenance:
    """Return the provenance of several data sets: all days, and the commit of the earliest."""
    stated = sorted((result.provenance for result in results), key=lambda entry: entry.first)
    return replace(stated[0], last=stated[-1].last, modified=any(entry.modified for entry in stated))


def result_file(out: Path, name: str) -> Path:
    """Return the file of a data set's results."""
    return out / FOLDER / f"{name}.json"


def store_result(result: DataSetResult, out: Path) -> None:
    """Write the results of a data set."""
    write_json(result_file(out, result.name), to_json(result))


def stored_result(out: Path, name: str) -> DataSetResult | None:
    """Return the stored results of a data set; None if there are none."""
    file = result_file(out, name)
    if not file.exists():
        return None
    try:
        return from_json(read_json(file), DataSetResult)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{file}: not a result of this benchmark ({error}); delete the file") from None
