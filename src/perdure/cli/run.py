"""perdure run: train learners on a benchmark and leave records."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

from perdure.cli.options import assignments, numbers
from perdure.errors import InputError

Scenario = Literal["class", "task", "domain"]


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
    per_class: Annotated[int | None, typer.Option(help="At most so many training examples of a class.", min=1)] = None,
    validation: Annotated[float, typer.Option(help="Share of the training data set aside.", min=0, max=0.9)] = 0.0,
    data_dir: Annotated[Path | None, typer.Option(help="Where data files are, or go.")] = None,
    network: Annotated[str | None, typer.Option(help="By default the benchmark's own.")] = None,
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
    device: Annotated[str, typer.Option(help="cpu, cuda, mps, ...")] = "cpu",
    threads: Annotated[int | None, typer.Option(help="CPU threads; by default all cores.", min=1)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the records' paths and accuracies as JSON.")] = False,
    list_all: Annotated[bool, typer.Option("--list", help="List benchmarks, learners and networks, and stop.")] = False,
) -> None:
    """Train learners on a benchmark, one record for each learner and seed.

    Run the same command again after a crash, a kill or Ctrl-C: finished records are left alone, an unfinished one goes on
    where it stopped and ends with the same bits.
    """
    from perdure import learners as room  # noqa: PLC0415
    from perdure import tasks as benchmarks  # noqa: PLC0415

    if list_all:
        _list_all(as_json)
        return
    chosen = [room.get(name) for name in dict.fromkeys([*(learner or []), *(learners or [])])]
    if not chosen:
        raise InputError(
            f"no learner was named; as in: perdure run {' '.join(room.names()[:2])} --benchmark {benchmark}"
        )
    _set_threads(threads)
    _check_device(device)
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
    results: list[dict[str, Any]] = []
    failed = False
    for order in range(orders or 1):
        data = benchmarks.load(
            benchmark,
            scenario=scenario,
            order_seed=order + 1 if orders else None,
            curriculum=None if visits is None else [task - 1 for task in visits],
            per_class=per_class,
            validation=validation,
            tasks=tasks,
            data_dir=data_dir,
        )
        protocol = room.protocol_for(data)
        training = dataclasses.replace(protocol.training, **overrides)
        for kind in chosen:
            for seed in range(seeds):
                job = room.Run(
                    benchmark=data,
                    learner=kind,
                    network=network or protocol.network,
                    width=width,
                    training=training,
                    settings=assignments(setting or [], "--set"),
                    seed=seed,
                    device=device,
                )
                where = _folder(out, data, kind.name, seed, order + 1 if orders else None)
                failed |= not _execute(job, where, results, quiet=as_json)
    if as_json:
        typer.echo(json.dumps(results, indent=2))
    if failed:
        raise typer.Exit(1)


def _execute(job: Any, where: Path, results: list[dict[str, Any]], quiet: bool) -> bool:
    """Run one job; a run that diverges is reported and does not stop the others."""
    from perdure import learners as room  # noqa: PLC0415
    from perdure.cli.progress import RunProgress  # noqa: PLC0415

    console = Console(stderr=quiet)
    with RunProgress(f"{job.learner.name} seed {job.seed}", console) as progress:
        try:
            record = room.execute(job, where, progress)
        except room.DivergedError as error:
            typer.echo(f"perdure: {error}", err=True)
            return False
    last = record.table[-1].tolist()
    results.append({"record": str(where), "learner": job.learner.name, "seed": job.seed, "accuracy": last})
    if not quiet:
        console.print(f"{where}  average accuracy {sum(last) / len(last):.4f}", highlight=False, soft_wrap=True)
    return True


def _folder(out: Path, data: Any, learner: str, seed: int, order: int | None) -> Path:
    from perdure.tasks import describe, names  # noqa: PLC0415

    default = describe(data.name).scenario if data.name in names() else "class"
    parts = [Path(data.name).stem]
    parts += [data.scenario] if data.scenario != default else []
    parts += [f"order-{order}"] if order is not None else []
    return out / "-".join(parts) / learner / f"seed-{seed}"


def _set_threads(threads: int | None) -> None:
    import torch  # noqa: PLC0415

    if threads is not None:
        torch.set_num_threads(threads)


def _check_device(device: str) -> None:
    import torch  # noqa: PLC0415

    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"--device {device}: it cannot be used here ({reason})") from None


def _list_all(as_json: bool) -> None:
    from perdure import learners, nets, tasks  # noqa: PLC0415

    found = {"benchmarks": tasks.names(), "learners": learners.names(), "networks": nets.names()}
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        for kind, names in found.items():
            typer.echo(f"{kind}: {', '.join(names)}")
