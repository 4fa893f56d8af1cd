"""Atomic writing of files, reading of CSV and JSON with errors that name row and column, and locks on folders."""

from __future__ import annotations

import csv
import errno
import hashlib
import io
import json
import math
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout

from perdure.base.errors import InputError

DIGESTS = "digests.json"
"""SHA-256 of the files of a folder; see `write_with_digest`."""
LOCK = ".lock"
SOFT_LOCK = ".lock-holder"
"""The lock on file systems without locks."""
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)  # the file system has no locks
_LONGEST_QUOTE = 80  # characters of a wrong cell that an error message shows

_DECIMAL_COMMA = re.compile(r"^(-?\d*),(\d+)$")


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that readers see either the old or the complete new content, even after a crash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-", suffix=".tmp")
    partial = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.chmod(0o644)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Write the names in a folder to disk, so that a rename survives a power failure; without effect on Windows."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # file systems that cannot sync a folder
            raise
    finally:
        os.close(handle)


def write_with_digest(path: Path, content: bytes) -> str:
    """Write a file atomically, with its SHA-256 in ``digests.json`` of the same folder; return the SHA-256.

    Before the file is replaced, both the old and the new digest are listed, so that a crash at any point leaves a file that
    `check_digest` accepts. One process at a time may write to the folder.
    """
    new = hashlib.sha256(content).hexdigest()
    listed = _read_digests(path.parent)
    old = [digest for digest in listed.get(path.name, []) if path.exists() and digest == _file_digest(path)]
    _write_digests(path.parent, {**listed, path.name: [*old, new]})
    write_atomically(path, content)
    if old:
        _write_digests(path.parent, {**listed, path.name: [new]})
    return new


def check_digest(path: Path) -> bool:
    """Return whether a file has a digest; raise `InputError` if its content differs from the one that was written.

    A file that is listed but missing also raises an error.
    """
    accepted = _read_digests(path.parent).get(path.name)
    if accepted is None:
        return False
    try:
        actual = _file_digest(path)
    except FileNotFoundError:
        raise InputError(f"{path}: the file is missing; it was part of this folder. Restore it from a backup.") from None
    if actual not in accepted:
        raise InputError(
            f"{path}: the file was changed or damaged after it was written (its SHA-256 is not the one in {DIGESTS})."
            " Restore it from a backup, or delete the folder and compute it again."
        )
    return True


def remove_with_digest(path: Path) -> None:
    """Remove a file and its digest."""
    path.unlink(missing_ok=True)
    listed = _read_digests(path.parent)
    if listed.pop(path.name, None) is not None:
        _write_digests(path.parent, listed)


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_digests(folder: Path) -> dict[str, list[str]]:
    """Return the accepted digests of the files in a folder, by name; empty if there are none."""
    file = folder / DIGESTS
    if not file.exists():
        return {}
    value = read_json(file)
    listed = value.get("files") if isinstance(value, dict) else None
    if not isinstance(listed, dict) or value.get("sha256") != _digest_of_list(listed):
        raise InputError(f"{file}: the list of digests is damaged. Restore it from a backup.")
    return listed


def _write_digests(folder: Path, listed: dict[str, list[str]]) -> None:
    ordered = dict(sorted(listed.items()))
    write_json(folder / DIGESTS, {"files": ordered, "sha256": _digest_of_list(ordered)})


def _digest_of_list(listed: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(listed, sort_keys=True).encode()).hexdigest()


def remove_temp_files(folder: Path) -> None:
    """Remove the temporary files that a killed process left in or below a folder. No other process may write to it."""
    for partial in folder.rglob(".*.tmp"):
        partial.unlink(missing_ok=True)


def write_json(path: Path, value: Any, *, digest: bool = False) -> None:
    """Write JSON with a fixed layout: equal values give equal bytes. ``digest``: see `write_with_digest`."""
    write = write_with_digest if digest else write_atomically
    write(path, (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode())


def write_csv_file(
    path: Path, header: Sequence[str], rows: Iterable[Sequence[object]], *, digest: bool = False
) -> None:
    """Write a CSV file. NaN and None become empty cells; floats keep all digits. ``digest``: see `write_with_digest`."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([_cell(value) for value in row] for row in rows)
    write = write_with_digest if digest else write_atomically
    write(path, text.getvalue().encode())


def _cell(value: object) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return repr(float(value)) if isinstance(value, float) else str(value)


def read_text(path: Path) -> str:
    """Return the text of a file; a missing, empty or binary file raises `InputError`."""
    if path.is_dir():
        raise InputError(f"{path}: expected a file, got a directory.")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file.") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: expected a text file in UTF-8.") from None
    except OSError as error:
        raise InputError(f"{path}: cannot read the file ({error.strerror}).") from None
    if not text.strip():
        raise InputError(f"{path}: the file is empty.")
    return text


def read_json(path: Path) -> Any:
    """Return the value in a JSON file."""
    try:
        return json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise InputError(f"{path}, line {error.lineno}: not JSON ({error.msg}).") from None


def read_versioned_file(path: Path, kind: str, schema: int) -> dict[str, Any]:
    """Return the object in a JSON file of perdure; ``schema`` is the newest version that this perdure reads."""
    value = read_json(path)
    if not isinstance(value, dict) or not isinstance(value.get("schema"), int):
        raise InputError(f"{path}: not a perdure {kind} (it has no schema number).")
    if value["schema"] > schema:
        raise InputError(
            f"{path}: written with schema {value['schema']}, but this perdure reads schemas up to {schema}."
            " Install a newer perdure."
        )
    return value


def read_csv_file(path: Path) -> list[list[str]]:
    """Return the cells of a CSV file without blank lines. All rows must have the same length.

    Cells are separated by commas, or by semicolons or tabs if the first line holds one. In the latter case a comma is a
    decimal comma: ``0,9`` becomes ``0.9``.
    """
    text = read_text(path)
    first_line = text.lstrip().split("\n", 1)[0]
    delimiter = next((mark for mark in ";\t" if mark in first_line), ",")
    rows = [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(text), delimiter=delimiter) if any(row)]
    if delimiter != ",":
        rows = [[_DECIMAL_COMMA.sub(r"\1.\2", cell) for cell in row] for row in rows]
    for number, row in enumerate(rows, start=1):
        if len(row) != len(rows[0]):
            raise InputError(
                f"{path}, row {number}: expected {len(rows[0])} cells as in the first row, got {len(row)}."
            )
    return rows


def parse_csv_number(path: Path, row: int, column: str, cell: str, *, empty: float | None = None) -> float:
    """Return the number in a cell. ``empty`` is the value of an empty cell; None makes it an error."""
    if cell == "" and empty is not None:
        return empty
    try:
        value = float(cell)
    except ValueError:
        value = math.inf
    if math.isinf(value):
        content = repr(cell[:_LONGEST_QUOTE]) if cell else "an empty cell"
        raise InputError(f"{path}, row {row}, column {column}: expected a number, got {content}.")
    return value


def parse_csv_index(path: Path, row: int, column: str, cell: str, lowest: int = 1) -> int:
    """Return the integer in a cell; it must be at least ``lowest``."""
    value = parse_csv_number(path, row, column, cell)
    if math.isnan(value) or value != int(value) or value < lowest:
        raise InputError(f"{path}, row {row}, column {column}: expected an integer of at least {lowest}, got {cell!r}.")
    return int(value)


@contextmanager
def lock_folder(folder: Path, *, wait: bool = False) -> Iterator[None]:
    """Lock a folder for this process.

    If the folder is locked already, raise `InputError` at once, or wait for the lock if ``wait`` is true. The lock is the
    file ``.lock`` in the folder. It is removed on release; if the process dies, the operating system releases the lock and
    the file has no effect. On a file system without locks (some network file systems), the existence of ``.lock-holder``
    is the lock; the file names its process, and the lock of a process on this machine that has died is taken over. A read-only
    folder is not locked, because nothing can be written to it.
    """
    lock = _acquire(folder, wait)
    try:
        yield
    finally:
        if lock is not None:
            # The file is removed before the release. A process that opened it earlier sees that it has no name left and
            # tries again (filelock 3.20.4 and later). Windows cannot remove an open file; there filelock removes it.
            if not isinstance(lock, SoftFileLock):
                with suppress(OSError):
                    (folder / LOCK).unlink()
            lock.release()


def _acquire(folder: Path, wait: bool) -> BaseFileLock | None:
    file, timeout = folder / LOCK, -1 if wait else 0
    lock: BaseFileLock = FileLock(file, timeout=timeout)
    try:
        try:
            lock.acquire()
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            with suppress(OSError):
                file.unlink()
            lock = SoftFileLock(folder / SOFT_LOCK, timeout=timeout)
            lock.acquire()
    except Timeout:
        raise InputError(
            f"{folder}: another process is using this folder{_holder(lock)}. Wait until it finishes, or choose another folder."
        ) from None
    except OSError as error:
        if os.access(folder, os.W_OK):
            raise InputError(f"{folder}: cannot lock this folder ({error.strerror}).") from error
        return None
    return lock


def _holder(lock: BaseFileLock) -> str:
    """Return which process holds a lock that is a file; it may run on another machine, or have died there."""
    if not isinstance(lock, SoftFileLock) or lock.pid is None:
        return ""
    return f" (process {lock.pid}; if it has died on another machine, delete {SOFT_LOCK} in the folder)"
