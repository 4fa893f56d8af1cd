"""CSV: the numbers of an audit as one long table."""

from __future__ import annotations

from pathlib import Path

from perdure.audits import Audit
from perdure.base.files import write_csv_file
from perdure.exporters.exporter import exporter
from perdure.exporters.tables import csv_text
from perdure.exporters.tidy_table import TIDY_COLUMNS, tidy_rows


@exporter("csv", file="audit.csv")
def write_csv(audit: Audit, out: str) -> list[Path]:
    """One CSV table: a row per learner and number, with mean, interval, runs, direction and reason."""
    path = Path(out)
    write_csv_file(path, TIDY_COLUMNS, _rows(audit))
    return [path]


def _rows(audit: Audit) -> list[list[object]]:
    return [[csv_text(value) if isinstance(value, str) else value for value in row] for row in tidy_rows(audit)]
