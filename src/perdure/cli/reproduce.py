"""perdure reproduce: published tables, made again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def reproduce(
    target: Annotated[
        str,
        typer.Argument(
            help="What to reproduce: classic-learners, memory-learners, shapc, retraining; an experiment of the bias paper "
            "(bias-agreement, -boxes, -deepshap, -gaussian, -human, -instability, -irrelevant-region, -masking, -perspectives, "
            "-planted-pattern, -removal, -table, -variance), or bias-all."
        ),
    ],
    data_dir: Annotated[Path | None, typer.Option(help="Where data files are.")] = None,
    out: Annotated[Path, typer.Option(help="Where the records go.")] = Path("runs/reproduce"),
    page: Annotated[
        Path | None, typer.Option(help="The page to write; by default the target's own in docs/results/.")
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            help="One study only: split-mnist, cifar10-small or cifar10-small-task of the classic learners, "
            "memory-small-conv or memory-resnet18 of memory-learners and shapc, "
            "lenet, lenet-slow, lenet-sweep or resnet18 of retraining (the page keeps its other parts)."
        ),
    ] = None,
    threads: Annotated[int, typer.Option(help="CPU threads.", min=1)] = 1,
) -> None:
    """Train learners and write their table beside the published one.

    classic-learners tunes and trains the twelve classic learners; memory-learners the nine methods of the SHAPC
    paper's Table 1, and shapc audits whether they keep their reasons; retraining asks whether explanations survive it;
    bias-... asks whether they can be believed. It can be stopped and repeated: finished runs, trials and samples are kept.
    """
    import torch

    from perdure.base.errors import InputError, nearest
    from perdure.cli.progress import RunProgress
    from perdure.reproduce import TARGETS, run_study

    if target == "retraining":
        _retraining(data_dir, out, page or Path("docs/results/retraining.md"), only, threads)
        return
    if target.startswith("bias"):
        _bias(target, data_dir, out / "bias", page or Path("docs/results/trust.md"), threads)
        return
    if target not in TARGETS:
        raise InputError(f"{target}: {nearest(target, [*TARGETS, 'retraining', 'bias-all'])}")
    chosen = TARGETS[target]
    if only is not None and only not in chosen.studies:
        raise InputError(f"--only {only}: {nearest(only, list(chosen.studies))}")
    torch.set_num_threads(threads)
    console = Console(stderr=True)
    sections = []
    for name, study in chosen.studies.items():
        if only in (None, name):
            console.print(f"{target}: {study.title}", highlight=False)
            audit = run_study(study, data_dir, out, lambda label: RunProgress(label, console, tells_tasks=False))
            sections.append(chosen.table(study, audit, out))
    chosen.write_results(sections, page or chosen.page)
    typer.echo(page or chosen.page)


def _retraining(data_dir: Path | None, out: Path, page: Path, only: str | None, threads: int) -> None:
    """Measure every network of the study, or one beside the parts the page already holds, and write the page."""
    import torch

    from perdure.base.errors import InputError, nearest
    from perdure.cli.trust.command import Bar
    from perdure.reproduce.retraining import study as retraining

    if only is not None and only not in retraining.SUBJECTS:
        raise InputError(f"--only {only}: {nearest(only, list(retraining.SUBJECTS))}")
    torch.set_num_threads(threads)
    parts = {} if only is None else retraining.parts_of(page)
    with Bar(Console(stderr=True)) as bar:
        for name, subject in retraining.SUBJECTS.items():
            if only in (None, name):
                result = retraining.run_subject(subject, data_dir, out, bar.show)
                parts[name] = retraining.section(subject, result, page.parent)
                retraining.write_results(parts, page)
    typer.echo(page)


def _bias(target: str, data_dir: Path | None, out: Path, page: Path, threads: int) -> None:
    """Run one experiment of the bias paper, or all, and put the page together from all that was ever run."""
    import torch

    from perdure.base.errors import InputError, nearest
    from perdure.cli.trust.command import Bar
    from perdure.reproduce.bias import EXPERIMENTS, Place, run_experiment, write_page

    if target != "bias-all" and target not in EXPERIMENTS:
        raise InputError(f"{target}: {nearest(target, [*EXPERIMENTS, 'bias-all'])}")
    torch.set_num_threads(threads)
    for name, experiment in EXPERIMENTS.items():
        if target in ("bias-all", name):
            with Bar(Console(stderr=True)) as bar:
                run_experiment(experiment, Place(data_dir, out, page.parent, bar.show))
    write_page(list(EXPERIMENTS.values()), out, page)
    typer.echo(page)
