"""perdure trust bias: which explainer is least biased on a network?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from perdure.base.errors import InputError
from perdure.cli.engines import Address, EngineName, EngineOptions, ShardText, Threads, Workers
from perdure.cli.options import (
    EXECUTES,
    OWN_MODEL,
    AllowCode,
    AsJson,
    Data,
    DataDir,
    Device,
    Epochs,
    Layout,
    LearningRate,
    MethodOptions,
    Momentum,
    Optimizer,
    PerClass,
    Store,
    TrainingBatchSize,
    Width,
    check_baseline_option,
    given_options,
    parse_method_options,
    parse_target,
    user_data,
    user_network,
    user_sources,
)
from perdure.cli.output.json_output import print_json
from perdure.cli.output.names import echo

if TYPE_CHECKING:
    from perdure.audits import BiasSettings, ShapcResult
    from perdure.audits.bias.ratings import Ratings
    from perdure.audits.bias.results import BiasResult

OUT = Path("runs/trust")
_TRAINING = "Network to train (without RECORD)"


def bias(
    record: Annotated[Path | None, typer.Argument(help="A record with checkpoints.", show_default=False)] = None,
    method: Annotated[
        list[str] | None,
        typer.Option("--method", help="An explainer (perdure explain --list); repeatable. Default: all are compared."),
    ] = None,
    option: MethodOptions = None,
    examples: Annotated[int, typer.Option(help="Test examples, balanced over tasks and classes.", min=1)] = 50,
    samples: Annotated[int, typer.Option(help="Gradients, steps or perturbations per map.", min=1)] = 100,
    permutations: Annotated[
        int, typer.Option(help="Permutations per example for the reference Shapley values.", min=20)
    ] = 100,
    background: Annotated[int, typer.Option(help="Background examples.", min=1)] = 50,
    step: Annotated[
        int | None, typer.Option(help="The checkpoint after this step (1-based); default: the last.", min=1)
    ] = None,
    target: Annotated[str, typer.Option(help="Explained class: label, predicted, or an output (1-based).")] = "label",
    players: Annotated[str | None, typer.Option(help="Players: pixels, features or grid.")] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            help="Value of masked inputs, and the start of integrated gradients: mean (of the background), zero or blur."
        ),
    ] = None,
    layer: Annotated[str | None, typer.Option(help="Layer of Grad-CAM.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of examples, draws and training.", min=0)] = 0,
    shapc: Annotated[
        bool,
        typer.Option("--shapc", help="Then compute SHAPC of the record with the least biased explainer."),
    ] = False,
    ratings: Annotated[
        Path | None,
        typer.Option(help="CSV of human ratings (explainer, rater, rating[, image]) to correlate with the bias."),
    ] = None,
    figure: Annotated[Path | None, typer.Option(help="Save the comparison as .png, .svg or .pdf.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where results without a RECORD are stored; default: runs/trust. Not used with a RECORD.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
    network: Annotated[
        str | None,
        typer.Option(
            help="file.py:function that returns your network, for a RECORD of your own loop or with --data; without both, "
            f"the name of a built-in network to train. {EXECUTES}",
            rich_help_panel=OWN_MODEL,
        ),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            help="Without RECORD: weights of your network (.safetensors, .pt, .pth); default: those the function sets.",
            rich_help_panel=OWN_MODEL,
        ),
    ] = None,
    data: Data = None,
    layout: Layout = None,
    allow_code: AllowCode = False,
    store: Store = False,
    outputs: Annotated[
        int | None,
        typer.Option(
            help="Outputs of your network, if its function takes them; default: the largest label + 1.",
            rich_help_panel=OWN_MODEL,
        ),
    ] = None,
    benchmark: Annotated[
        str | None,
        typer.Option(help="Name of a benchmark, or a path to your data.", rich_help_panel=_TRAINING),
    ] = None,
    per_class: PerClass = None,
    epochs: Epochs = None,
    lr: LearningRate = None,
    batch_size: TrainingBatchSize = None,
    width: Width = None,
    optimizer: Optimizer = None,
    momentum: Momentum = None,
    data_dir: DataDir = None,
    device: Device = "cpu",
    engine: EngineName = "local",
    workers: Workers = None,
    shard: ShardText = None,
    address: Address = None,
    threads: Threads = 1,
) -> None:
    """Compare explainers with the Shapley values of the same outputs: which is least biased, and is its lead significant?

    The network comes from a RECORD, is your own (--network file.py:function, --weights, --data), or is trained first
    (--benchmark, --network NAME). The result is stored; perdure audit --shapc --method least-biased uses it, and perdure report
    shows it. Run the same command again to resume. The exit code is 1 if an explainer named by --method was refused.
    """
    from perdure.audits import BiasSettings
    from perdure.audits.bias.measure import METHODS
    from perdure.audits.bias.ratings import read_ratings
    from perdure.engine import fixed_threads

    _check_combination(record, network, weights, data, out, shapc)
    places = EngineOptions.checked(engine, workers, shard, address, threads)
    check_baseline_option(baseline)
    methods = method or list(METHODS)
    settings = BiasSettings(
        methods=methods,
        samples=samples,
        permutations=permutations,
        players=players,
        baseline=baseline,
        layer=layer,
        seed=seed,
        options=parse_method_options(option, methods),
    )
    rated = None if ratings is None else read_ratings(ratings)
    selection: dict[str, Any] = {
        "examples": examples,
        "target": parse_target(target),
        "background": background,
        "device": device,
    }
    folder = out or OUT
    stability = None
    if record is None and data is not None and network is not None:
        result = _user_network_bias(network, weights, data, layout, outputs, folder, settings, selection, places)
        file = folder / "bias.json"
    else:
        own: tuple[Any, Any] = (None, None)
        if record is not None:
            own = user_sources([record], network, data, layout, allow_code, store)
        if record is None:
            training = given_options(
                epochs=epochs, batch_size=batch_size, lr=lr, optimizer=optimizer, momentum=momentum
            )
            with fixed_threads(threads):
                record = _train(benchmark, network, width, per_class, data_dir, training, seed, folder)
        result, stability, file = _record_bias(record, step, settings, selection, data_dir, shapc, *own, places=places)
    _print(result, stability, rated, figure, as_json, file)
    for name, reason in result.refused.items():
        echo(f"perdure: {name} was refused: {reason}", err=True)
    if set(method or []) & set(result.refused):
        raise typer.Exit(1)


def _check_combination(
    record: Path | None, network: str | None, weights: Path | None, data: str | None, out: Path | None, shapc: bool
) -> None:
    """Refuse options that would have no effect."""
    if record is not None:
        if out is not None:
            raise InputError(f"--out {out}: results of a record are stored in the record; remove --out")
        if weights is not None:
            raise InputError(
                f"--weights {weights}: the checkpoints of the RECORD are used; remove --weights, or RECORD"
            )
        if network is not None and ":" not in network:
            raise InputError(f"--network {network}: the network of the RECORD is used; remove --network, or RECORD")
        return
    if data is not None and network is None:
        raise InputError("--data needs --network file.py:function, your own trained network, or a RECORD")
    if data is not None and shapc:
        raise InputError(
            "--shapc compares the checkpoints of a record. For your own checkpoints: "
            "perdure audit FOLDER --shapc --method NAME --network file.py:function --data file.py:function"
        )
    if data is None and network is not None and ":" in network:
        raise InputError(f"--network {network}: pass --data too, the examples to explain")


def _record_bias(
    record: Path,
    step: int | None,
    settings: BiasSettings,
    selection: dict[str, Any],
    data_dir: Path | None,
    shapc: bool,
    network: Any = None,
    data: Any = None,
    *,
    places: EngineOptions,
) -> tuple[BiasResult, ShapcResult | None, Path]:
    """Compare explainers on a record's network, and compute SHAPC with the least biased one if requested."""
    from perdure.audits import ShapcSettings, audit_shapc, record_bias
    from perdure.audits.bias.results import FILE
    from perdure.audits.least_biased import least_biased_explainer
    from perdure.audits.shapc.units import ShapcRequest, explain_runs
    from perdure.cli.output.progress import PartProgress
    from perdure.engine.execution import fixed_threads
    from perdure.engine.study import raise_incomplete

    device, own = selection["device"], {"network": network, "data": data, "data_dir": data_dir}
    with PartProgress(Console(stderr=True)) as bars, places.open_reporting(record, device) as engine:
        selection = {**selection, "engine": engine}
        index = None if step is None else step - 1
        result = record_bias(record, step=index, settings=settings, progress=bars.show, **own, **selection)
        if not shapc:
            return result, None, record / FILE
        verdict = least_biased_explainer(record)
        explaining = ShapcSettings(method=verdict.least)
        request = ShapcRequest(str(record), explaining, network, data, data_dir, device)
        with fixed_threads(places.threads):
            raise_incomplete(explain_runs(engine, [request]))
            stability = audit_shapc(
                record,
                settings=explaining,
                **own,
                device=device,
                progress=lambda done, total, _: bars.show("SHAPC", done, total),
            )
    chosen = replace(stability, settings={**stability.settings, "chosen": verdict.reading})
    return result, chosen, record / FILE


def _user_network_bias(
    network: str,
    weights: Path | None,
    data: str,
    layout: str | None,
    outputs: int | None,
    out: Path,
    settings: BiasSettings,
    selection: dict[str, Any],
    places: EngineOptions,
) -> BiasResult:
    """Compare explainers on a network that is in no record."""
    from perdure.audits import network_bias
    from perdure.cli.output.progress import PartProgress
    from perdure.runs.cache import FOLDER
    from perdure.runs.data_sources import read_background
    from perdure.runs.single_network import SingleNetwork

    examples = user_data(data)
    path = Path(data)
    background = read_background(path) if path.is_file() else None
    if background is not None and isinstance(examples, tuple) and len(examples) == 2:
        examples = (*examples, background)
    first = examples[0] if isinstance(examples, list) and len(examples) == 1 else examples
    model = SingleNetwork(user_network(network, layout), weights, outputs, f"--network {network}")
    bars = PartProgress(Console(stderr=True))
    with bars, places.open_reporting(out, selection["device"]) as engine:
        result = network_bias(
            model,
            first,
            settings=settings,
            subject=f"{network} on {data}",
            cache=out / FOLDER,
            progress=bars.show,
            engine=engine,
            **selection,
        )
    result.save(out / "bias.json")
    return result


def _train(
    benchmark: str | None,
    network: str | None,
    width: int | None,
    per_class: int | None,
    data_dir: Path | None,
    training: dict[str, Any],
    seed: int,
    out: Path,
) -> Path:
    """Train a network on all classes of a benchmark, or return the record that an earlier call has trained."""
    from perdure import learners, tasks
    from perdure.base.files import lock_folder, write_atomically
    from perdure.cli.output.run_progress import RunProgress
    from perdure.record.schema import NO_RUNS_MARKER

    data = tasks.load(benchmark or "split-digits", per_class=per_class, data_dir=data_dir)
    protocol = learners.protocol_for(data)
    run = learners.Run(
        data,
        learners.get("joint"),
        network=network or protocol.network,
        width=width,
        training=replace(protocol.training, **training),
        seed=seed,
    )
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / NO_RUNS_MARKER, b"networks of perdure trust bias\n")
    folder = out / f"{data.name}-{network or protocol.network}-seed-{seed}"
    if not folder.exists():
        echo(f"no RECORD given: training {run.network} on {data.name} ({folder})", err=True)
    locked = out / "locks" / folder.name
    locked.mkdir(parents=True, exist_ok=True)
    with RunProgress("training", Console(stderr=True), prints_tasks=False) as progress, lock_folder(locked, wait=True):
        learners.execute(run, folder, progress)  # if another shard trains it, this one waits and reads the record
    return folder


def _print(
    result: BiasResult,
    stability: ShapcResult | None,
    ratings: Ratings | None,
    figure: Path | None,
    as_json: bool,
    file: Path,
) -> None:
    """Print the comparison, or everything as JSON, and save the figure."""
    from perdure.audits.bias.ratings import compare_with_ratings
    from perdure.cli.output.audit_tables import print_shapc_result
    from perdure.cli.output.bias_tables import print_bias

    people = None if ratings is None else compare_with_ratings(result, ratings)
    if figure is not None:
        from perdure import figures

        figures.save(figures.bias_bars(result), figure)
        echo(f"figure: {figure}", err=True)
    if as_json:
        value = {"bias": result.to_json(), **({} if stability is None else {"shapc": stability.to_json()})}
        if people is not None:
            value["ratings"] = {"explainers": list(people.explainers), "r": people.linear.r, "reading": people.reading}
        print_json(value)
        return
    print_bias(result, file, Console())
    if people is not None:
        echo(f"{people.raters} raters, {people.images} image(s). {people.reading}")
    if stability is not None:
        print_shapc_result(stability, Console())
        echo("To include it in the audit and the report: perdure audit RUNS --shapc --method least-biased")
