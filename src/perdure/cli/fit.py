"""perdure fit: performance curves in, properties of algorithms and tasks out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from perdure.base.errors import InputError
from perdure.cli.bars import working
from perdure.cli.options import numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.record.curves import Curves
    from perdure.surrogate import Fit


def fit(
    curves: Annotated[
        list[Path],
        typer.Argument(
            metavar="CURVES...",
            help="Long tables (CSV), accuracy matrices (CSV or JSON), folders of records, l2logger folders.",
        ),
    ],
    estimator: Annotated[str, typer.Option(help="map, least-squares, or adam (the authors').")] = "map",
    starts: Annotated[int, typer.Option(help="Starting points of the fit.")] = 64,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    scale: Annotated[
        str, typer.Option(help="none, percent, maximum (of each task), or new2022 (each task's range to 0..1).")
    ] = "none",
    chance: Annotated[
        str | None, typer.Option(help="Chance level, moved to 0: .5, or one for each task: .5,.1")
    ] = None,
    references: Annotated[
        Path | None, typer.Option(help="Single-task runs (l2logger folder) whose range new2022 includes.")
    ] = None,
    every_point: Annotated[
        bool, typer.Option("--every-point", help="Use evaluations between task switches as steps of their own.")
    ] = False,
    curriculum: Annotated[
        str | None, typer.Option(help="The task of each row of an accuracy matrix: 1,2,3,1,2,3")
    ] = None,
    predict: Annotated[str | None, typer.Option(help="Predict the curves of this curriculum: 3,2,1")] = None,
    best_order: Annotated[
        str | None, typer.Option(help="Find the model's favourite order of these tasks: 1,2,3")
    ] = None,
    profile: Annotated[
        list[str] | None,
        typer.Option(
            help="Profile likelihood: retention[NAME], efficiency[NAME], translation[NAME] (of an algorithm), or an entry of B."
        ),
    ] = None,
    bootstrap: Annotated[
        int, typer.Option(help="Replicates of a bootstrap for the intervals; 0: Fisher information.")
    ] = 0,
    compare: Annotated[
        str | None,
        typer.Option(
            help="Fit each CURVES alone and compare ranks by this property: efficiency, retention, translation."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    figure: Annotated[
        Path | None,
        typer.Option(help="Write figures: OUT.png gives OUT-curves.png, OUT-transfer.png, OUT-properties.png."),
    ] = None,
) -> None:
    """Estimate what is the algorithm's doing and what the tasks' from performance curves (CLAMP, Rivera et al. 2022).

    Long tables have the columns algorithm, step, trained, evaluated, performance; step 0 is before training,
    tasks count from 1. Curves that share a curriculum are fitted together, several curricula jointly with shared
    tasks.
    """
    from perdure import surrogate
    from perdure.cli.fit_tables import print_extras, print_fit, print_ranks

    order = numbers(curriculum, "--curriculum")
    rows = None if order is None else [task - 1 for task in order]
    sources = [_read(path, rows, every_point) for path in curves]
    settings: dict[str, Any] = {"estimator": estimator, "starts": starts, "seed": seed}
    groups = sources if compare else [[part for source in sources for part in source]]
    levels = _levels(chance)
    console, aside = Console(), Console(stderr=True)
    with working(f"fitting from {starts} starts", aside):
        fits = [_fit(group, scale, levels, references, settings) for group in groups]
    if bootstrap:
        with working(f"fitting {bootstrap} bootstrap replicates", aside):
            fits = [surrogate.bootstrap(one, bootstrap, seed) for one in fits]
    if compare:
        named = {f"{number} {path.stem}": one for number, (path, one) in enumerate(zip(curves, fits, strict=True), 1)}
        ranks = surrogate.compare_ranks(named, compare, seed=seed)
        if as_json:
            _echo({"fits": {name: one.to_dict() for name, one in named.items()}, "ranks": ranks.to_dict()})
            return
        for name, one in named.items():
            console.print(f"[bold]{name}[/bold]", highlight=False)
            print_fit(one, console)
        print_ranks(ranks, console)
        return
    (result,) = fits
    with working("predicting, ordering, profiling", aside):
        extras = _extras(result, predict, best_order, profile or [], seed)
    if figure:
        _draw(result, extras, figure)
    if as_json:
        _echo({**result.to_dict(), **{name: _plain(value) for name, value in extras.items()}})
    else:
        print_fit(result, console)
        print_extras(extras, console)


def _read(path: Path, curriculum: list[int] | None, every_point: bool) -> list[Curves]:
    from perdure.importers.curves import read_curves

    parts = read_curves(path, curriculum)
    return [part.at_every_point() if every_point else part.at_switches() for part in parts]


def _fit(
    parts: list[Curves],
    scale: str,
    chance: float | list[float] | None,
    references: Path | None,
    settings: dict[str, Any],
) -> Fit:
    from perdure import surrogate
    from perdure.importers.l2logger import read_single_task
    from perdure.record.curves import joined

    blocks = joined(parts)
    tasks = blocks[0].tasks
    for block in blocks:
        if block.tasks != tasks:
            raise InputError(
                f"the curves name different tasks ({', '.join(tasks)} and {', '.join(block.tasks)}); "
                "fit them apart, or compare their ranks with --compare efficiency"
            )
    singles = None
    if references is not None:
        found = read_single_task(references)
        missing = [task for task in tasks if task not in found]
        if missing:
            raise InputError(f"{references}: no single-task run of {missing[0]!r}; it has {', '.join(found)}")
        singles = [found[task] for task in tasks]
    values = surrogate.scale_together([block.values for block in blocks], scale, chance=chance, references=singles)
    several = len(blocks) > 1
    return surrogate.fit(
        values if several else values[0],
        [block.curriculum for block in blocks] if several else blocks[0].curriculum,
        algorithms=[block.algorithms for block in blocks] if several else blocks[0].algorithms,
        tasks=tasks,
        **settings,
    )


def _extras(
    result: Fit, predict: str | None, best_order: str | None, profile: Sequence[str], seed: int
) -> dict[str, Any]:
    from perdure import surrogate

    extras: dict[str, Any] = {}
    steps, tasks = numbers(predict, "--predict"), numbers(best_order, "--best-order")
    if steps is not None:
        extras["prediction"] = surrogate.predict(result, [task - 1 for task in steps], seed=seed)
    if tasks is not None:
        extras["best_order"] = surrogate.best_order(result, [task - 1 for task in tasks], seed=seed)
    if profile:
        extras["profiles"] = [surrogate.profile(result, name) for name in profile]
    return extras


def _plain(value: Any) -> Any:
    return [one.to_dict() for one in value] if isinstance(value, list) else value.to_dict()


def _echo(value: dict[str, Any]) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def _levels(text: str | None) -> float | list[float] | None:
    if text is None:
        return None
    try:
        levels = [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--chance {text}: expected a number, or one for each task, as in .5 or .5,.1,.1") from None
    return levels[0] if len(levels) == 1 else levels


def _draw(result: Fit, extras: dict[str, Any], path: Path) -> None:
    from perdure.audits import latent_properties
    from perdure.figures.clamp import (
        performance_curves,
        predicted_curves,
        property_bars,
        transfer_map,
    )
    from perdure.figures.style import save

    found = latent_properties(result)
    for block in range(len(found.curves)):
        name = "curves" if len(found.curves) == 1 else f"curves-{block + 1}"
        save(performance_curves(found, block), path.with_stem(f"{path.stem}-{name}"))
    save(transfer_map(found), path.with_stem(f"{path.stem}-transfer"))
    save(property_bars(found), path.with_stem(f"{path.stem}-properties"))
    if "prediction" in extras:
        save(predicted_curves(extras["prediction"]), path.with_stem(f"{path.stem}-prediction"))
