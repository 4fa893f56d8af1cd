"""perdure run: train learners on a benchmark and write records."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console

from perdure.base.errors import InputError
from perdure.cli.engines import (
    Address,
    EngineName,
    EngineOptions,
    ShardText,
    Threads,
    UnitBars,
    Workers,
    print_missing,
)
from perdure.cli.options import (
    EXECUTES,
    Amp,
    AsJson,
    DataDir,
    Device,
    Epochs,
    KeepCheckpoints,
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
from perdure.cli.plans import Plan, print_training_plan

if TYPE_CHECKING:
    from perdure.engine import Outcome
    from perdure.learners.units import RunRequest, TrainingOptions

Scenario = Literal["class", "task", "domain"]
TUNING_SHARE = 0.1


def run(
    learners: Annotated[list[str] | None, typer.Argument(metavar="[LEARNER]...", help="Learners to train.")] = None,
    learner: Annotated[
        list[str] | None, typer.Option("--learner", help="Learners as an option: --learner naive --learner ewc.")
    ] = None,
    benchmark: Annotated[str, typer.Option(help="Name of a benchmark, or a path to your data.")] = "split-digits",
    seeds: Annotated[int, typer.Option(help="Number of seeds: 0, 1, 2, ...", min=1)] = 1,
    seed: Annotated[
        list[int] | None,
        typer.Option(help="A seed to train, instead of --seeds. Repeatable.", min=0, show_default=False),
    ] = None,
    out: Annotated[Path, typer.Option(help="Where the records are written.")] = Path("runs"),
    scenario: Annotated[
        Scenario | None, typer.Option(help="Continual-learning scenario; default: the benchmark's.")
    ] = None,
    orders: Annotated[int, typer.Option(help="Number of random class orders; 0: the official order.", min=0)] = 0,
    order: Annotated[
        list[int] | None,
        typer.Option(help="A random class order to train, instead of --orders. Repeatable.", min=1, show_default=False),
    ] = None,
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
    keep_checkpoints: KeepCheckpoints = "all",
    allow_changes: Annotated[
        bool,
        typer.Option(
            "--allow-changes",
            help="Resume even if package versions, device or threads have changed; the change is recorded.",
        ),
    ] = False,
    amp: Amp = None,
    device: Device = "cpu",
    plan: Plan = False,
    engine: EngineName = "local",
    workers: Workers = None,
    shard: ShardText = None,
    address: Address = None,
    threads: Threads = 1,
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
    from perdure.learners.units import TrainingOptions
    from perdure.record.kept_checkpoints import check_kept_checkpoints

    if list_all:
        _list_all(as_json)
        return
    where = EngineOptions.checked(engine, workers, shard, address, threads)
    names = [name for text in [*(learner or []), *(learners or [])] for name in text.split(",") if name]
    chosen = [learner_package.get(name) for name in dict.fromkeys(names)]
    if not chosen:
        raise InputError(f"no learner given; for example: perdure run naive ewc --benchmark {benchmark}")
    if network and ":" in network and width is not None:
        raise InputError("--width applies to built-in networks; set it inside your function")
    chosen_seeds = _chosen_numbers(seed, seeds, 1, "seed") or list(range(seeds))
    chosen_orders: list[int | None] = [*_chosen_numbers(order, orders, 0, "order")] or [*range(1, orders + 1)] or [None]
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
        amp=amp,
    )
    loading = {
        "scenario": scenario,
        "curriculum": None if visits is None else [task - 1 for task in visits],
        "per_class": per_class,
        "validation": validation or (TUNING_SHARE if tune else 0.0),
        "tasks": tasks,
        "data_dir": None if data_dir is None else str(data_dir),
    }
    study = _Study(out, benchmark, network, width, device, tune, parse_assignments(setting, "--set"), overrides)
    jobs = [
        job
        for order_seed in chosen_orders
        for job in study.jobs({**loading, "order_seed": order_seed}, chosen, chosen_seeds)
    ]
    options = TrainingOptions(save_seconds, allow_changes, check_kept_checkpoints(keep_checkpoints))
    if plan:
        _plan(jobs, options, where, as_json)
        return
    failed = _train(jobs, options, out, where, as_json)
    if failed:
        raise typer.Exit(1)


@dataclass(frozen=True)
class _Study:
    """What the runs of a command have in common."""

    out: Path
    benchmark: str
    network: str | None
    width: int | None
    device: str
    trials: int
    settings: Mapping[str, str]
    overrides: Mapping[str, Any]

    def jobs(self, loading: Mapping[str, Any], chosen: Sequence[Any], seeds: Sequence[int]) -> list[_Job]:
        """Return the runs on one order of the classes; wrong settings raise `InputError` before anything is written."""
        from perdure import learners
        from perdure.base.user_code import load_function
        from perdure.learners.units import RunRequest, check_request, load_once
        from perdure.nets.registry import check_network_memory

        data = load_once(self.benchmark, json.dumps(loading, sort_keys=True))
        default = learners.protocol_for(data).network
        is_own = self.network is not None and ":" in self.network
        maker = load_function(str(self.network)) if is_own else self.network or default
        if self.width is not None and isinstance(maker, str):
            check_network_memory(maker, data.input_shape, data.outputs, self.width)
        jobs = []
        for kind in chosen:
            own = {name: value for name, value in self.settings.items() if _has_setting(kind, name, chosen)}
            choice = learners.protocol_settings(data, kind, self.overrides, own)
            folder = _folder(self.out, data, kind.name, loading["order_seed"])
            request = RunRequest(
                self.benchmark,
                loading,
                kind.name,
                maker,
                self.width,
                choice.training,
                choice.settings,
                device=self.device,
                trials=self.trials,
                trials_file=folder / "tuning.json" if self.trials else None,
            )
            check_request(request)
            jobs += [
                _Job(replace(request, seed=seed), folder / f"seed-{seed}", str(self.network) if is_own else None)
                for seed in seeds
            ]
        return jobs


@dataclass(frozen=True)
class _Job:
    """One run: what is trained, where its record is written, and the user's network, if it is one."""

    request: RunRequest
    path: Path
    own_network: str | None

    def store_network(self) -> None:
        """Store where the user's network is in the record."""
        from perdure.runs.permissions import store_references

        if self.own_network is not None and (self.path / "record.json").exists():
            store_references(self.path, self.own_network)


def _plan(jobs: Sequence[_Job], options: TrainingOptions, where: EngineOptions, as_json: bool) -> None:
    """Print what the runs that are not finished are expected to cost."""
    from perdure.learners.units import is_finished

    left = [job for job in jobs if not is_finished(job.path)]
    print_training_plan(
        [job.request.run for job in left],
        where.local_workers,
        where.threads,
        save_seconds=options.save_seconds,
        keep_checkpoints=options.keep_checkpoints,
        finished=len(jobs) - len(left),
        as_json=as_json,
    )
    if jobs[0].request.trials:
        echo(
            f"The {jobs[0].request.trials} trials of each learner are not included: each costs about one run.", err=True
        )


def _train(jobs: Sequence[_Job], options: TrainingOptions, out: Path, where: EngineOptions, as_json: bool) -> bool:
    """Tune and train on an engine, and print the results; return whether something failed."""
    from perdure.engine import UnitContext, fixed_threads, run_units
    from perdure.learners.units import training_unit, tuning_unit

    console = Console(stderr=as_json)
    searched = {
        str(job.request.trials_file): job.request for job in reversed(jobs) if job.request.trials_file is not None
    }
    with UnitBars(console, "runs") as bars, where.open(out, jobs[0].request.device, bars) as engine:
        searches = [tuning_unit(request, options, where.threads, out) for request in reversed(searched.values())]
        tuned = run_units(engine, searches)
        # Shards are dealt out over all runs, so none is left out there; a run of a failed search then fails, too.
        failed = set() if where.shard else {outcome.unit.group for outcome in tuned.failed}
        ready = [job for job in jobs if str(job.request.trials_file or "") not in failed]
        units = [training_unit(job.request, job.path, options, where.threads, out) for job in ready]
        with fixed_threads(where.threads):
            for unit in units:
                if unit.finished:  # other settings than those of the stored record are refused
                    unit.function(UnitContext(where.threads), **unit.arguments)
        by_name = {unit.name: job for unit, job in zip(units, ready, strict=True)}
        trained = run_units(engine, units, lambda outcome: _end(outcome, by_name[outcome.unit.name], bars))
    if as_json:
        print_json(
            [_result(job) for outcome, job in zip(trained.outcomes, ready, strict=True) if outcome.state == "done"]
        )
    print_missing(bars.result, out, where.shard)
    return bool(bars.result.failed)


def _end(outcome: Outcome, job: _Job, bars: UnitBars) -> None:
    """Print the average accuracy of a finished run."""
    job.store_network()
    if outcome.state == "done" and not bars.console.stderr:
        line_writer(bars.console, soft_wrap=True)(f"{job.path}  average accuracy {_average(job):.4f}")


def _average(job: _Job) -> float:
    """Return the average accuracy on the trained tasks after the last step."""
    from perdure.learners import get
    from perdure.record import Record

    record = Record.open(job.path)
    last = record.table[-1].tolist()
    all_tasks = get(job.request.learner).trains_all
    trained = range(len(last)) if all_tasks else sorted(set(record.manifest.curriculum))
    return float(sum(last[task] for task in trained) / len(trained))


def _result(job: _Job) -> dict[str, Any]:
    from perdure.record import Record

    last = Record.open(job.path).table[-1].tolist()
    return {"record": str(job.path), "learner": job.request.learner, "seed": job.request.seed, "accuracy": last}


def _chosen_numbers(numbers: list[int] | None, count: int, default: int, name: str) -> list[int]:
    """Return the numbers of a repeatable option without repetitions; it cannot be combined with a count."""
    if numbers and count != default:
        raise InputError(f"--{name} and --{name}s cannot be combined; pass one of them")
    return list(dict.fromkeys(numbers or []))


def _has_setting(kind: Any, name: str, chosen: Sequence[Any]) -> bool:
    """Return whether a learner gets a setting; a setting that no learner has goes to all, which refuse it by name."""
    holders = [learner for learner in chosen if name in learner.Settings.__dataclass_fields__]
    return kind in holders or not holders


def _folder(out: Path, data: Any, learner: str, order: int | None) -> Path:
    from perdure.tasks import describe, names

    default = describe(data.name).scenario if data.name in names() else "class"
    parts = [Path(data.name).stem]
    parts += [data.scenario] if data.scenario != default else []
    parts += [f"order-{order}"] if order is not None else []
    return out / "-".join(parts) / learner


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
