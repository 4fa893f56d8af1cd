"""perdure report: an audit as an HTML page, tables and figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perdure.base.errors import InputError
from perdure.cli.options import RecordPaths, output_file_option

PAGE = "report.html"


def report(
    paths: RecordPaths,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The page; default: report.html in the first path.")
    ] = None,
    tables: Annotated[
        Path | None, typer.Option(help="Also write every table to this folder: CSV, LaTeX (booktabs) and Markdown.")
    ] = None,
    figures: Annotated[Path | None, typer.Option(help="Also write every figure to this folder: PDF and SVG.")] = None,
) -> None:
    """Write the report of an audit: one HTML file that works offline.

    Uses audit.json in the given folder if it is newer than the records; otherwise the records are audited first. CLAMP and
    SHAPC are shown if audit.json contains them (perdure audit --clamp --shapc), results of perdure trust always.
    """
    from perdure.audits import FILE, Audit, add_trust_to_audit, audit

    if len(paths) == 1 and not paths[0].exists():
        raise InputError(f"{paths[0]}: no such directory")
    saved = paths[0] / FILE
    fresh = len(paths) == 1 and saved.exists() and not _has_newer_records(paths[0], saved)
    result = add_trust_to_audit(Audit.load(saved)) if fresh else audit(paths)
    typer.echo(result.report(paths[0] / PAGE if out is None else output_file_option(out, PAGE)))
    for written in (result.tables(tables) if tables else []) + (result.figures(figures) if figures else []):
        typer.echo(written)


def _has_newer_records(folder: Path, audit_file: Path) -> bool:
    """Return whether a record below a folder was written after its audit."""
    written = audit_file.stat().st_mtime_ns
    return any(manifest.stat().st_mtime_ns > written for manifest in folder.rglob("record.json"))
