"""perdure report: an audit as an HTML page, tables and figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.base.errors import InputError
from perdure.cli.options import (
    Group,
    Losses,
    MetricName,
    Percent,
    ResultPaths,
    TrainedTasks,
    output_file_option,
    result_folder,
)
from perdure.cli.output.names import echo

if TYPE_CHECKING:
    from perdure.audits import Audit, ImportOptions

PAGE = "report.html"


def report(
    paths: ResultPaths,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The page; default: report.html in the first path.")
    ] = None,
    tables: Annotated[
        Path | None, typer.Option(help="Also write every table to this folder: CSV, LaTeX (booktabs) and Markdown.")
    ] = None,
    figures: Annotated[Path | None, typer.Option(help="Also write every figure to this folder: PDF and SVG.")] = None,
    percent: Percent = False,
    losses: Losses = False,
    metric: MetricName = None,
    group: Group = None,
    curriculum: TrainedTasks = None,
) -> None:
    """Write the report of an audit: one HTML file that works offline.

    Uses audit.json in the given folder if the records have not changed since; otherwise the records are audited first. CLAMP
    and SHAPC are shown if audit.json contains them (perdure audit --clamp --shapc), results of perdure trust always.
    """
    from perdure.audits import FILE, Audit, ImportOptions, add_trust_to_audit, audit

    if len(paths) == 1 and not paths[0].exists():
        raise InputError(f"{paths[0]}: no such directory")
    importing = ImportOptions(percent, losses, metric, group, curriculum)
    saved = paths[0] / FILE
    stored = Audit.load(saved) if len(paths) == 1 and paths[0].is_dir() and saved.exists() else None
    if stored is not None and _is_current(stored, paths[0], importing):
        result = add_trust_to_audit(stored)
    else:
        if stored is not None and (stored.shapc or stored.clamp):
            echo(
                f"{saved}: the records have changed, so the report is made without its SHAPC and CLAMP results",
                err=True,
            )
        result = audit(paths, importing=importing)
    echo(result.report(result_folder(paths[0]) / PAGE if out is None else output_file_option(out, PAGE)))
    for written in (result.tables(tables) if tables else []) + (result.figures(figures) if figures else []):
        echo(written)


def _is_current(audit: Audit, folder: Path, importing: ImportOptions) -> bool:
    """Return whether an audit was made of the records in a folder as they are now; times of files do not matter."""
    from perdure.audits.imported import audit_sources

    if not audit.sources:  # written by an earlier version
        return False
    return sorted(audit.sources.values()) == sorted(audit_sources([folder], importing).values())
