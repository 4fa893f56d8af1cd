"""perdure audit and perdure report: records in, numbers and a page out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from perdure.cli.options import WEIGHTS_HELP, inside, weightings
from perdure.errors import InputError

PAGE = "report.html"
Paths = Annotated[list[Path], typer.Argument(metavar="PATH...", help="Records, or folders with records below.")]


def audit(
    paths: Paths,
    weights: Annotated[list[str] | None, typer.Option("--weights", help=WEIGHTS_HELP)] = None,
    renormalise: Annotated[
        bool, typer.Option("--renormalise", help="Score over the criteria that are known, and say so.")
    ] = False,
    count_teachers: Annotated[bool, typer.Option("--count-teachers", help="Count frozen old networks in MS.")] = False,
    clamp: Annotated[
        bool, typer.Option("--clamp", help="Also tell the algorithms' doing from the tasks' (CLAMP); takes seconds.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Where audit.json goes; by default the first path.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Audit records: what the learners learn, keep and cost.

    Writes audit.json and prints a table. Runs of one learner on one benchmark are averaged. Exit code 1 when a record is
    unfinished.
    """
    from perdure.audit import FILE, audit_records  # noqa: PLC0415
    from perdure.cli.tables import print_audit  # noqa: PLC0415
    from perdure.record import Record, find_records  # noqa: PLC0415

    result = audit_records(
        paths, weights=weightings(weights or []), renormalise=renormalise, count_teachers=count_teachers, clamp=clamp
    )
    result.save(inside(out, FILE) or paths[0] / FILE)
    if as_json:
        typer.echo(json.dumps(result.to_json(), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        print_audit(result, Console())
    unfinished = [path for path in find_records(paths) if not Record.open(path).complete]
    for path in unfinished:
        typer.echo(f"{path}: unfinished; repeat the command or the loop that makes it, and it goes on", err=True)
    if unfinished:
        raise typer.Exit(1)


def report(
    paths: Paths,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The page; by default report.html in the first path.")
    ] = None,
    tables: Annotated[
        Path | None, typer.Option(help="Also write every table here: CSV, LaTeX (booktabs) and Markdown.")
    ] = None,
    figures: Annotated[Path | None, typer.Option(help="Also write every figure here: PDF and SVG.")] = None,
) -> None:
    """Write the page of an audit: one HTML file, readable offline.

    Shows audit.json in the given folder if it is newer than the records, otherwise audits them first. What takes longer
    (perdure audit --clamp) is shown when audit.json has it.
    """
    from perdure.audit import FILE, Audit, audit_records  # noqa: PLC0415

    if len(paths) == 1 and not paths[0].exists():
        raise InputError(f"{paths[0]}: there is no such directory")
    saved = paths[0] / FILE
    fresh = len(paths) == 1 and saved.exists() and not _newer_records(paths[0], saved)
    result = Audit.load(saved) if fresh else audit_records(paths)
    typer.echo(result.report(inside(out, PAGE) or paths[0] / PAGE))
    for written in (result.tables(tables) if tables else []) + (result.figures(figures) if figures else []):
        typer.echo(written)


def _newer_records(folder: Path, audit_file: Path) -> bool:
    """Whether a record below a folder was written after its audit."""
    written = audit_file.stat().st_mtime_ns
    return any(manifest.stat().st_mtime_ns > written for manifest in folder.rglob("record.json"))
