"""perdure reproduce: published tables and figures, recomputed."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from perdure.cli.output.names import echo, line_writer


def reproduce(
    target: Annotated[
        str,
        typer.Argument(
            help="One of classic-learners, memory-learners, shapc, clamp, retraining, change-detection; an experiment of the "
            "bias paper (bias-agreement, -boxes, -deepshap, -gaussian, -human, -instability, -irrelevant-region, -masking, "
            "-perspectives, -planted-pattern, -removal, -table, -variance), or bias-all."
        ),
    ],
    data_dir: Annotated[Path | None, typer.Option(help="Folder of data files.")] = None,
    out: Annotated[Path, typer.Option(help="Where the records are written.")] = Path("runs/reproduce"),
    page: Annotated[
        Path | None, typer.Option(help="The page to write; default: the target's page in docs/results/.")
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            help="Run only one study: split-mnist, cifar10-small, cifar10-small-seen or cifar10-small-task of "
            "classic-learners, "
            "memory-small-conv or memory-resnet18 of memory-learners and shapc, published or split-mnist of clamp, "
            "lenet, lenet-slow, lenet-sweep or resnet18 of retraining, digits, adult, mnist or cifar10 of change-detection "
            "(the page keeps its other parts)."
        ),
    ] = None,
    threads: Annotated[int, typer.Option(help="CPU threads.", min=1)] = 1,
) -> None:
    """Recompute published tables and write them next to the published numbers.

    classic-learners tunes and trains the twelve classic learners; memory-learners does so for the nine methods of the SHAPC
    paper's Table 1, and shapc computes their SHAPC; clamp fits the curves published by the CLAMP paper's authors and trains
    its experiment on Split MNIST again; retraining computes MeGe and ReCo; change-detection measures false alarms and power of
    the test of perdure compare and of other methods; bias-... runs the experiments of the attribution-bias paper.
    Run the same command again to resume: finished runs, trials and examples are reused.
    """
    import torch

    from perdure.base.errors import InputError, error_suggestion
    from perdure.cli.output.run_progress import RunProgress
    from perdure.reproduce import TARGETS, run_learner_study

    if target == "retraining":
        _retraining(data_dir, out, page or Path("docs/results/retraining.md"), only, threads)
        return
    if target == "clamp":
        _clamp(data_dir, out, page or Path("docs/results/clamp.md"), only, threads)
        return
    if target == "change-detection":
        _change_detection(data_dir, out, page or Path("docs/results/change-detection.md"), only, threads)
        return
    if target.startswith("bias"):
        _bias(target, data_dir, out / "bias", page or Path("docs/results/trust.md"), threads)
        return
    if target not in TARGETS:
        known = [*TARGETS, "clamp", "retraining", "change-detection", "bias-all"]
        raise InputError(f"target: unknown name {target!r}, {error_suggestion(target, known)}")
    chosen = TARGETS[target]
    if only is not None and only not in chosen.studies:
        raise InputError(f"--only: unknown study {only!r}, {error_suggestion(only, list(chosen.studies))}")
    torch.set_num_threads(threads)
    console = Console(stderr=True)
    sections = []
    for name, study in chosen.studies.items():
        if only in (None, name):
            line_writer(console)(f"{target}: {study.title}")
            audit = run_learner_study(
                study, data_dir, out, lambda label: RunProgress(label, console, prints_tasks=False)
            )
            sections.append(chosen.table(study, audit, out))
    chosen.write_results(sections, page or chosen.page)
    echo(page or chosen.page)


def _clamp(data_dir: Path | None, out: Path, page: Path, only: str | None, threads: int) -> None:
    """Compute the tables and figures of the CLAMP paper, or one part of them; other sections of the page are kept."""
    import torch

    from perdure.base.errors import InputError, error_suggestion
    from perdure.cli.output.progress import spinner
    from perdure.cli.output.run_progress import RunProgress
    from perdure.reproduce.clamp.page import PARTS, write_clamp_page

    if only is not None and only not in PARTS:
        raise InputError(f"--only: unknown part {only!r}, {error_suggestion(only, list(PARTS))}")
    torch.set_num_threads(threads)
    console = Console(stderr=True)
    for part in PARTS:
        if only in (None, part):
            with spinner("fitting the published curves", console) if part == "published" else nullcontext():
                write_clamp_page(
                    part, data_dir, out, page, lambda label: RunProgress(label, console, prints_tasks=False)
                )
    echo(page)


def _retraining(data_dir: Path | None, out: Path, page: Path, only: str | None, threads: int) -> None:
    """Run all studies of retraining, or one of them, and write the page; other sections of the page are kept."""
    import torch

    from perdure.base.errors import InputError, error_suggestion
    from perdure.cli.output.progress import PartProgress
    from perdure.reproduce.retraining import study as retraining

    if only is not None and only not in retraining.STUDIES:
        raise InputError(f"--only: unknown study {only!r}, {error_suggestion(only, list(retraining.STUDIES))}")
    torch.set_num_threads(threads)
    sections = {} if only is None else retraining.read_retraining_study(page)
    with PartProgress(Console(stderr=True)) as bars:
        for name, study in retraining.STUDIES.items():
            if only in (None, name):
                result = retraining.run_retraining_study(study, data_dir, out, bars.show)
                sections[name] = retraining.retraining_study_section(study, result, page.parent)
                retraining.write_retraining_study(sections, page)
    echo(page)


def _change_detection(data_dir: Path | None, out: Path, page: Path, only: str | None, threads: int) -> None:
    """Run the benchmark on all data sets whose files exist, or on one, and write the page from all stored results."""
    import torch

    from perdure.base.errors import InputError, error_suggestion
    from perdure.cli.output.progress import PartProgress
    from perdure.reproduce.change_detection.data_sets import DATA_SETS
    from perdure.reproduce.change_detection.page import read_change_detection_page, write_change_detection_page
    from perdure.reproduce.change_detection.study import collect_results

    if only is not None and only not in DATA_SETS:
        raise InputError(f"--only: unknown data set {only!r}, {error_suggestion(only, list(DATA_SETS))}")
    read_change_detection_page(page)  # refuses another page before anything is computed
    torch.set_num_threads(threads)
    with PartProgress(Console(stderr=True)) as bars:
        results, missing = collect_results(only, data_dir, out, bars.show)
    write_change_detection_page(results, missing, page)
    echo(page)


def _bias(target: str, data_dir: Path | None, out: Path, page: Path, threads: int) -> None:
    """Run one experiment of the bias paper, or all, and write the page from the results of all finished experiments."""
    import torch

    from perdure.base.errors import InputError, error_suggestion
    from perdure.cli.output.progress import PartProgress
    from perdure.reproduce.bias import EXPERIMENTS, Workspace, run_experiment, write_page

    if target != "bias-all" and target not in EXPERIMENTS:
        raise InputError(f"target: unknown name {target!r}, {error_suggestion(target, [*EXPERIMENTS, 'bias-all'])}")
    torch.set_num_threads(threads)
    for name, experiment in EXPERIMENTS.items():
        if target in ("bias-all", name):
            with PartProgress(Console(stderr=True)) as bars:
                run_experiment(experiment, Workspace(data_dir, out, page.parent, bars.show))
    write_page(list(EXPERIMENTS.values()), out, page)
    echo(page)
