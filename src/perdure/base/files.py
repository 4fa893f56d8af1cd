"""Files that are either whole or not there: atomic writing, and reading that names the place of a mistake."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from perdure.base.errors import InputError

_DECIMAL_COMMA = re.compile(r"^(-?\d*),(\d+)$")


def write_atomically(path: Path, content: bytes) -> None:
    """Put ``content`` at ``path`` so that a reader, or a crash, sees the old file or the new one and nothing between."""
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


def remove_temp_files(folder: Path) -> None:
    """Remove the temporary files that a killed writer left at or below a folder that nobody else is writing to."""
    for partial in folder.rglob(".*.tmp"):
        partial.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write JSON with a fixed layout, so that equal values give equal bytes."""
    write_atomically(path, (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode())


def write_table(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a CSV file; NaN and None become empty cells, floats keep every digit."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([_cell(value) for value in row] for row in rows)
    write_atomically(path, text.getvalue().encode())


def _cell(value: object) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return repr(float(value)) if isinstance(value, float) else str(value)


def read_text(path: Path) -> str:
    """Return the text of a file, or say in one line why there is none."""
    if path.is_dir():
        raise InputError(f"{path}: it is a directory; expected a file")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: it is not a text file (UTF-8 expected)") from None
    except OSError as error:
        raise InputError(f"{path}: it cannot be read ({error.strerror})") from None
    if not text.strip():
        raise InputError(f"{path}: the file is empty")
    return text


def read_json(path: Path) -> Any:
    """Return the parsed JSON of a file; the error names the line."""
    try:
        return json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: line {error.lineno} is not JSON ({error.msg})") from None


def read_versioned(path: Path, what: str, schema: int) -> dict[str, Any]:
    """Return a JSON object of ours that names its schema; a foreign file or a newer schema is refused."""
    value = read_json(path)
    if not isinstance(value, dict) or not isinstance(value.get("schema"), int):
        raise InputError(f"{path}: this is not a perdure {what} (no schema number)")
    if value["schema"] > schema:
        raise InputError(
            f"{path}: written in schema {value['schema']}, this perdure reads up to {schema}; install a newer perdure"
        )
    return value


def read_rows(path: Path) -> list[list[str]]:
    """Return the cells of a CSV file, blank lines left out; a row of another length than the first is refused.

    A first line with semicolons or tabs says that these cut the cells; then ``0,9`` is a number with a decimal comma.
    """
    text = read_text(path)
    first = text.lstrip().split("\n", 1)[0]
    delimiter = next((mark for mark in ";\t" if mark in first), ",")
    rows = [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(text), delimiter=delimiter) if any(row)]
    if delimiter != ",":
        rows = [[_DECIMAL_COMMA.sub(r"\1.\2", cell) for cell in row] for row in rows]
    for number, row in enumerate(rows, start=1):
        if len(row) != len(rows[0]):
            raise InputError(
                f"{path}: row {number} has {len(row)} cells, the first row has {len(rows[0])}; fill the gaps"
            )
    return rows


def number_in(path: Path, row: int, column: str, cell: str, *, empty: float | None = None) -> float:
    """Return the number in a cell; ``empty`` is what an empty cell means, None that it must not be empty."""
    if cell == "" and empty is not None:
        return empty
    try:
        return float(cell)
    except ValueError:
        found = f"{cell!r}" if cell else "an empty cell"
        raise InputError(f"{path}: row {row}, column {column!r}: expected a number, found {found}") from None


def index_in(path: Path, row: int, column: str, cell: str, lowest: int = 1) -> int:
    """Return the whole number of at least ``lowest`` in a cell."""
    value = number_in(path, row, column, cell)
    if value != int(value) or value < lowest:
        raise InputError(
            f"{path}: row {row}, column {column!r}: expected a whole number from {lowest} on, found {cell!r}"
        )
    return int(value)
