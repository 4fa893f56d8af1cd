"""perdure fit: from performance curves to properties of algorithms and tasks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from perdure.base.errors import InputError
from perdure.cli.engines import PANEL, WORKERS_VARIABLE, Address, EngineName, EngineOptions, ShardText, Threads
from perdure.cli.options import AsJson, Group, MetricName, parse_integers
from perdure.cli.output.json_output import print_json
from perdure.cli.output.progress import spinner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.audits.clamp_input import ClampInput
    from perdure.record.curves import Curves
    from perdure.surrogate import Fit


def fit(
    curves: Annotated[
        list[Path],
        typer.Argument(
            metavar="CURVES...",
            help="Long tables (CSV), accuracy matrices, folders of records, results of other frameworks.",
        ),
    ],
    estimator: Annotated[str, typer.Option(help="map, least-squares, or adam (the authors' method).")] = "map",
    starts: Annotated[int, typer.Option(help="Number of starting points.")] = 64,
    seed: Annotated[int, typer.Option(help="Seed of the random numbers.")] = 0,
    scale: Annotated[
        str,
        typer.Option(help="Scaling: none, percent, maximum (of each task), or new2022 (each task's range to 0..1)."),
    ] = "none",
    chance: Annotated[
        str | None,
        typer.Option(
            help="Accuracy without knowledge of a task, mapped to 0: .5, or one per task: .5,.1. Default: from the records."
        ),
    ] = None,
    examples: Annotated[
        str | None,
        typer.Option(help="Test examples per task: 90, or one number per task: 90,91. Default: from the accuracies."),
    ] = None,
    references: Annotated[
        Path | None, typer.Option(help="Single-task runs (an l2logger folder) to include in the range of new2022.")
    ] = None,
    every_point: Annotated[
        bool, typer.Option("--every-point", help="Treat evaluations between task switches as steps.")
    ] = False,
    curriculum: Annotated[
        str | None, typer.Option(help="The task trained before each row of an accuracy matrix: 1,2,3,1,2,3")
    ] = None,
    predict: Annotated[str | None, typer.Option(help="Predict the curves of this curriculum: 3,2,1")] = None,
    best_order: Annotated[
        str | None, typer.Option(help="Find the best order of these tasks under the model: 1,2,3")
    ] = None,
    design: Annotated[
        int, typer.Option(help="Propose the curriculum of this many steps that best separates competing explanations.")
    ] = 0,
    profile: Annotated[
        list[str] | None,
        typer.Option(
            help="Profile likelihood: retention[NAME], efficiency[NAME], translation[NAME] (of an algorithm), or an entry of B."
        ),
    ] = None,
    bootstrap: Annotated[int, typer.Option(help="Bootstrap replicates for the intervals; 0: Fisher information.")] = 0,
    compare: Annotated[
        str | None,
        typer.Option(help="Fit each of CURVES separately and compare ranks by efficiency, retention or translation."),
    ] = None,
    details: Annotated[bool, typer.Option("--details", help="Also print technical diagnostics.")] = False,
    metric: MetricName = None,
    group: Group = None,
    as_json: AsJson = False,
    figure: Annotated[
        Path | None,
        typer.Option(help="Save figures: OUT.png gives OUT-curves.png, OUT-transfer.png, OUT-properties.png."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder where bootstrap replicates are stored and reused; --shard needs it."),
    ] = None,
    engine: EngineName = "local",
    workers: Annotated[
        int | None,
        typer.Option(
            help="Parts of the bootstrap that run at the same time; default: 1. Results do not depend on it.",
            min=1,
            show_default=False,
            envvar=WORKERS_VARIABLE,
            rich_help_panel=PANEL,
        ),
    ] = None,
    shard: ShardText = None,
    address: Address = None,
    threads: Threads = 1,
) -> None:
    """Algorithm or tasks: what explains the curves? Fit CLAMP (Rivera et al. 2022) to performance curves.

    Long tables have the columns algorithm, step, trained, evaluated, performance; step 0 is before training and tasks are
    1-based. Curves with the same curriculum are fitted together; several curricula are fitted jointly with shared tasks.
    """
    from perdure import surrogate
    from perdure.audits.clamp_input import common_scenario
    from perdure.cli.output.fit_tables import print_fit, print_fit_extras, print_ranks
    from perdure.cli.output.names import shown_name
    from perdure.engine import fixed_threads

    places = EngineOptions.checked(engine, workers, shard, address, threads)
    _check_places(places, bootstrap, out)
    order = parse_integers(curriculum, "--curriculum")
    rows = None if order is None else [task - 1 for task in order]
    sources = [_read(path, rows, every_point, metric, group) for path in curves]
    scenarios = {f"{path} {number}": name for path in curves for number, name in enumerate(_scenarios(path))}
    settings: dict[str, Any] = {"estimator": estimator, "starts": starts, "seed": seed}
    groups = sources if compare else [[part for source in sources for part in source]]
    given = _Given(
        _levels(chance, "--chance"),
        _levels(examples, "--examples"),
        common_scenario(scenarios),
        all(_are_exact(path) for path in curves),
    )
    console, errors = Console(), Console(stderr=True)
    with spinner(f"fitting from {starts} starting points", errors), fixed_threads(threads):
        inputs = [_input(group, scale, given, references) for group in groups]
        fits = [surrogate.fit(**data.arguments(), **settings) for data in inputs]
    if bootstrap:
        with spinner(f"fitting {bootstrap} bootstrap replicates", errors), fixed_threads(threads):
            fits = _bootstrapped(fits, bootstrap, seed, places, out)
    if compare:
        named = {
            f"{number} {path.stem}": fitted for number, (path, fitted) in enumerate(zip(curves, fits, strict=True), 1)
        }
        ranks = surrogate.compare_ranks(named, compare, seed=seed)
        if as_json:
            fit_values = {
                name: {**fitted.to_dict(), "notes": list(data.notes)}
                for (name, fitted), data in zip(named.items(), inputs, strict=True)
            }
            print_json({"fits": fit_values, "ranks": ranks.to_dict()})
            return
        for (name, fitted), data in zip(named.items(), inputs, strict=True):
            console.print(shown_name(name), style="bold", highlight=False)
            print_fit(fitted, console, details=details, notes=data.notes)
        print_ranks(ranks, console)
        return
    (result,) = fits
    with spinner("predicting, ordering, profiling", errors):
        extras = _extras(result, predict, best_order, profile or [], design, seed)
    if figure:
        _draw(result, extras, figure)
    if as_json:
        plain = {name: _plain(value) for name, value in extras.items()}
        print_json({**result.to_dict(), "notes": list(inputs[0].notes), **plain})
    else:
        print_fit(result, console, details=details, notes=inputs[0].notes)
        print_fit_extras(extras, console)


def _check_places(places: EngineOptions, replicates: int, out: Path | None) -> None:
    """Refuse options that would have no effect: only the bootstrap is distributed."""
    if not replicates and (places.is_explicit or out is not None):
        raise InputError(
            "--engine, --workers, --shard and --out distribute and store the bootstrap; pass --bootstrap too"
        )
    if places.shard is not None and out is None:
        raise InputError(f"--shard {places.shard} needs --out, the folder where all shards store their replicates")


def _bootstrapped(
    fits: Sequence[Fit], replicates: int, seed: int, places: EngineOptions, out: Path | None
) -> list[Fit]:
    """Return the fits with intervals from a bootstrap. Its parts are short, so by default they run in this process."""
    from perdure import surrogate
    from perdure.audits.bootstrap_parts import EngineParts
    from perdure.engine.completion import joined_errors
    from perdure.engine.study import IncompleteStudyError

    done, missing = [], []
    few = places if places.engine == "ray" else replace(places, workers=places.workers or 1)
    with few.open_reporting(out) as engine:
        parts = EngineParts(engine, out)
        for fitted in fits:
            try:
                done.append(surrogate.bootstrap(fitted, replicates, seed, parts))
            except IncompleteStudyError as error:  # the parts of the other fits are computed before the command ends
                missing.append(error)
        if missing:
            raise joined_errors(missing)
    return done


@dataclass(frozen=True)
class _Given:
    """What is known about the accuracies: chance level and test examples if passed, and the scenario of the records."""

    chance: float | list[float] | None
    examples: float | list[float] | None
    scenario: str
    exact: bool


def _read(
    path: Path, curriculum: list[int] | None, every_point: bool, metric: str | None, group: str | None
) -> list[Curves]:
    from perdure.importers.curves import read_curves

    if curriculum is not None and _records(path):
        raise InputError(f"--curriculum: the records in {path} have their own curriculum. Leave it out.")
    parts = read_curves(path, curriculum, average_runs=False, group=group, metric=metric)
    return [part.at_every_point() if every_point else part.at_switches() for part in parts]


def _records(path: Path) -> list[Path]:
    from perdure.record.reader import find_records
    from perdure.record.schema import MANIFEST

    return find_records([path]) if path.is_dir() and any(path.rglob(MANIFEST)) else []


def _scenarios(path: Path) -> list[str]:
    from perdure.record.reader import Record

    return [Record.open(record).manifest.scenario for record in _records(path)] or [""]


def _are_exact(path: Path) -> bool:
    """Return whether the accuracies of the records have all digits; imported ones may be rounded."""
    from perdure.record.reader import Record

    return all(Record.open(record).measurements.exact for record in _records(path))


def _input(parts: list[Curves], scale: str, given: _Given, references: Path | None) -> ClampInput:
    from perdure.audits.clamp_input import clamp_input
    from perdure.importers.l2logger import read_l2logger_single_task

    tasks = parts[0].tasks
    for part in parts:
        if part.tasks != tasks:
            raise InputError(
                f"the curves have different tasks ({', '.join(tasks)} and {', '.join(part.tasks)}); "
                "fit them separately, or compare ranks with --compare efficiency"
            )
    singles = None
    if references is not None:
        experts = read_l2logger_single_task(references)
        missing = [task for task in tasks if task not in experts]
        if missing:
            raise InputError(f"{references}: no single-task run of {missing[0]!r}; there are {', '.join(experts)}")
        singles = [experts[task] for task in tasks]
    return clamp_input(
        parts,
        scenario=given.scenario,
        chance=given.chance,
        examples=given.examples,
        scale=scale,
        references=singles,
        exact=bool(given.scenario) and given.exact,
    )


def _extras(
    result: Fit, predict: str | None, best_order: str | None, profile: Sequence[str], design: int, seed: int
) -> dict[str, Any]:
    from perdure import surrogate

    extras: dict[str, Any] = {}
    steps, tasks = parse_integers(predict, "--predict"), parse_integers(best_order, "--best-order")
    if steps is not None:
        extras["prediction"] = surrogate.predict(result, [task - 1 for task in steps], seed=seed)
    if tasks is not None:
        extras["best_order"] = surrogate.best_order(result, [task - 1 for task in tasks], seed=seed)
    if design:
        extras["design"] = surrogate.design(result, design, seed=seed)
    if profile:
        extras["profiles"] = [surrogate.profile(result, name) for name in profile]
    return extras


def _plain(value: Any) -> Any:
    return [item.to_dict() for item in value] if isinstance(value, list) else value.to_dict()


def _levels(text: str | None, option: str) -> float | list[float] | None:
    if text is None:
        return None
    try:
        levels = [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{option} {text}: expected a number, or one per task, as in .5 or .5,.1,.1") from None
    return levels[0] if len(levels) == 1 else levels


def _draw(result: Fit, extras: dict[str, Any], path: Path) -> None:
    from perdure.audits import clamp_properties
    from perdure.figures.clamp import (
        clamp_performance_curves,
        clamp_predicted_curves,
        clamp_property_bars,
        clamp_transfer_map,
    )
    from perdure.figures.style import save

    properties = clamp_properties(result)
    for block in range(len(properties.curves)):
        name = "curves" if len(properties.curves) == 1 else f"curves-{block + 1}"
        save(clamp_performance_curves(properties, block), path.with_stem(f"{path.stem}-{name}"))
    save(clamp_transfer_map(properties), path.with_stem(f"{path.stem}-transfer"))
    save(clamp_property_bars(properties), path.with_stem(f"{path.stem}-properties"))
    if "prediction" in extras:
        save(clamp_predicted_curves(extras["prediction"]), path.with_stem(f"{path.stem}-prediction"))
