"""What all units of a call need: pickled once to a file instead of with every unit, and prepared once in each process."""

from __future__ import annotations

import glob
import hashlib
import os
import pickle
import platform
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, TypeVar

from perdure.base.errors import InputError
from perdure.base.files import is_running

Prepared = TypeVar("Prepared")
FOLDER = "units"
SUFFIX = ".pickle"
MOST_PREPARED = 2
"""Prepared objects that a worker process keeps."""


class Shared(Generic[Prepared]):
    """An object for all units of a call. A worker calls ``prepare(job)`` once for each device and keeps the result.

    In the process that made it, the prepared object is ``here``. The job is written below ``folder`` when it is first sent
    to another process. A worker reads the file only if it has the SHA-256 that the unit states.
    """

    def __init__(self, job: Any, prepare: Callable[[Any], Prepared], folder: Path, here: Prepared) -> None:
        self.job, self.prepare, self.folder, self.here = job, prepare, folder.absolute() / FOLDER, here
        self.file: Path | None = None
        self.sha256 = ""

    def __getstate__(self) -> dict[str, Any]:
        if self.file is None:
            self.file, self.sha256 = self._write()
        return {"file": self.file, "sha256": self.sha256, "prepare": self.prepare}

    def _write(self) -> tuple[Path, str]:
        content = pickle.dumps(self.job)
        self.folder.mkdir(parents=True, exist_ok=True)
        prefix = f"{platform.node()}-"
        for abandoned in self.folder.glob(f"{glob.escape(prefix)}*{SUFFIX}"):
            process = abandoned.name.removeprefix(prefix).partition("-")[0]
            if process.isdigit() and not is_running(int(process)):
                abandoned.unlink(missing_ok=True)
        handle, name = tempfile.mkstemp(dir=self.folder, prefix=f"{prefix}{os.getpid()}-", suffix=SUFFIX)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        return Path(name), hashlib.sha256(content).hexdigest()

    def prepared(self, device: str | None = None) -> Prepared:
        """Return the prepared object of this process; networks stay on the device of the unit."""
        if "here" in self.__dict__:
            return self.here
        prepared: Prepared = _prepared(self.file, self.sha256, self.prepare, device)
        return prepared

    def remove(self) -> None:
        """Remove the file."""
        if self.file is not None:
            self.file.unlink(missing_ok=True)


@lru_cache(maxsize=MOST_PREPARED)
def _prepared(file: Path, sha256: str, prepare: Callable[[Any], Any], device: str | None) -> Any:  # noqa: ARG001
    content = file.read_bytes()
    if hashlib.sha256(content).hexdigest() != sha256:
        raise InputError(f"{file}: the file was changed after it was written; run the command again")
    return prepare(pickle.loads(content))  # noqa: S301  (its digest came with the unit)


@contextmanager
def shared_by_units(
    job: Any, prepare: Callable[[Any], Prepared], folder: Path, here: Prepared
) -> Iterator[Shared[Prepared]]:
    """Yield what the units of a call share; its file is removed at the end."""
    shared = Shared(job, prepare, folder, here)
    try:
        yield shared
    finally:
        shared.remove()
