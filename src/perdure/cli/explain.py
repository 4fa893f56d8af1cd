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
    AsJson,
    BatchSize,
    DataDir,
    Device,
    MethodOptions,
    check_baseline_option,
    check_device_option,
    parse_integers,
    parse_method_options,
)
from perdure.cli.output.json_output import print_json
from perdure.cli.output.names import echo

if TYPE_CHECKING:
    from perdure.cli.output.progress import ProgressBars
    from perdure.runs import BenchmarkData, LoadedRun

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
    record: Annotated[Path, typer.Argument(help="A record with checkpoints, made by perdure run.", show_default=False)],
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
        Path | None, typer.Option(help="Where maps and figure are written; default: explain/ in the record.")
    ] = None,
    as_json: AsJson = False,
    list_methods: Annotated[  # noqa: ARG001  (handled by its callback)
        bool,
        typer.Option(
            "--list", help="List the methods and their options, and exit.", is_eager=True, callback=_list_methods
        ),
    ] = False,
) -> None:
    """Explain decisions of a record's network, example by example.

    Writes one .npz file with the maps of every method and, for images, a figure with a panel for each. A method that would be
    wrong on this network is refused; with several methods the others continue, and the exit code is 1.
    """
    from perdure import explain as explainers
    from perdure.cli.output.progress import ProgressBars
    from perdure.runs import BenchmarkData, load_run
    from perdure.runs.loaded_run import describe_run_score

    _check_format(figure_format)
    check_device_option(device)
    check_baseline_option(baseline)
    methods = _methods(method, explainers.method_names())
    options = parse_method_options(option, methods)
    run = load_run(record, data_dir=data_dir, device=device)
    run.last_step()
    if score not in SCORES:
        raise InputError(f"--score: unknown name {score!r}, {error_suggestion(score, list(SCORES))}")
    index = run.checked_step(None if step is None else step - 1)
    network = run.network(index) if score == "logits" else run.decision_network(index)
    names = {"label": "the true class", "predicted": "the predicted class"}
    explained = describe_run_score(names.get(target, f"output {target}"), score, run.decides_by)
    data = run.data
    if not isinstance(data, BenchmarkData):
        raise InputError(f"{record}: the record does not name its data; expected a record of perdure run")
    rows = _rows(data, run, task, parse_integers(examples, "--examples"))
    x, labels = data.inputs(task - 1, rows), data.labels(task - 1)[rows]
    settings: dict[str, Any] = {
        "background": data.spaced_background(task - 1, background),
        "samples": samples,
        "seed": seed,
        "layer": layer,
        "baseline": baseline,
        "reduce": "pixels",
        "batch_size": batch_size,
        "players": players,
    }
    explained_target = _target(target, labels, data.benchmark.outputs)
    maps: dict[str, Any] = {}
    refused: dict[str, str] = {}
    try:
        with ProgressBars(Console(stderr=True)) as bars:
            for name in methods:
                progress = partial(_show, bars, bars.add(name, len(x)))
                try:
                    maps[name] = explainers.attribute(
                        network, x, explained_target, name, **settings, options=options.get(name), progress=progress
                    )
                except InputError as error:
                    if len(methods) == 1:
                        raise
                    refused[name] = str(error)
    finally:  # finished maps are written even if a later method fails
        written = _write(out or record / "explain", x, labels, maps, run, figure_format) if maps else []
    _print(explained, written, maps, refused, as_json)


def _show(bars: ProgressBars, bar: Any, done: int, total: int) -> None:
    bars.bars.update(bar, completed=done, total=total)


def _check_format(name: str) -> None:
    from perdure.figures.style import FORMATS

    if name not in FORMATS:
        raise InputError(f"--format: unknown name {name!r}, {error_suggestion(name, list(FORMATS))}")


def _methods(requested: list[str] | None, known: list[str]) -> list[str]:
    names = list(dict.fromkeys(requested or ["expected_gradients"]))
    return [name for name in known if name != "exact_shapley"] if names == ["all"] else names


def _rows(data: BenchmarkData, run: LoadedRun, task: int, examples: list[int] | None) -> Any:
    """Return the rows of the requested test examples."""
    import numpy as np

    if task > len(run.tasks):
        raise InputError(f"--task {task}: {run.benchmark} has tasks 1 to {len(run.tasks)}")
    count = len(data.labels(task - 1))
    numbers = examples or list(range(1, min(4, count) + 1))
    if min(numbers) < 1 or max(numbers) > count:
        raise InputError(f"--examples {','.join(map(str, numbers))}: task {task} has test examples 1 to {count}")
    return np.array(numbers) - 1


def _target(word: str, labels: Any, outputs: int) -> Any:
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

    arrays = {name: value.cpu().numpy() for name, value in maps.items()}
    file = io.BytesIO()
    np.savez_compressed(file, inputs=x.cpu().numpy(), labels=labels, **arrays)
    write_atomically(folder / "maps.npz", file.getvalue())
    written = [folder / "maps.npz"]
    if maps and x.dim() == 4:
        names = [run.class_names[label] if run.class_names else str(label + 1) for label in labels[:SHOWN]]
        shown = {name: value[:SHOWN] for name, value in arrays.items()}
        panels = figures.attribution_panels(list(x[:SHOWN].cpu()), shown, labels=names)
        written.append(figures.save(panels, folder / f"maps.{figure_format}"))
    return written


def _print(explained: str, written: list[Path], maps: dict[str, Any], refused: dict[str, str], as_json: bool) -> None:
    if as_json:
        sums = {name: value.flatten(1).sum(1).tolist() for name, value in maps.items()}
        print_json(
            {"explained": explained, "written": [str(path) for path in written], "sums": sums, "refused": refused}
        )
    else:
        echo(f"explained: {explained}. Methods: {', '.join(maps)}", err=True)
        for path in written:
            echo(path)
    for reason in refused.values():
        echo(f"perdure: {reason}", err=True)
    if refused:
        raise typer.Exit(1)
