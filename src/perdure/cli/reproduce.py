"""perdure reproduce: published tables, made again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console


def reproduce(
    target: Annotated[Literal["classic-learners"], typer.Argument(help="What to reproduce.")],
    data_dir: Annotated[Path | None, typer.Option(help="Where data files are.")] = None,
    out: Annotated[Path, typer.Option(help="Where the records go.")] = Path("runs/reproduce"),
    page: Annotated[Path, typer.Option(help="The page to write.")] = Path("docs/results/learners.md"),
    only: Annotated[
        str | None, typer.Option(help="One study only: split-mnist, cifar10-small or cifar10-small-task.")
    ] = None,
    threads: Annotated[int, typer.Option(help="CPU threads.", min=1)] = 1,
) -> None:
    """Tune and train the twelve classic learners and write their table.

    It can be stopped and repeated: finished runs and trials are kept.
    """
    import torch  # noqa: PLC0415

    from perdure.cli.progress import RunProgress  # noqa: PLC0415
    from perdure.errors import InputError, nearest  # noqa: PLC0415
    from perdure.reproduce import STUDIES, run_study, table, write_results  # noqa: PLC0415

    if only is not None and only not in STUDIES:
        raise InputError(f"--only {only}: {nearest(only, list(STUDIES))}")
    torch.set_num_threads(threads)
    console = Console(stderr=True)
    sections = []
    for name, study in STUDIES.items():
        if only in (None, name):
            console.print(f"{target}: {study.title}", highlight=False)
            audit = run_study(study, data_dir, out, lambda label: RunProgress(label, console, tells_tasks=False))
            sections.append(table(study, audit, out))
    write_results(sections, page)
    typer.echo(page)
