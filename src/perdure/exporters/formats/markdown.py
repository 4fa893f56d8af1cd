"""Markdown: all tables of an audit in one file."""

from __future__ import annotations

from pathlib import Path

from perdure.audits import Audit
from perdure.base.errors import escape_control_characters
from perdure.base.files import write_atomically
from perdure.exporters.exported_tables import exported_tables
from perdure.exporters.exporter import exporter
from perdure.exporters.tables import transposed

_MOST_COLUMNS = 8


@exporter("markdown", file="audit.md")
def write_markdown(audit: Audit, out: str) -> list[Path]:
    """All tables in one Markdown file; wide ones are transposed."""
    parts = []
    for table in exported_tables(audit):
        shown = transposed(table) if len(table.header) > max(_MOST_COLUMNS, len(table.rows) + 1) else table
        parts.append(f"## {escape_control_characters(table.title)}\n\n{shown.markdown()}")
    path = Path(out)
    write_atomically(path, "\n".join(parts).encode())
    return [path]
