"""perdure explain: attribution maps of a record's network, as arrays and as a figure."""

from __future__ import annotations

import io
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from perdure.base.errors import InputError, error_suggestion
from perdure.cli.options import (
    OWN_MODEL,
    AllowCode,
    AsJson,
    BatchSize,
    Data,
    DataDir,
    Device,
    Layout,
    MethodOptions,
    Network,
    Store,
    check_baseline_option,
    check_device_option,
    parse_integers,
    parse_method_options,
    user_data,
    user_network,
    user_sources,
)
from perdure.cli.output.json_output import print_json
from perdure.cli.output.names import echo

if TYPE_CHECKING:
    from perdure.cli.output.progress import ProgressBars
    from perdure.runs import LoadedRun

SHOWN = 8
SCORES = ("logits", "decision")


def _list_methods(requested: bool) -> None:
    """Print every method with its own options and a one-line description."""
    if not requested:
        return
    from perdure.explain import EXPLAINERS, get_explainer

    for name, summary in EXPLAINERS.summaries().items():
        options = ", ".join(f"{option}={value}" for option, value in get_explainer(name).defaults.items())
        echo(f"  {name:21} {summary.replace('``', '')}" + (f" Options: {options}." if options else ""))
    raise typer.Exit


def explain(
    record: Annotated[
        Path | None,
        typer.Argument(help="A record with checkpoints; without one, pass --network and --data.", show_default=False),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option("--method", help="A method of --list, or all; repeatable. Default: expected_gradients."),
    ] = None,
    option: MethodOptions = None,
    task: Annotated[int, typer.Option(help="The task whose test examples are explained (1-based).", min=1)] = 1,
    step: Annotated[
        int | None, typer.Option(help="The checkpoint after this step (1-based); default: the last.", min=1)
    ] = None,
    examples: Annotated[
        str | None, typer.Option(help="Test examples to explain (1-based), as in 1,5,9; default: the first 4.")
    ] = None,
    target: Annotated[str, typer.Option(help="Explained class: label, predicted, or an output (1-based).")] = "label",
    score: Annotated[
        str, typer.Option(help="Explained score: logits, or decision (the score by which icarl decides).")
    ] = "logits",
    samples: Annotated[int, typer.Option(help="Gradients, steps, perturbations or permutations per map.", min=1)] = 100,
    background: Annotated[int, typer.Option(help="Background examples, from the task's training data.", min=1)] = 100,
    layer: Annotated[str | None, typer.Option(help="Layer of Grad-CAM; default: the last one with a map.")] = None,
    players: Annotated[
        str | None, typer.Option(help="Players of shapley and lime: pixels, features, grid or superpixels.")
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(help="Value of masked inputs: mean, zero or blur. Default: mean; for integrated_gradients: zero."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random draws.", min=0)] = 0,
    data_dir: DataDir = None,
    batch_size: BatchSize = None,
    device: Device = "cpu",
    figure_format: Annotated[str, typer.Option("--format", help="Format of the figure: png, svg or pdf.")] = "png",
    out: Annotated[
        Path | None,
        typer.Option(help="Where maps and figure are written; default: explain/ in the record or in this folder."),
    ] = None,
    network: Network = None,
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
    as_json: AsJson = False,
    list_methods: Annotated[  # noqa: ARG001  (handled by its callback)
        bool,
        typer.Option(
            "--list", help="List the methods and their options, and exit.", is_eager=True, callback=_list_methods
        ),
    ] = False,
) -> None:
    """Explain decisions of a network, example by example: of a RECORD, or of your own with --network and --data.

    Writes one .npz file with the maps of every method and a figure: maps over images, colored words of texts, bars of
    features. A method that would be wrong on this network is refused; with several methods the others continue, and the exit
    code is 1.
    """
    from perdure import explain as explainers
    from perdure.cli.output.progress import ProgressBars
    from perdure.runs.loaded_run import describe_run_score

    _check_format(figure_format)
    check_device_option(device)
    check_baseline_option(baseline)
    methods = _methods(method, explainers.method_names())
    options = parse_method_options(option, methods)
    run = _loaded(record, network, weights, data, layout, allow_code, store, data_dir, device)
    run.last_step()
    if score not in SCORES:
        raise InputError(f"--score: unknown name {score!r}, {error_suggestion(score, list(SCORES))}")
    index = run.checked_step(None if step is None else step - 1)
    explained_network = run.network(index) if score == "logits" else run.decision_network(index)
    names = {"label": "the true class", "predicted": "the predicted class"}
    if run.data.kind == "regression":
        names["label"] = "output 1"
    explained = describe_run_score(names.get(target, f"output {target}"), score, run.decides_by)
    rows = _rows(run, task, parse_integers(examples, "--examples"))
    x, labels = run.data.inputs(task - 1, rows).to(device), run.data.labels(task - 1)[rows]
    settings: dict[str, Any] = {
        "background": _background(run.data, task - 1, background, seed).to(device),
        "samples": samples,
        "seed": seed,
        "layer": layer,
        "baseline": baseline,
        "reduce": "pixels" if x.dim() == 4 else "comparable",
        "batch_size": batch_size,
        "players": players,
    }
    described = run.described(explained_network)
    explained_target = _target(target, labels, _outputs(explained_network, x), run.data.kind)
    maps: dict[str, Any] = {}
    refused: dict[str, str] = {}
    try:
        with ProgressBars(Console(stderr=True)) as bars:
            for name in methods:
                progress = partial(_show, bars, bars.add(name, len(x)))
                try:
                    maps[name] = explainers.attribute(
                        described, x, explained_target, name, **settings, options=options.get(name), progress=progress
                    )
                except InputError as error:
                    if len(methods) == 1:
                        raise
                    refused[name] = str(error)
    finally:  # finished maps are written even if a later method fails
        folder = out or (Path("explain") if record is None else record / "explain")
        written = _write(folder, x, labels, maps, run, figure_format) if maps else []
    choice = ""
    if "shapley" in maps and options.get("shapley", {}).get("estimator") == "auto":
        asked = {name: settings[name] for name in ("samples", "background", "baseline", "players")}
        choice = str(explainers.recommended_estimator(described, x, **asked))
    _print(explained, written, maps, refused, choice, as_json)


def _show(bars: ProgressBars, bar: Any, done: int, total: int) -> None:
    bars.bars.update(bar, completed=done, total=total)


def _check_format(name: str) -> None:
    from perdure.figures.style import FORMATS

    if name not in FORMATS:
        raise InputError(f"--format: unknown name {name!r}, {error_suggestion(name, list(FORMATS))}")


def _methods(requested: list[str] | None, known: list[str]) -> list[str]:
    names = list(dict.fromkeys(requested or ["expected_gradients"]))
    return [name for name in known if name != "exact_shapley"] if names == ["all"] else names


def _loaded(
    record: Path | None,
    network: str | None,
    weights: Path | None,
    data: str | None,
    layout: str | None,
    allow_code: bool,
    store: bool,
    data_dir: Path | None,
    device: str,
) -> LoadedRun:
    """Return the run of a record, or a run with a single network of the user's own."""
    from perdure.runs import load_run
    from perdure.runs.single_network import load_single_network

    if record is not None:
        if weights is not None:
            raise InputError("--weights needs --network and no RECORD, whose checkpoints are used")
        networks, sets = user_sources([record], network, data, layout, allow_code, store)
        return load_run(record, networks, sets, data_dir=data_dir, device=device)
    if network is None or data is None:
        missing = " and ".join(
            name for name, given in (("--network file.py:function", network), ("--data", data)) if given is None
        )
        raise InputError(f"no RECORD given; pass one, or your own network and test data: {missing} is missing")
    if store or allow_code:
        raise InputError("--store and --allow-code need a RECORD")
    return load_single_network(user_network(network, layout), user_data(data), weights, device, f"--network {network}")


def _rows(run: LoadedRun, task: int, examples: list[int] | None) -> Any:
    """Return the rows of the requested test examples."""
    import numpy as np

    if task > len(run.data.classes):
        raise InputError(f"--task {task}: {run.benchmark} has tasks 1 to {len(run.data.classes)}")
    count = len(run.data.labels(task - 1))
    numbers = examples or list(range(1, min(4, count) + 1))
    if min(numbers) < 1 or max(numbers) > count:
        raise InputError(f"--examples {','.join(map(str, numbers))}: task {task} has test examples 1 to {count}")
    return np.array(numbers) - 1


def _background(data: Any, task: int, count: int, seed: int) -> Any:
    """Return background examples: training examples at equal distances for a benchmark, else those of the user's data."""
    from perdure.runs import BenchmarkData

    return (
        data.spaced_background(task, count) if isinstance(data, BenchmarkData) else data.background(task, count, seed)
    )


def _outputs(network: Any, x: Any) -> int:
    import torch

    with torch.inference_mode():
        return int(network(x[:1]).shape[1])


def _target(word: str, labels: Any, outputs: int, kind: str) -> Any:
    if word == "label" and kind == "multi-label":
        raise InputError(f"--target label: several labels per example; pass an output from 1 to {outputs}")
    if word == "label":
        return labels
    if word == "predicted":
        return word
    if not word.isdigit() or not 1 <= int(word) <= outputs:
        raise InputError(f"--target {word}: expected label, predicted, or an output from 1 to {outputs}")
    return int(word) - 1


def _write(folder: Path, x: Any, labels: Any, maps: dict[str, Any], run: LoadedRun, figure_format: str) -> list[Path]:
    import numpy as np

    from perdure import figures
    from perdure.base.files import write_atomically
    from perdure.explain.adapters.views import input_view
    from perdure.runs.display import displayed_inputs

    arrays = {name: value.cpu().numpy() for name, value in maps.items()}
    file = io.BytesIO()
    np.savez_compressed(file, inputs=x.cpu().numpy(), labels=labels, **arrays)
    write_atomically(folder / "maps.npz", file.getvalue())
    written = [folder / "maps.npz"]
    names = [run.class_names[label] if run.class_names else str(label + 1) for label in labels[:SHOWN]]
    shown = {name: value[:SHOWN] for name, value in arrays.items()}
    displayed = displayed_inputs(run.inputs, run.data.form, x[:SHOWN].cpu().numpy())
    figure = None
    if maps and x.dim() == 4:
        figure = figures.attribution_panels(list(x[:SHOWN].cpu()), shown, labels=names)
    elif maps and x.dim() == 3:  # a series as an image of one row per channel
        images = input_view(run.described(run.network(run.last_step())), x[:SHOWN], None, None).x.cpu()
        figure = figures.attribution_panels(
            list(images),
            {name: [row.reshape(images[0].shape) for row in rows] for name, rows in shown.items()},
            labels=names,
        )
    elif maps and displayed is not None:
        draw = figures.attribution_text if displayed.kind == "text" else figures.attribution_bars
        figure = draw(displayed.names, shown, labels=[f"class {name}" for name in names])
    if figure is not None:
        written.append(figures.save(figure, folder / f"maps.{figure_format}"))
    return written


def _print(
    explained: str, written: list[Path], maps: dict[str, Any], refused: dict[str, str], choice: str, as_json: bool
) -> None:
    if as_json:
        sums = {name: value.flatten(1).sum(1).tolist() for name, value in maps.items()}
        printed = {"explained": explained, "written": [str(path) for path in written], "sums": sums, "refused": refused}
        print_json(printed | ({"estimator": choice} if choice else {}))
    else:
        echo(f"explained: {explained}. Methods: {', '.join(maps)}", err=True)
        if choice:
            echo(f"estimator of shapley: {choice}", err=True)
        for path in written:
            echo(path)
    for reason in refused.values():
        echo(f"perdure: {reason}", err=True)
    if refused:
        raise typer.Exit(1)
