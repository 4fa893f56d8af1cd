"""perdure export: an audit in another tool's format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perdure.base.errors import InputError
from perdure.cli.output.names import echo
from perdure.cli.stored_audit import stored_or_new_audit


def export(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="PATH...", help="Records, folders that contain records, or an audit.json.", show_default=False
        ),
    ] = None,
    to: Annotated[str | None, typer.Option(help="The format; --list shows all.", metavar="FORMAT")] = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out", "-o", help="File or folder to write; for mlflow also a tracking address.", metavar="PATH"
        ),
    ] = None,
    list_formats: Annotated[bool, typer.Option("--list", help="List the formats and exit.")] = False,
) -> None:
    """Write the results of an audit in another tool's format: csv, latex, mlflow, tensorboard, ...

    Uses audit.json in the given folder if the records have not changed since; otherwise the records are audited first.
    Exporting twice changes nothing.
    """
    from perdure.exporters import EXPORTERS
    from perdure.exporters import export as write

    if list_formats:
        summaries = EXPORTERS.summaries()
        width = max(map(len, summaries))
        for name, summary in summaries.items():
            echo(f"{name:{width}}  {summary}")
        return
    if not paths or to is None or out is None:
        missing = "PATH" if not paths else "--to" if to is None else "--out"
        raise InputError(f"{missing} is missing: perdure export PATH --to FORMAT --out PATH; --list shows the formats")
    EXPORTERS.get(to)
    for written in write(stored_or_new_audit(paths, "export"), to, out):
        echo(written)
