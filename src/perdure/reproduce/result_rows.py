"""Finished results of a study: a file with one JSON object per line, from which a later call continues.

A row has the key of its unit (learner, seed, network, ...), the results, and where they come from: ``measured`` (date),
``commit``, ``modified`` and ``software``. Rows are small enough to be committed, unlike the records they are computed from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from perdure.base.errors import InputError
from perdure.base.files import write_atomically
from perdure.reproduce.provenance import Provenance, current_provenance

Row = Mapping[str, Any]


class ResultRows:
    """The rows of one file. A line that an interrupted call left unfinished is dropped."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.rows: list[Row] = []
        if not file.exists():
            return
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        for number, line in enumerate(lines, start=1):
            try:
                self.rows.append(json.loads(line))
            except json.JSONDecodeError as error:
                if number == len(lines) and not line.endswith("\n"):
                    file.write_text("".join(lines[:-1]), encoding="utf-8")
                    return
                raise InputError(f"{file}, line {number}: not JSON ({error.msg})") from None

    def find(self, **key: Any) -> Row | None:
        """Return the row with this key; None if there is none."""
        return next((row for row in self.rows if all(row.get(name) == value for name, value in key.items())), None)

    def select(self, **key: Any) -> list[Row]:
        """Return all rows with these values."""
        return [row for row in self.rows if all(row.get(name) == value for name, value in key.items())]

    def remove(self, **key: Any) -> None:
        """Remove all rows with these values, so that they are computed again."""
        kept = [row for row in self.rows if not all(row.get(name) == value for name, value in key.items())]
        if len(kept) < len(self.rows):
            write_atomically(self.file, "".join(json.dumps(row) + "\n" for row in kept).encode())
            self.rows = kept

    def add(self, row: Row, *, packages: Sequence[str] = ("torch",)) -> Row:
        """Append a row that was computed now, and return it with its provenance."""
        now = current_provenance(packages=packages)
        complete = {
            **row,
            "measured": now.last.isoformat(),
            "commit": now.commit,
            "modified": now.modified,
            "software": now.software,
        }
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(complete) + "\n")
        self.rows.append(complete)
        return complete


def rows_provenance(rows: Sequence[Row], seeds: str = "") -> Provenance:
    """Return the provenance of results from several rows: all dates, and the commit of the earliest row."""
    if not rows:
        raise InputError("no results are stored, so there is nothing to show")
    ordered = sorted(rows, key=lambda row: str(row["measured"]))
    days = [date.fromisoformat(str(row["measured"])) for row in (ordered[0], ordered[-1])]
    software = ", ".join(dict.fromkeys(part for row in ordered for part in str(row["software"]).split(", ")))
    modified = any(bool(row["modified"]) for row in rows)
    return Provenance(days[0], days[1], str(ordered[0]["commit"]), modified, software, seeds)
