"""perdure run: train learners on a benchmark and leave records."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

from perdure.base.errors import InputError
from perdure.cli.options import assignments, check_device, numbers, own_function

Scenario = Literal["class", "task", "domain"]
TUNING_SHARE = 0.1


def run(
    learners: Annotated[list[str] | None, typer.Argument(metavar="[LEARNER]...", help="Learners to train.")] = None,
    learner: Annotated[
        list[str] | None, typer.Option("--learner", help="The same: --learner naive cumulative.")
    ] = None,
    benchmark: Annotated[str, typer.Option(help="A benchmark's name, or a path to your own data.")] = "split-digits",
    seeds: Annotated[int, typer.Option(help="How many seeds: 0, 1, 2, ...", min=1)] = 1,
    out: Annotated[Path, typer.Option(help="Where the records go.")] = Path("runs"),
    scenario: Annotated[Scenario | None, typer.Option(help="By default the benchmark's own.")] = None,
    orders: Annotated[int, typer.Option(help="How many random class orders; 0 is the official one.", min=0)] = 0,
    curriculum: Annotated[str | None, typer.Option(help="Tasks in the order of visits, as in 1,2,3,1,2,3.")] = None,
    tasks: Annotated[int | None, typer.Option(help="Number of tasks the classes are divided into.", min=1)] = None,
    per_class: Annotated[int | None, typer.Option(help="So many training examples of each class.", min=1)] = None,
    validation: Annotated[float, typer.Option(help="Share of the training data set aside.", min=0, max=0.9)] = 0.0,
    data_dir: Annotated[Path | None, typer.Option(help="Where data files are, or go.")] = None,
    network: Annotated[
        str | None,
        typer.Option(help="A name of --list, or file.py:function of your own: (input shape, outputs) -> network."),
    ] = None,
    width: Annotated[int | None, typer.Option(help="Width of the network.", min=1)] = None,
    epochs: Annotated[int | None, typer.Option(help="Epochs of each task.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Examples in a batch.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate.")] = None,
    optimizer: Annotated[str | None, typer.Option(help="sgd, adam or adagrad.")] = None,
    momentum: Annotated[float | None, typer.Option(help="Momentum of sgd.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Weight decay.")] = None,
    milestones: Annotated[str | None, typer.Option(help="Epochs after which the rate falls to a tenth: 35,45.")] = None,
    patience: Annotated[
        int | None, typer.Option(help="Stop a task after so many epochs without gain; needs --validation.")
    ] = None,
    evaluate_every: Annotated[int | None, typer.Option(help="Evaluate all tasks every so many batches.")] = None,
    setting: Annotated[list[str] | None, typer.Option("--set", help="A learner's own setting: name=value.")] = None,
    tune: Annotated[int, typer.Option(help="Trials on validation data to choose each learner's settings.", min=0)] = 0,
    save_seconds: Annotated[
        float, typer.Option(help="Save the state at least this often within an epoch.", min=0)
    ] = 30.0,
    device: Annotated[str, typer.Option(help="cpu, cuda, mps, ...")] = "cpu",
    threads: Annotated[int | None, typer.Option(help="CPU threads; by default all cores.", min=1)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the records' paths and accuracies as JSON.")] = False,
    list_all: Annotated[bool, typer.Option("--list", help="List benchmarks, learners and networks, and stop.")] = False,
) -> None:
    """Train learners on a benchmark, one record for each learner and seed.

    Run the same command again after a crash, a kill or Ctrl-C: finished records are left alone, an unfinished one goes on
    where it stopped and ends with the same bits.

    With --tune N each learner first gets N trials on validation data (a tenth of the training data unless --validation says
    otherwise); they are kept in tuning.json beside its records.
    """
    from perdure import learners as room
    from perdure import tasks as benchmarks

    if list_all:
        _list_all(as_json)
        return
    chosen = [room.get(name) for name in dict.fromkeys([*(learner or []), *(learners or [])])]
    if not chosen:
        raise InputError(
            f"no learner was named; as in: perdure run {' '.join(room.names()[:2])} --benchmark {benchmark}"
        )
    if network and ":" in network and width is not None:
        raise InputError("--width is for our networks; set it inside your own function")
    _set_threads(threads)
    check_device(device)
    visits = numbers(curriculum, "--curriculum")
    given: dict[str, Any] = {
        "epochs": epochs,
        "batch_size": batch_size,
        "lr": lr,
        "optimizer": optimizer,
        "momentum": momentum,
        "weight_decay": weight_decay,
        "milestones": None if milestones is None else tuple(numbers(milestones, "--milestones") or ()),
        "patience": patience,
        "evaluate_every": evaluate_every,
    }
    overrides = {name: value for name, value in given.items() if value is not None}
    own = assignments(setting or [], "--set")
    results: list[dict[str, Any]] = []
    failed = False
    for order in range(1, orders + 1) if orders else [None]:
        data = benchmarks.load(
            benchmark,
            scenario=scenario,
            order_seed=order,
            curriculum=None if visits is None else [task - 1 for task in visits],
            per_class=per_class,
            validation=validation or (TUNING_SHARE if tune else 0.0),
            tasks=tasks,
            data_dir=data_dir,
        )
        maker = own_function(network) if network and ":" in network else network or room.protocol_for(data).network
        for kind in chosen:
            choice = room.choose(data, kind, overrides, {name: own[name] for name in own if _has(kind, name, chosen)})
            job = room.Run(data, kind, maker, width, choice.training, choice.settings, device=device)
            where = _folder(out, data, kind.name, order)
            if tune:
                job = _tune(job, tune, where / "tuning.json", quiet=as_json)
            for seed in range(seeds):
                once = dataclasses.replace(job, seed=seed)
                failed |= not _execute(once, where / f"seed-{seed}", results, save_seconds, quiet=as_json)
    if as_json:
        typer.echo(json.dumps(results, indent=2))
    if failed:
        raise typer.Exit(1)


def _has(kind: Any, name: str, chosen: list[Any]) -> bool:
    """Whether a learner is given a setting; one that no chosen learner has goes to all of them, to be refused by name."""
    holders = [one for one in chosen if name in one.Settings.__dataclass_fields__]
    return kind in holders or not holders


def _tune(job: Any, trials: int, file: Path, quiet: bool) -> Any:
    from perdure import learners as room
    from perdure.cli.progress import RunProgress

    console = Console(stderr=quiet)

    def told(number: int, trial: dict[str, Any]) -> None:
        values = "  ".join(f"{name} {value:.3g}" for name, value in trial["settings"].items())
        line = f"{job.learner.name} trial {number}/{trials}  {values}  validation {trial['validation_accuracy']:.4f}"
        console.print(line, highlight=False, soft_wrap=True)

    with RunProgress(f"{job.learner.name} tuning", console, tells_tasks=False) as progress:
        return room.tune(job, trials, file, progress, told)


def _execute(job: Any, where: Path, results: list[dict[str, Any]], save_seconds: float, quiet: bool) -> bool:
    """Run one job; a run that diverges is reported and does not stop the others."""
    from perdure import learners as room
    from perdure.cli.progress import RunProgress

    console = Console(stderr=quiet)
    with RunProgress(f"{job.learner.name} seed {job.seed}", console) as progress:
        try:
            record = room.execute(job, where, progress, save_seconds)
        except room.DivergedError as error:
            typer.echo(f"perdure: {error}", err=True)
            return False
    last = record.table[-1].tolist()
    trained = range(len(last)) if job.learner.trains_all else sorted(set(record.manifest.curriculum))
    average = sum(last[task] for task in trained) / len(trained)
    results.append({"record": str(where), "learner": job.learner.name, "seed": job.seed, "accuracy": last})
    if not quiet:
        console.print(f"{where}  average accuracy {average:.4f}", highlight=False, soft_wrap=True)
    return True


def _folder(out: Path, data: Any, learner: str, order: int | None) -> Path:
    from perdure.tasks import describe, names

    default = describe(data.name).scenario if data.name in names() else "class"
    parts = [Path(data.name).stem]
    parts += [data.scenario] if data.scenario != default else []
    parts += [f"order-{order}"] if order is not None else []
    return out / "-".join(parts) / learner


def _set_threads(threads: int | None) -> None:
    import torch

    if threads is not None:
        torch.set_num_threads(threads)


def _list_all(as_json: bool) -> None:
    from perdure import learners, nets, tasks

    found = {"benchmarks": tasks.names(), "learners": learners.names(), "networks": nets.names()}
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        for kind, names in found.items():
            typer.echo(f"{kind}: {', '.join(names)}")
