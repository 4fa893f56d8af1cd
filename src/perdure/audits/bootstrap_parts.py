"""The bootstrap replicates of a CLAMP fit as units of an engine; finished parts are stored and reused."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perdure.base.errors import InputError
from perdure.base.files import read_bytes, write_atomically
from perdure.engine import Engine, Unit, UnitContext
from perdure.engine.completion import complete_units
from perdure.surrogate.diagnostics.intervals import BootstrapPart

FOLDER = "bootstrap"
LARGEST_FILE = 2**30
DIGITS = 16
FloatArray = NDArray[np.float64]
Refit = Callable[[BootstrapPart], FloatArray]
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class EngineParts:
    """Fits the parts of `perdure.surrogate.bootstrap` with an engine; ``folder`` is where results are stored, if anywhere."""

    engine: Engine
    folder: Path | None = None
    progress: Progress | None = None

    def __call__(self, refit: Refit, parts: Sequence[BootstrapPart]) -> list[FloatArray]:
        """Return the fitted points of every part."""
        files = [None if self.folder is None else _file(self.folder.absolute(), part) for part in parts]
        units = [
            Unit(
                name=f"bootstrap-{_digest(part)}",
                label=f"bootstrap, part {number} of {len(parts)}",
                function=compute_bootstrap_part,
                arguments={"refit": refit, "part": part, "file": file},
                cores=self.engine.threads,
                finished=file is not None and file.exists(),
            )
            for number, (part, file) in enumerate(zip(parts, files, strict=True), start=1)
        ]
        result = complete_units(self.engine, units, self.progress)
        return [
            outcome.value if file is None else _read(file, part)
            for outcome, file, part in zip(result.outcomes, files, parts, strict=True)
        ]


def compute_bootstrap_part(
    _context: UnitContext, refit: Refit, part: BootstrapPart, file: Path | None
) -> FloatArray | None:
    """Fit the curves of a part, and store the result in a file or return it."""
    points = refit(part)
    if file is None:
        return points
    content = io.BytesIO()
    np.save(content, points)
    write_atomically(file, content.getvalue())
    return None


def _file(folder: Path, part: BootstrapPart) -> Path:
    return folder / FOLDER / f"{_digest(part)}.npy"


def _read(file: Path, part: BootstrapPart) -> FloatArray:
    try:
        points: FloatArray = np.load(io.BytesIO(read_bytes(file, LARGEST_FILE)), allow_pickle=False)
    except ValueError as error:
        raise InputError(f"{file}: not an array ({error}). Delete the file and run the command again.") from None
    expected = (len(part.targets), len(part.point))
    if points.shape != expected or points.dtype != np.float64:
        raise InputError(
            f"{file}: an array of shape {points.shape}, expected {expected}. Delete the file and run the command again."
        )
    return points


def _digest(part: BootstrapPart) -> str:
    """Return a digest of everything that determines the fitted points."""
    total = hashlib.sha256()
    for array in _arrays(part):
        plain = np.ascontiguousarray(array)
        total.update(f"{plain.dtype.str}{plain.shape}".encode() + plain.tobytes())
    return total.hexdigest()[:DIGITS]


def _arrays(part: BootstrapPart) -> Iterable[NDArray[np.generic]]:
    yield from (part.point, part.weights, part.targets, np.array(part.strength))
    for block in part.problem.blocks:
        yield from (block.values, np.array(block.curriculum), np.array(block.algorithms))
