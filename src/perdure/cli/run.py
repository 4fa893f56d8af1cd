"""perdure run: train learners on a benchmark and write records."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

from perdure.base.errors import InputError
from perdure.cli.options import (
    EXECUTES,
    AsJson,
    DataDir,
    Device,
    Epochs,
    LearningRate,
    Momentum,
    Optimizer,
    PerClass,
    TrainingBatchSize,
    Width,
    check_device_option,
    given_options,
    parse_assignments,
    parse_integers,
)
from perdure.cli.output.json_output import print_json
from perdure.cli.output.names import echo, line_writer

Scenario = Literal["class", "task", "domain"]
TUNING_SHARE = 0.1


def run(
    learners: Annotated[list[str] | None, typer.Argument(metavar="[LEARNER]...", help="Learners to train.")] = None,
    learner: Annotated[
        list[str] | None, typer.Option("--learner", help="Learners as an option: --learner naive --learner ewc.")
    ] = None,
    benchmark: Annotated[str, typer.Option(help="Name of a benchmark, or a path to your data.")] = "split-digits",
    seeds: Annotated[int, typer.Option(help="Number of seeds: 0, 1, 2, ...", min=1)] = 1,
    out: Annotated[Path, typer.Option(help="Where the records are written.")] = Path("runs"),
    scenario: Annotated[
        Scenario | None, typer.Option(help="Continual-learning scenario; default: the benchmark's.")
    ] = None,
    orders: Annotated[int, typer.Option(help="Number of random class orders; 0: the official order.", min=0)] = 0,
    curriculum: Annotated[
        str | None, typer.Option(help="Tasks in the order in which they are trained, as in 1,2,3,1,2,3.")
    ] = None,
    tasks: Annotated[int | None, typer.Option(help="Number of tasks the classes are divided into.", min=1)] = None,
    per_class: PerClass = None,
    validation: Annotated[
        float, typer.Option(help="Share of the training data used for validation.", min=0, max=0.9)
    ] = 0.0,
    data_dir: DataDir = None,
    network: Annotated[
        str | None,
        typer.Option(help=f"A name from --list, or file.py:function (input shape, outputs) -> network. {EXECUTES}"),
    ] = None,
    width: Width = None,
    epochs: Epochs = None,
    batch_size: TrainingBatchSize = None,
    lr: LearningRate = None,
    optimizer: Optimizer = None,
    momentum: Momentum = None,
    weight_decay: Annotated[float | None, typer.Option(help="Weight decay.")] = None,
    milestones: Annotated[
        str | None, typer.Option(help="Epochs after which the learning rate is divided by ten: 35,45.")
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(help="Stop a task after this many epochs without improvement; needs --validation."),
    ] = None,
    evaluate_every: Annotated[int | None, typer.Option(help="Evaluate all tasks every N batches.")] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of the learner: name=value. Repeatable.")
    ] = None,
    tune: Annotated[
        int, typer.Option(help="Trials on validation data to choose the settings of each learner.", min=0)
    ] = 0,
    save_seconds: Annotated[
        float, typer.Option(help="Save the state at least every N seconds within an epoch.", min=0)
    ] = 30.0,
    allow_changes: Annotated[
        bool,
        typer.Option(
            "--allow-changes",
            help="Resume even if package versions, device or threads have changed; the change is recorded.",
        ),
    ] = False,
    device: Device = "cpu",
    threads: Annotated[int | None, typer.Option(help="CPU threads; default: all cores.", min=1)] = None,
    as_json: AsJson = False,
    list_all: Annotated[bool, typer.Option("--list", help="List benchmarks, learners and networks, and exit.")] = False,
) -> None:
    """Train learners on a benchmark, one record per learner and seed.

    Run the same command again to resume after a crash or Ctrl-C: finished records are kept, an unfinished one continues
    where it stopped, and the result is bit-identical.

    With --tune N, each learner first gets N trials on validation data (a tenth of the training data unless --validation is
    given); they are stored in tuning.json next to its records.
    """
    from perdure import learners as learner_package
    from perdure import tasks as task_package
    from perdure.base.user_code import load_function
    from perdure.nets.registry import check_network_memory
    from perdure.runs.permissions import store_references

    if list_all:
        _list_all(as_json)
        return
    names = [name for text in [*(learner or []), *(learners or [])] for name in text.split(",") if name]
    chosen = [learner_package.get(name) for name in dict.fromkeys(names)]
    if not chosen:
        raise InputError(f"no learner given; for example: perdure run naive ewc --benchmark {benchmark}")
    if network and ":" in network and width is not None:
        raise InputError("--width applies to built-in networks; set it inside your function")
    _set_threads(threads)
    check_device_option(device)
    visits = parse_integers(curriculum, "--curriculum")
    overrides = given_options(
        epochs=epochs,
        batch_size=batch_size,
        lr=lr,
        optimizer=optimizer,
        momentum=momentum,
        weight_decay=weight_decay,
        milestones=None if milestones is None else tuple(parse_integers(milestones, "--milestones") or ()),
        patience=patience,
        evaluate_every=evaluate_every,
    )
    settings = parse_assignments(setting, "--set")
    results: list[dict[str, Any]] = []
    failed = False
    for order in range(1, orders + 1) if orders else [None]:
        data = task_package.load(
            benchmark,
            scenario=scenario,
            order_seed=order,
            curriculum=None if visits is None else [task - 1 for task in visits],
            per_class=per_class,
            validation=validation or (TUNING_SHARE if tune else 0.0),
            tasks=tasks,
            data_dir=data_dir,
        )
        default = learner_package.protocol_for(data).network
        maker = load_function(network) if network and ":" in network else network or default
        if width is not None and isinstance(maker, str):  # before a record is created
            check_network_memory(maker, data.input_shape, data.outputs, width)
        for kind in chosen:
            own_settings = {name: settings[name] for name in settings if _has_setting(kind, name, chosen)}
            choice = learner_package.protocol_settings(data, kind, overrides, own_settings)
            job = learner_package.Run(data, kind, maker, width, choice.training, choice.settings, device=device)
            folder = _folder(out, data, kind.name, order)
            if tune:
                job = _tune(job, tune, folder / "tuning.json", quiet=as_json, allow_changes=allow_changes)
            for seed in range(seeds):
                seeded = dataclasses.replace(job, seed=seed)
                options = {"save_seconds": save_seconds, "allow_changes": allow_changes}
                failed |= not _execute(seeded, folder / f"seed-{seed}", results, options, quiet=as_json)
                if network and ":" in network and (folder / f"seed-{seed}" / "record.json").exists():
                    store_references(folder / f"seed-{seed}", network)
    if as_json:
        print_json(results)
    if failed:
        raise typer.Exit(1)


def _has_setting(kind: Any, name: str, chosen: list[Any]) -> bool:
    """Return whether a learner gets a setting; a setting that no learner has goes to all, which refuse it by name."""
    holders = [learner for learner in chosen if name in learner.Settings.__dataclass_fields__]
    return kind in holders or not holders


def _tune(job: Any, trials: int, file: Path, quiet: bool, allow_changes: bool) -> Any:
    from perdure import learners
    from perdure.cli.output.run_progress import RunProgress

    console = Console(stderr=quiet)

    def print_trial(number: int, trial: dict[str, Any]) -> None:
        values = "  ".join(f"{name} {value:.3g}" for name, value in trial["settings"].items())
        line = f"{job.learner.name} trial {number}/{trials}  {values}  validation {trial['validation_accuracy']:.4f}"
        line_writer(console, soft_wrap=True)(line)

    with RunProgress(f"{job.learner.name} tuning", console, prints_tasks=False) as progress:
        return learners.tune(job, trials, file, progress, print_trial, allow_changes=allow_changes)


def _execute(job: Any, where: Path, results: list[dict[str, Any]], options: dict[str, Any], quiet: bool) -> bool:
    """Train one run; a run that diverges is reported and does not stop the others."""
    from perdure import learners
    from perdure.cli.output.run_progress import RunProgress

    console = Console(stderr=quiet)
    with RunProgress(f"{job.learner.name} seed {job.seed}", console) as progress:
        try:
            record = learners.execute(job, where, progress, **options)
        except learners.DivergedError as error:
            echo(f"perdure: {error}", err=True)
            return False
    last = record.table[-1].tolist()
    trained = range(len(last)) if job.learner.trains_all else sorted(set(record.manifest.curriculum))
    average = sum(last[task] for task in trained) / len(trained)
    results.append({"record": str(where), "learner": job.learner.name, "seed": job.seed, "accuracy": last})
    if not quiet:
        line_writer(console, soft_wrap=True)(f"{where}  average accuracy {average:.4f}")
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
    """Print every benchmark, learner and network with a one-line description."""
    from perdure import learners, nets, tasks

    entries = {"benchmarks": tasks.summaries(), "learners": learners.summaries(), "networks": nets.summaries()}
    if as_json:
        print_json(entries)
        return
    for kind, summaries in entries.items():
        echo(f"{kind}:")
        width = max(map(len, summaries))
        for name, summary in summaries.items():
            echo(f"  {name:{width}}  {summary}")
