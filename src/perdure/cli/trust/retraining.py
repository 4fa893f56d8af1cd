"""perdure trust retraining: do explanations survive retraining?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console

from perdure.base.errors import InputError
from perdure.cli import options as shared_options
from perdure.cli.engines import Address, EngineName, EngineOptions, ShardText, Threads, Workers
from perdure.cli.options import given_options, parse_method_options
from perdure.cli.output.json_output import print_json
from perdure.cli.output.names import echo

if TYPE_CHECKING:
    from perdure.audits.retraining.checkpoints import CheckpointResult
    from perdure.audits.retraining.results import RetrainingResult

OUT = Path("runs/retraining")


def retraining(
    record: Annotated[
        Path | None,
        typer.Argument(
            help="A record: its checkpoints are compared too, and its data and network used.", show_default=False
        ),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method", help="An explainer (perdure explain --list); repeatable. Default: expected_gradients."
        ),
    ] = None,
    option: shared_options.MethodOptions = None,
    folds: Annotated[
        int, typer.Option(help="Networks to train, each without one fold; 0: only the record's checkpoints.", min=0)
    ] = 5,
    examples: Annotated[
        int, typer.Option(help="Examples to explain per fold; half as many per task of a record.", min=2)
    ] = 40,
    samples: Annotated[int, typer.Option(help="Gradients, steps, perturbations or permutations per map.", min=1)] = 100,
    background: Annotated[int, typer.Option(help="Background examples.", min=1)] = 50,
    target: Annotated[
        Literal["label", "predicted", "own"],
        typer.Option(
            help="Explained class: label; predicted by the network that has not seen the example; own: of each network."
        ),
    ] = "label",
    players: Annotated[
        str | None, typer.Option(help="Players of shapley and lime: pixels, features, grid or superpixels.")
    ] = None,
    layer: Annotated[str | None, typer.Option(help="Layer of Grad-CAM.")] = None,
    distance: Annotated[
        str, typer.Option(help="Distance shown in the tables: l2, l2-unit, cosine, spearman, ssim, ssim-unit.")
    ] = "l2-unit",
    noise: Annotated[str, typer.Option(help="Weight noise in percent of the weights' standard deviation.")] = "5,10,30",
    top_down: Annotated[
        float | None, typer.Option(help="Also add this percentage of noise from the output down, layer by layer.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of folds, networks and draws.", min=0)] = 0,
    benchmark: Annotated[
        str | None, typer.Option(help="Name of a benchmark, or a path to your data; default: split-digits.")
    ] = None,
    per_class: shared_options.PerClass = None,
    network: Annotated[
        str | None,
        typer.Option(
            help="Name of a built-in network, or file.py:function that returns your network; it may take the input shape "
            f"and the number of outputs. {shared_options.EXECUTES}",
            rich_help_panel=shared_options.OWN_MODEL,
        ),
    ] = None,
    data: shared_options.Data = None,
    layout: shared_options.Layout = None,
    allow_code: shared_options.AllowCode = False,
    store: shared_options.Store = False,
    epochs: shared_options.Epochs = None,
    lr: shared_options.LearningRate = None,
    optimizer: shared_options.Optimizer = None,
    momentum: shared_options.Momentum = None,
    batch_size: shared_options.TrainingBatchSize = None,
    width: shared_options.Width = None,
    data_dir: shared_options.DataDir = None,
    device: shared_options.Device = "cpu",
    figure: Annotated[Path | None, typer.Option(help="Save the scores by noise level as .png, .svg or .pdf.")] = None,
    out: Annotated[Path, typer.Option(help="Where networks and maps are stored and reused.")] = OUT,
    as_json: shared_options.AsJson = False,
    engine: EngineName = "local",
    workers: Workers = None,
    shard: ShardText = None,
    address: Address = None,
    threads: Threads = 1,
) -> None:
    """Train networks without one fold each and measure whether their explanations agree: MeGe, ReCo, weight randomization.

    Held-out examples are explained by all networks. MeGe and ReCo are printed with their controls, without noise on the
    weights and with it. With a RECORD, the pairs of its checkpoints are compared too, and the results are stored in it for
    perdure audit and perdure report. For a RECORD of your own loop, pass --network and --data unless it stores them; the folds
    are then trained on these data with the options of this command. Run the same command again to resume. The exit code is 1
    if an explainer was refused.
    """
    from perdure.audits import MapSettings, across_checkpoints, retrain, save_findings
    from perdure.cli.output.progress import PartProgress
    from perdure.engine.completion import joined_errors
    from perdure.engine.study import IncompleteStudyError

    places = EngineOptions.checked(engine, workers, shard, address, threads)
    if folds == 0 and record is None:
        raise InputError("--folds 0 needs a RECORD; pass one, or train at least 2 folds")
    methods = method or ["expected_gradients"]
    settings = MapSettings(
        samples=samples,
        background=background,
        target=target,
        layer=layer,
        players=players,
        seed=seed,
        options=parse_method_options(option, methods),
    )
    shared: dict[str, Any] = {"methods": methods, "settings": settings, "device": device}
    noise_shares = [percent / 100 for percent in _percentages(noise, "--noise")]
    training = given_options(epochs=epochs, batch_size=batch_size, lr=lr, optimizer=optimizer, momentum=momentum)
    checkpoints: CheckpointResult | None = None
    retrained: RetrainingResult | None = None
    own: tuple[Any, Any] = (None, None)
    if record is not None:
        named = network if network is not None and ":" in network else None
        own = shared_options.user_sources([record], named, data, layout, allow_code, store)
    elif data is not None and benchmark is not None:
        raise InputError("--benchmark and --data both name the data; remove one of them")
    study, missing = record or out, []
    with PartProgress(Console(stderr=True)) as bars, places.open_reporting(study, device) as opened:
        shared |= {"progress": bars.show, "engine": opened}
        if record is not None:
            try:
                checkpoints = across_checkpoints(
                    record,
                    network=own[0],
                    data=own[1],
                    examples=max(2, examples // 2),
                    data_dir=data_dir,
                    **shared,
                )
            except IncompleteStudyError as error:
                missing.append(error)
        if folds:
            try:
                retrained = retrain(
                    **_setup(record, benchmark, per_class, data_dir, network, width, training, own, data, layout),
                    folds=folds,
                    examples=examples,
                    noise=noise_shares,
                    cascade_share=None if top_down is None else top_down / 100,
                    seed=seed,
                    out=out,
                    **shared,
                )
            except IncompleteStudyError as error:
                missing.append(error)
        if missing:
            raise joined_errors(missing)
    if record is not None:
        save_findings(
            record,
            None if retrained is None else retrained.summary(),
            None if checkpoints is None else checkpoints.summary(),
        )
    _print(retrained, checkpoints, distance, figure, as_json)


def _percentages(text: str, option: str) -> list[float]:
    try:
        values = [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise InputError(f"{option} {text}: expected numbers separated by commas, as in 5,10,30") from None
    if any(not 0 <= value < float("inf") for value in values):
        raise InputError(f"{option} {text}: expected percentages of at least 0")
    return values


def _setup(
    record: Path | None,
    benchmark: str | None,
    per_class: int | None,
    data_dir: Path | None,
    network: str | None,
    width: int | None,
    training: dict[str, Any],
    own: tuple[Any, Any],
    data: str | None,
    layout: str | None,
) -> dict[str, Any]:
    """Return data, network and training: those of the record, or those of the options."""
    from perdure import nets, tasks
    from perdure.audits.retraining.folds import fold_network, single_task_for_folds
    from perdure.base.user_code import load_function
    from perdure.learners import protocol_for
    from perdure.record import Record
    from perdure.runs import UserData, recorded_run_benchmark
    from perdure.runs.permissions import stored_data, stored_network
    from perdure.runs.training_setup import recorded_training

    maker: Any = load_function(network) if network and ":" in network else network
    if record is None:
        if data is not None:
            sets = UserData.checked(shared_options.user_data(data))
            joined = single_task_for_folds(sets)
            settings = replace(protocol_for(joined).training, **training)
            return {"data": joined, "network": fold_network(maker, sets, layout), "width": width, "training": settings}
        benchmark_data = tasks.load(benchmark or "split-digits", per_class=per_class, data_dir=data_dir)
        settings = replace(protocol_for(benchmark_data).training, **training)
        return {"data": benchmark_data, "network": maker, "width": width, "training": settings}
    if benchmark is not None:
        raise InputError("--benchmark cannot be combined with a RECORD, which names its own data; remove one of them")
    opened = Record.open(record)
    name = opened.manifest.network.get("name")
    maker = maker if maker is not None else own[0] if own[0] is not None else stored_network(record)
    given = own[1] if own[1] is not None else stored_data(record)
    if maker is None and name not in nets.names():
        raise InputError(
            f"{record}: the record names no built-in network; pass --network file.py:function, or --folds 0"
        )
    if given is not None:
        sets = UserData.checked(given)
        joined = single_task_for_folds(sets)
        return {
            "data": joined,
            "network": fold_network(maker, sets, layout) or name,
            "width": width or opened.manifest.network.get("width"),
            "training": replace(protocol_for(joined).training, **training),
        }
    return {
        "data": recorded_run_benchmark(opened, data_dir, per_class),
        "network": maker or name,
        "width": width or opened.manifest.network.get("width"),
        "training": replace(recorded_training(opened.manifest), **training),
    }


def _print(
    retrained: RetrainingResult | None,
    checkpoints: CheckpointResult | None,
    distance: str,
    figure: Path | None,
    as_json: bool,
) -> None:
    from perdure.cli.output.retraining_tables import print_checkpoints, print_retraining

    refused: dict[str, str] = {}
    for result in (retrained, checkpoints):
        if result is not None and distance not in result.distances:
            raise InputError(f"--distance {distance}: expected one of {', '.join(result.distances)}")
        refused |= {} if result is None else result.refused
    if figure is not None and retrained is not None:
        from perdure import figures

        figures.save(figures.noise_lines(retrained, distance), figure)
    if as_json:
        results = {"checkpoints": checkpoints, "retraining": retrained}
        print_json({name: result.to_json() for name, result in results.items() if result is not None})
    else:
        if retrained is not None:
            print_retraining(retrained, distance, Console())
        if checkpoints is not None:
            print_checkpoints(checkpoints, distance, Console())
    for name, reason in refused.items():
        echo(f"perdure: {name} was refused: {reason}", err=True)
    if refused:
        raise typer.Exit(1)
