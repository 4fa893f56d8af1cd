"""Atomic writing of files, reading of CSV and JSON with errors that name row and column, and locks on folders."""

from __future__ import annotations

import csv
import errno
import glob
import hashlib
import io
import json
import math
import os
import platform
import re
import tempfile
import time
from collections import Counter
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
_ABSENT = "absent"  # in place of the digest of a file that does not exist yet
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)  # the file system has no locks
_LONGEST_QUOTE = 80  # characters of a wrong cell that an error message shows

# Limits of the files that are read. They are checked before memory is allocated; docs/security.md explains them.
LARGEST_TEXT = 64 * 2**20
"""Bytes of a CSV or JSON file."""
MOST_CELLS = 5_000_000
"""Cells of a CSV file, and of a table (steps x tasks) that the row and column numbers in a file ask for."""
ABANDONED_SECONDS = 3600.0
"""Age from which a temporary file of another machine has no process any more."""
MOST_STEPS = 100_000
"""The largest number of a task or a step in a file."""
MOST_VALUES = 2_000_000
"""Values in a JSON file."""
DEEPEST_NESTING = 64
"""Levels of lists and objects in a JSON file."""
LONGEST_TEXT = 100_000
"""Characters of a cell of a CSV file and of a string in a JSON file."""
LONGEST_NAME = 1_000
"""Characters of the name of a task, a learner, a benchmark or a setting."""
LARGEST_INDEX = 2**53
"""The largest integer in a CSV file: larger ones are not exact as floating-point numbers."""
_INTEGERS = (-(2**63), 2**64 - 1)  # the smallest and the largest integer in a JSON file

_DECIMAL_COMMA = re.compile(r"^(-?\d*),(\d+)$")
_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\Z)|[][{}]|-?(?:NaN|Infinity)', re.DOTALL)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that readers see either the old or the complete new content, even after a crash.

    Temporary files that a killed process left while it wrote the same file are removed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    start = f".{path.name}-{platform.node()}-"
    for abandoned in path.parent.glob(f"{glob.escape(start)}*.tmp"):
        process = abandoned.name.removeprefix(start).partition("-")[0]
        if process.isdigit() and not is_running(int(process)):
            abandoned.unlink(missing_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f"{start}{os.getpid()}-", suffix=".tmp")
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


def is_running(process: int) -> bool:
    """Return whether a process of this machine exists; True if the system does not tell."""
    if os.name == "nt":
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


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
    current = _file_digest(path) if path.exists() else _ABSENT
    old = [digest for digest in listed.get(path.name, [_ABSENT]) if digest == current]
    _write_digests(path.parent, {**listed, path.name: [*old, new]})
    write_atomically(path, content)
    if old:
        _write_digests(path.parent, {**listed, path.name: [new]})
    return new


def check_digest(path: Path) -> bool:
    """Return whether a file has a digest; raise `InputError` if its content differs from the one that was written.

    A file that is listed but missing also raises an error, unless a crash happened before it was first written.
    """
    accepted = _read_digests(path.parent).get(path.name)
    if accepted is None:
        return False
    try:
        actual = _file_digest(path)
    except FileNotFoundError:
        if _ABSENT in accepted:
            return True
        raise InputError(
            f"{path}: the file is missing; it was part of this folder. Restore it from a backup."
        ) from None
    if actual not in accepted:
        raise InputError(
            f"{path}: the file was changed or damaged after it was written (its SHA-256 is not the one in {DIGESTS})."
            " Restore it from a backup, or delete the folder and compute it again."
        )
    return True


def settle_digests(folder: Path) -> None:
    """After a crash, keep only the digests of the files as they are, so that equal folders have equal digests."""
    listed = _read_digests(folder)
    settled = {}
    for name, accepted in listed.items():
        current = _file_digest(folder / name) if (folder / name).exists() else _ABSENT
        if current != _ABSENT or _ABSENT not in accepted:
            settled[name] = [digest for digest in accepted if digest == current] or accepted
    if settled != listed:
        _write_digests(folder, settled)


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


def remove_temp_files(folder: Path, *, shared: bool = False) -> None:
    """Remove the temporary files that killed processes left in or below a folder.

    No other process may write to the folder, unless it is ``shared``: then files of living processes of this machine, and
    files of other machines that are younger than an hour, are kept.
    """
    for partial in folder.rglob(".*.tmp"):
        if not (shared and _may_be_in_use(partial)):
            partial.unlink(missing_ok=True)


def _may_be_in_use(partial: Path) -> bool:
    before, _, end = partial.name.partition(f"-{platform.node()}-")
    process = end.partition("-")[0]
    if before and process.isdigit():
        return is_running(int(process))
    try:
        return time.time() - partial.stat().st_mtime < ABANDONED_SECONDS
    except FileNotFoundError:
        return False


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


def read_bytes(path: Path, largest: int) -> bytes:
    """Return the content of a file of at most ``largest`` bytes."""
    if path.is_dir():
        raise InputError(f"{path}: expected a file, got a directory.")
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            content = file.read(size + 1) if size <= largest else b""
            if len(content) > size:  # a pipe or a device, whose size is unknown
                content += file.read(largest)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file.") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL character in the name
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{path}: cannot read the file ({reason}).") from None
    if max(size, len(content)) > largest:
        raise InputError(f"{path}: expected at most {largest} bytes, got {max(size, len(content))}.")
    return content


def read_text(path: Path, largest: int = LARGEST_TEXT) -> str:
    """Return the text of a file; a missing, empty, binary or overlong file raises `InputError`."""
    try:
        text = read_bytes(path, largest).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path}: expected a text file in UTF-8.") from None
    if not text.strip():
        raise InputError(f"{path}: the file is empty.")
    if (position := text.find("\0")) >= 0:
        raise InputError(f"{path}, line {_line_number(text, position)}: expected text, got a NUL character.")
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _line_number(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def read_json(path: Path) -> Any:
    """Return the value in a JSON file.

    Stricter than Python's reader: NaN, Infinity, a key that occurs twice in one object, an integer of more than 64 bits, a
    number beyond the range of a float and half of a surrogate pair raise `InputError`.
    """
    text = read_text(path)
    _check_json(path, text)

    def parse_integer(digits: str) -> int:
        value = int(digits) if len(digits) <= 20 else _INTEGERS[1] + 1
        if not _INTEGERS[0] <= value <= _INTEGERS[1]:
            line = _line_number(text, max(text.find(digits), 0))
            raise InputError(f"{path}, line {line}: expected integers of at most 64 bits, got {_quote(digits)}.")
        return value

    def parse_float(digits: str) -> float:
        value = float(digits)
        if math.isinf(value):
            line = _line_number(text, max(text.find(digits), 0))
            raise InputError(f"{path}, line {line}: expected a finite number, got {_quote(digits)}.")
        return value

    def make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) < len(pairs):
            counts = Counter(key for key, _ in pairs)
            repeated = next(key for key in counts if counts[key] > 1)
            raise InputError(f"{path}: the key {_quote(repeated)} occurs twice in one object.")
        return value

    try:
        return json.loads(text, parse_int=parse_integer, parse_float=parse_float, object_pairs_hook=make_object)
    except json.JSONDecodeError as error:
        raise InputError(f"{path}, line {error.lineno}: not JSON ({error.msg}).") from None


def _check_json(path: Path, text: str) -> None:
    """Check the depth, the number of values and the strings of a JSON text before it is parsed."""
    if (values := sum(map(text.count, "[{,"))) > MOST_VALUES:
        raise InputError(f"{path}: expected at most {MOST_VALUES} values, got about {values}.")
    depth = 0
    has_surrogates = _SURROGATE.search(text) is not None
    for match in _JSON_TOKEN.finditer(text):
        part = match.group()
        problem = ""
        if part in "[{":
            depth += 1
            if depth > DEEPEST_NESTING:
                problem = f"expected at most {DEEPEST_NESTING} levels of lists and objects"
        elif part in "]}":
            depth -= 1
        elif part[0] != '"':
            problem = f"{part} is not JSON; write null for a missing value"
        elif len(part) > LONGEST_TEXT:
            problem = f"expected strings of at most {LONGEST_TEXT} characters, got {len(part)}"
        elif has_surrogates and _SURROGATE.search(part) and not _is_unicode(part):
            problem = f"the string {_quote(part)} contains half of a surrogate pair"
        if problem:
            raise InputError(f"{path}, line {_line_number(text, match.start())}: {problem}.")


def _is_unicode(token: str) -> bool:
    """Return whether the string that a JSON token stands for can be encoded; True for an invalid token."""
    with suppress(json.JSONDecodeError):
        try:
            json.loads(token).encode()
        except UnicodeEncodeError:
            return False
    return True


def shorten_text(text: str, longest: int = 200) -> str:
    """Return text from a file for an error message: on one line, cut to ``longest`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= longest else line[:longest] + "..."


def _quote(text: str) -> str:
    return repr(text if len(text) <= _LONGEST_QUOTE else text[:_LONGEST_QUOTE] + "...")


def read_versioned_file(path: Path, kind: str, schema: int) -> dict[str, Any]:
    """Return the object in a JSON file of perdure; ``schema`` is the newest version that this perdure reads."""
    value = read_json(path)
    number = value.get("schema") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise InputError(f"{path}: not a perdure {kind} (it has no schema number).")
    if value["schema"] > schema:
        raise InputError(
            f"{path}: written with schema {value['schema']}, but this perdure reads schemas up to {schema}."
            " Install a newer perdure."
        )
    return value


def read_csv_file(path: Path, delimiter: str | None = None) -> list[list[str]]:
    """Return the cells of a CSV file without blank lines: at least one row, and all rows of the same length.

    Without a ``delimiter``, cells are separated by commas, or by semicolons or tabs if the first line holds one. In the latter
    case a comma is a decimal comma: ``0,9`` becomes ``0.9``.
    """
    text = read_text(path)
    first_line = text.lstrip().split("\n", 1)[0]
    mark = delimiter or next((mark for mark in ";\t" if mark in first_line), ",")
    rows = [cells for _, cells in parse_csv_rows(path, text, mark)]
    if delimiter is None and mark != ",":
        rows = [[_DECIMAL_COMMA.sub(r"\1.\2", cell) for cell in row] for row in rows]
    return rows


def parse_csv_rows(
    path: Path, text: str, delimiter: str, *, most_cells: int = MOST_CELLS, name: str = "row", **options: Any
) -> list[tuple[int, list[str]]]:
    """Return number and cells of the rows that are not blank; all rows must have the same length.

    A row is numbered by its position among these rows, or by its line in the file if ``name`` is ``line``.
    """
    reader = csv.reader(_lines(text), delimiter=delimiter, **options)
    rows: list[tuple[int, list[str]]] = []
    most_rows = most_cells
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            if not any(row if name == "row" else cells):
                continue
            number = reader.line_num if name == "line" else len(rows) + 1
            where = f"{path}, {name} {number}"
            if not rows:
                most_rows = most_cells // len(cells)
            elif len(cells) != len(rows[0][1]):
                raise InputError(f"{where}: expected {len(rows[0][1])} cells as in the first {name}, got {len(cells)}.")
            if len(rows) >= most_rows:
                raise InputError(f"{where}: expected at most {most_cells} cells in a file.")
            if sum(map(len, cells)) > LONGEST_TEXT and max(map(len, cells)) > LONGEST_TEXT:
                raise InputError(
                    f"{where}: expected at most {LONGEST_TEXT} characters in a cell, got {max(map(len, cells))}."
                )
            rows.append((number, cells))
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: not a table ({error}).") from None
    if not rows:
        raise InputError(f"{path}: the table is empty.")
    return rows


def _lines(text: str) -> Iterator[str]:
    """Yield the lines with their ends. (`io.StringIO` needs four bytes for each character.)"""
    start = 0
    while start < len(text):
        end = text.find("\n", start) + 1 or len(text)
        yield text[start:end]
        start = end


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
        raise InputError(
            f"{path}, row {row}, column {shorten_text(column, _LONGEST_QUOTE)}: expected a number, got {content}."
        )
    return value


def parse_csv_index(path: Path, row: int, column: str, cell: str, lowest: int = 1, highest: int = LARGEST_INDEX) -> int:
    """Return the integer in a cell; it must be at least ``lowest`` and at most ``highest``."""
    value = parse_csv_number(path, row, column, cell)
    where = f"{path}, row {row}, column {shorten_text(column, _LONGEST_QUOTE)}"
    if math.isnan(value) or value != int(value) or value < lowest:
        raise InputError(f"{where}: expected an integer of at least {lowest}, got {_quote(cell)}.")
    if value > highest:
        raise InputError(f"{where}: expected an integer of at most {highest}, got {_quote(cell)}.")
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
