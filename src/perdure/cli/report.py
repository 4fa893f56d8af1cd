"""perdure report: an audit as an HTML page, tables and figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
from perdure.cli.stored_audit import stored_or_new_audit

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
    from perdure.audits import ImportOptions

    importing = ImportOptions(percent, losses, metric, group, curriculum)
    result = stored_or_new_audit(paths, "report", importing)
    echo(result.report(result_folder(paths[0]) / PAGE if out is None else output_file_option(out, PAGE)))
    for written in (result.tables(tables) if tables else []) + (result.figures(figures) if figures else []):
        echo(written)
