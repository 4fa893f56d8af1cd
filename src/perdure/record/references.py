"""References of a record to the user's code and data: ``file.py:function``, ``package.module:function`` or a data file.

A record stores where the code is and the SHA-256 of its file, never the code itself. Reading a reference executes nothing.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from perdure.base.errors import InputError, error_message
from perdure.base.files import check_digest, read_versioned_file, write_json
from perdure.base.fingerprints import data_fingerprint, file_fingerprint
from perdure.base.user_code import load_object

SCHEMA = 1
FILE = "references.json"
ROLES = ("network", "data")


@dataclass(frozen=True)
class Reference:
    """Where a network's function or the test data are.

    ``target``: ``file.py:name`` or a data file, relative to the record if possible; or ``package.module:name``. ``sha256``: of
    the file with the code or of the data. ``fingerprint``: of the test data that a function returned when it was stored.
    """

    target: str
    sha256: str
    fingerprint: str | None = None

    @property
    def is_code(self) -> bool:
        """Whether using the reference executes code."""
        return is_code_target(self.target)

    def file(self, record: Path) -> Path:
        """Return the file that the reference leads to; a missing file raises `InputError`."""
        try:
            return target_file(self.target, record)
        except InputError as error:
            place = (record / self.target.rpartition(":")[0]).resolve() if self.target.endswith(".py") else self.target
            raise InputError(
                f"{record}: the record refers to {place}, which is missing ({error}); restore it, or pass network= and data=",
                cli=f"{record}: the record refers to {place}, which is missing ({error}); restore it, or pass --network and "
                "--data (with --store to use them from now on)",
            ) from None

    def load_target(self, record: Path) -> str:
        """Return the target as it can be loaded from the working directory."""
        if not self.is_code:
            return str(self.file(record))
        module, _, name = self.target.rpartition(":")
        return f"{self.file(record)}:{name}" if module.endswith(".py") else self.target


def is_code_target(target: str) -> bool:
    """Return whether a target names something in a Python file: ``file.py:name`` or ``package.module:name``."""
    file, colon, name = target.rpartition(":")
    if not colon or not name.isidentifier():
        return False
    return file.endswith(".py") or all(part.isidentifier() for part in file.split("."))


def target_file(target: str, record: Path | None = None) -> Path:
    """Return the file of a target: next to the record, below the working directory, or of an importable module.

    No code is executed: a module is found by its path, without importing the packages that contain it.
    """
    file = target.rpartition(":")[0] if is_code_target(target) else target
    if is_code_target(target) and not file.endswith(".py"):
        return module_file(file)
    for folder in (*([] if record is None else [record]), Path()):
        if (folder / file).exists():
            return (folder / file).resolve()
    raise InputError(f"{target}: there is no file {file}")


def module_file(name: str) -> Path:
    """Return the file of a module without importing anything."""
    path: list[str] | None = [str(Path.cwd()), *sys.path]
    for part in name.split("."):
        spec = PathFinder.find_spec(part, path)
        if spec is None:
            raise InputError(f"{name}: no such module; run the command in the folder from which it can be imported")
        path = list(spec.submodule_search_locations or ())
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise InputError(f"{name}: expected a module with a Python file")
    return Path(spec.origin).resolve()


def make_reference(source: Any, role: str, record: Path) -> Reference:
    """Return the reference to a function, ``file.py:name``, ``package.module:name`` or a data file.

    A function must be defined at the top level of a module. A function for data is called once, for the fingerprint.
    """
    target = source if isinstance(source, str) else _target_of(source, role)
    if not is_code_target(target):
        if role == "network":
            raise InputError(f"network: {target!r}: expected file.py:function or package.module:function")
        file = target_file(target)
        return Reference(_relative(file, record), file_fingerprint(file))
    file = target_file(target, record)
    fingerprint = None
    if role == "data":
        value = load_object(f"{file}:{target.rpartition(':')[2]}") if isinstance(source, str) else source
        fingerprint = data_fingerprint(value() if callable(value) else value)
    name = target.rpartition(":")[2]
    stored = f"{_relative(file, record)}:{name}" if target.rpartition(":")[0].endswith(".py") else target
    return Reference(stored, file_fingerprint(file), fingerprint)


def _target_of(source: Any, role: str) -> str:
    """Return the target of a function or class, or of a path."""
    if isinstance(source, os.PathLike):
        return str(os.fspath(source))
    name, module = getattr(source, "__qualname__", ""), getattr(source, "__module__", "")
    if not callable(source) or not name.isidentifier():
        raise InputError(
            f"{role}: expected a function at the top level of a module (not a lambda, a method or a function inside a "
            f"function), 'file.py:function' or 'package.module:function', got {getattr(source, '__qualname__', source)!r}"
        )
    try:
        file = inspect.getsourcefile(source)
    except TypeError:
        file = None
    if file is None or not Path(file).is_file():
        raise InputError(f"{role}: {name} is not defined in a Python file; pass 'file.py:function'")
    return f"{module}:{name}" if "." in module else f"{file}:{name}"


def _relative(file: Path, record: Path) -> str:
    """Return a path relative to the record, or an absolute one on another drive."""
    try:
        return Path(os.path.relpath(file.resolve(), record.resolve())).as_posix()
    except ValueError:
        return file.resolve().as_posix()


def write_references(record: Path, references: Mapping[str, Reference]) -> None:
    """Store references in a record; those of other roles that are stored already are kept."""
    known = {**read_references(record), **references}
    write_json(
        record / FILE, {"schema": SCHEMA, **{role: asdict(known[role]) for role in ROLES if role in known}}, digest=True
    )


def read_references(record: Path) -> dict[str, Reference]:
    """Return the references of a record by role: ``network`` and ``data``. Nothing is executed."""
    file = record / FILE
    if not file.exists():
        return {}
    check_digest(file)
    content = read_versioned_file(file, "list of references", SCHEMA)
    try:
        return {role: _checked(content[role]) for role in ROLES if role in content}
    except (TypeError, ValueError) as error:
        raise InputError(f"{file}: a field is missing or malformed ({error_message(error)})") from None


def _checked(value: Any) -> Reference:
    reference = Reference(**value)
    texts = (reference.target, reference.sha256, reference.fingerprint or "")
    if not all(isinstance(text, str) and len(text) < 4096 and text.isprintable() for text in texts):
        raise ValueError("expected short printable texts")
    return reference
