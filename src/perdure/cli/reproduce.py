"""perdure reproduce: published tables and figures, recomputed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from perdure.cli.engines import Address, EngineName, EngineOptions, ShardText, Threads, UnitBars, Workers, print_missing
from perdure.cli.output.names import echo, line_writer
from perdure.cli.reproduce_list import print_catalogue

if TYPE_CHECKING:
    from perdure.engine import Engine
    from perdure.reproduce.bias import Workspace


def reproduce(
    target: Annotated[
        str | None,
        typer.Argument(
            help="One of five-questions, more-than-forgetting, shapc, clamp, retraining, change-detection; an experiment of "
            "the bias paper (bias-agreement, -boxes, -deepshap, -gaussian, -human, -instability, -irrelevant-region, -masking, "
            "-perspectives, -planted-pattern, -removal, -table, -variance), or bias-all."
        ),
    ] = None,
    *,
    list_targets: Annotated[
        bool,
        typer.Option(
            "--list", help="List the tables and figures of the papers: command, data, core-hours, last run, outcome."
        ),
    ] = False,
    paper: Annotated[
        str | None,
        typer.Option(
            help="With --list: only this paper (shapc, more-than-forgetting, bias, clamp, mege-reco, perdure)."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="With --list: print JSON.")] = False,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of data files.")] = None,
    out: Annotated[Path, typer.Option(help="Where the records are written.")] = Path("runs/reproduce"),
    page: Annotated[
        Path | None, typer.Option(help="The page to write; default: the target's page in docs/results/.")
    ] = None,
    rows: Annotated[
        Path | None,
        typer.Option(
            help="Folder with the finished runs of five-questions, more-than-forgetting and shapc, from which the command "
            "continues (default: OUT/rows; benchmarks/results has those of the published pages)."
        ),
    ] = None,
    scale: Annotated[
        str,
        typer.Option(
            help="small: for a laptop; paper: data, network and epochs of the paper (shapc, more-than-forgetting)."
        ),
    ] = "small",
    only: Annotated[
        str | None,
        typer.Option(
            help="Run only some studies, separated by commas: split-digits or split-mnist of five-questions; cifar10 or "
            "cifar100 of more-than-forgetting; split-cifar10, split-cifar100 or split-tiny-imagenet of shapc; published or "
            "split-mnist of clamp; lenet, lenet-slow, lenet-sweep, resnet18 or resnet18-own of retraining; digits, adult, "
            "mnist or cifar10 of change-detection; networks of bias-table. The page keeps its other parts."
        ),
    ] = None,
    engine: EngineName = "local",
    workers: Workers = None,
    shard: ShardText = None,
    address: Address = None,
    threads: Threads = 1,
) -> None:
    """Recompute published tables and write them next to the published numbers.

    five-questions compares eighteen learners by all measures of perdure; more-than-forgetting trains five strategies and
    computes the seven criteria; shapc trains the nine methods of the SHAPC paper's Table 1 and computes their SHAPC; clamp
    fits the curves published by the CLAMP paper's authors and trains its experiment on Split MNIST again; retraining computes
    MeGe and ReCo; change-detection measures false alarms and power of the test of perdure compare and of other methods;
    bias-... runs the experiments of the attribution-bias paper.
    Run the same command again to resume: finished runs, trials and examples are reused. With --shard, each process does its
    part of the work; afterwards the command without --shard writes the page. Results do not depend on where the work runs.
    """
    from perdure.base.errors import InputError, error_suggestion

    if list_targets:
        print_catalogue(paper, as_json)
        return
    if paper is not None or as_json:
        raise InputError(f"{'--paper' if paper is not None else '--json'} needs --list")
    if target is None:
        raise InputError("TARGET is missing. perdure reproduce --list shows all targets.")
    from perdure.reproduce import TARGETS

    known = {
        **dict.fromkeys(TARGETS, _runs_as_rows),
        "clamp": _clamp,
        "retraining": _retraining,
        "change-detection": _change_detection,
    }
    if target not in known and not target.startswith("bias"):
        raise InputError(f"target: unknown name {target!r}, {error_suggestion(target, [*known, 'bias-all'])}")
    where = EngineOptions.checked(engine, workers, shard, address, threads)
    if scale not in ("small", "paper"):
        raise InputError(f"--scale: expected small or paper, got {scale!r}")
    if scale == "paper" and (target not in TARGETS or TARGETS[target].paper_scale is None):
        raise InputError(f"--scale: {target} has only one scale")
    if rows is not None and target not in TARGETS:
        raise InputError(f"--rows: {target} has no file of finished runs; it resumes from --out")
    known.get(target, _bias)(_Request(target, data_dir, out, page, only, where, rows, scale))


@dataclass(frozen=True)
class _Request:
    """What is reproduced, and where."""

    target: str
    data_dir: Path | None
    out: Path
    page: Path | None
    only: str | None
    where: EngineOptions
    rows: Path | None = None
    scale: str = "small"

    def chosen(self, names: Iterable[str], what: str) -> list[str]:
        """Return the names of the parts to run: all, or the one of --only."""
        from perdure.base.errors import InputError, error_suggestion

        known = list(names)
        if self.only is None:
            return known
        chosen = [name.strip() for name in self.only.split(",")]
        for name in chosen:
            if name not in known:
                raise InputError(f"--only: unknown {what} {name!r}, {error_suggestion(name, known)}")
        return [name for name in known if name in chosen]

    @contextmanager
    def units(self) -> Iterator[_Units]:
        """Yield the engine. If units are missing afterwards, they are printed and the command ends without a page."""
        import torch  # noqa: F401  (its number of threads is set only if it is loaded)

        from perdure.engine import fixed_threads

        with (
            fixed_threads(self.where.threads),
            UnitBars(Console(stderr=True)) as bars,
            self.where.open(self.out, bars=bars) as engine,
        ):
            units = _Units(engine, bars.console)
            yield units
        if units.incomplete:
            print_missing(bars.result, self.out, self.where.shard)
            if self.where.shard is not None:
                echo("When all shards are done, run the command without --shard to write the page.", err=True)
            raise typer.Exit(1 if bars.result.failed else 0)

    @contextmanager
    def fixed_threads(self) -> Iterator[None]:
        """Use the given number of threads in this process."""
        from perdure.engine import fixed_threads

        with fixed_threads(self.where.threads):
            yield


@dataclass
class _Units:
    """An engine, and whether some of the units that ran on it are missing."""

    engine: Engine
    console: Console
    incomplete: bool = False

    @contextmanager
    def part(self) -> Iterator[None]:
        """Run one part of the command; if its units are incomplete, the other parts still run."""
        from perdure.engine.study import IncompleteStudyError

        try:
            yield
        except IncompleteStudyError:
            self.incomplete = True


def _runs_as_rows(request: _Request) -> None:
    """Complete the rows of a target's studies, and write the page from them; sections of other studies are kept."""
    from perdure.reproduce import TARGETS
    from perdure.reproduce.learners.run_rows import FinishedStudy, complete_study_rows, study_rows_file
    from perdure.reproduce.result_rows import ResultRows

    target = TARGETS[request.target]
    names = target.default if request.only is None else request.chosen(target.studies, "study")
    folder = (request.rows or request.out / "rows") / request.target
    finished = []
    with request.units() as units:
        for name in names:
            study = target.studies[name]
            if request.scale == "paper" and target.paper_scale is not None:
                study = target.paper_scale(study)
            line_writer(units.console)(f"{request.target}: {study.title}")
            rows = ResultRows(study_rows_file(folder, study))
            with units.part():
                complete = complete_study_rows(
                    study,
                    request.data_dir,
                    request.out / request.target,
                    rows,
                    units.engine,
                    target.examine,
                    together=request.where.is_parallel,
                )
                finished.append(FinishedStudy(study, complete))
    page = request.page or target.page
    with request.fixed_threads():
        target.write_page(finished, page, request.data_dir)
    echo(page)


def _clamp(request: _Request) -> None:
    """Compute the tables and figures of the CLAMP paper, or one part of them; other sections of the page are kept."""
    from perdure.cli.output.progress import spinner
    from perdure.learners.progress import SILENT
    from perdure.reproduce.clamp.page import PARTS, write_clamp_page
    from perdure.reproduce.clamp.split_mnist import run_split_mnist_units

    parts = request.chosen(PARTS, "part")
    if "split-mnist" in parts:
        with request.units() as units, units.part():
            run_split_mnist_units(request.data_dir, request.out, units.engine)
    page = request.page or Path("docs/results/clamp.md")
    with request.fixed_threads(), spinner("fitting the curves", Console(stderr=True)):
        for part in parts:
            write_clamp_page(part, request.data_dir, request.out, page, lambda _: nullcontext(SILENT))
    echo(page)


def _retraining(request: _Request) -> None:
    """Run all studies of retraining, or one of them, and write the page; other sections of the page are kept."""
    from perdure.reproduce.retraining import study as retraining

    names = request.chosen(retraining.STUDIES, "study")
    page = request.page or Path("docs/results/retraining.md")
    sections = {} if request.only is None else retraining.read_retraining_study(page)
    results = {}
    with request.units() as units:
        for name in names:
            with units.part():
                results[name] = retraining.run_retraining_study(
                    retraining.STUDIES[name], request.data_dir, request.out, engine=units.engine
                )
    for name, result in results.items():
        sections[name] = retraining.retraining_study_section(retraining.STUDIES[name], result, page.parent)
    retraining.write_retraining_study(sections, page)
    echo(page)


def _change_detection(request: _Request) -> None:
    """Run the benchmark on all data sets whose files exist, or on one, and write the page from all stored results."""
    from perdure.reproduce.change_detection.data_sets import DATA_SETS
    from perdure.reproduce.change_detection.page import read_change_detection_page, write_change_detection_page
    from perdure.reproduce.change_detection.study import collect_results

    if request.only is not None:
        request.chosen(DATA_SETS, "data set")
    page = request.page or Path("docs/results/change-detection.md")
    read_change_detection_page(page)  # refuses another page before anything is computed
    with request.units() as units, units.part():
        results = collect_results(request.only, request.data_dir, request.out, engine=units.engine)
    write_change_detection_page(*results, page)
    echo(page)


def _bias(request: _Request) -> None:
    """Run one experiment of the bias paper, or all, and write the page from the results of all finished experiments."""
    from perdure.base.errors import InputError, error_suggestion
    from perdure.reproduce.bias import EXPERIMENTS, run_experiment, write_page
    from perdure.reproduce.bias.experiment import Folders
    from perdure.reproduce.bias.experiment_units import run_experiment_units

    names = [*EXPERIMENTS, "bias-all"]
    if request.target not in names:
        raise InputError(f"target: unknown name {request.target!r}, {error_suggestion(request.target, names)}")
    page = request.page or Path("docs/results/trust.md")
    folders = Folders(request.data_dir, request.out / "bias", page.parent)
    with request.units() as units, units.part():
        if request.target == "bias-all":
            run_experiment_units(folders, units.engine)
        else:
            part = _table_part(request, page) if request.only is not None else None
            run_experiment(EXPERIMENTS[request.target], folders.workspace(engine=units.engine), part)
    write_page(list(EXPERIMENTS.values()), folders.out, page)
    echo(page)


def _table_part(request: _Request, page: Path) -> Callable[[Workspace], str]:
    """Return the measurement of the networks of --only; the page keeps the parts of the others."""
    from functools import partial

    from perdure.base.errors import InputError
    from perdure.reproduce.bias.experiment import read_page_sections
    from perdure.reproduce.bias.experiments import table

    if request.target != table.EXPERIMENT.name:
        raise InputError(f"--only: {request.target} has no parts")
    studies = {study.name: study for study in table.STUDIES}
    selected = [studies[name] for name in request.chosen(studies, "network")]
    earlier = read_page_sections(page) if page.exists() else {}
    return partial(table.run_table_studies, selected=selected, earlier=earlier.get(request.target, ""))
