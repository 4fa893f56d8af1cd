"""perdure explain: attribution maps of a record's network, as arrays and as a picture."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress, TaskID

from perdure.base.errors import InputError, suggest
from perdure.cli.options import check_device, numbers

if TYPE_CHECKING:
    from perdure.tasks import Benchmark

SHOWN = 8


def explain(
    record: Annotated[Path, typer.Argument(help="A record with checkpoints, as perdure run leaves it.")],
    method: Annotated[
        list[str] | None, typer.Option("--method", help="A method; may be given several times. 'all': every one.")
    ] = None,
    task: Annotated[int, typer.Option(help="Whose test samples are explained, counted from 1.", min=1)] = 1,
    step: Annotated[
        int | None, typer.Option(help="The checkpoint after this step; by default the last.", min=1)
    ] = None,
    samples: Annotated[
        str | None, typer.Option(help="Which test samples, counted from 1: 1,5,9. By default the first 4.")
    ] = None,
    target: Annotated[str, typer.Option(help="label, predicted, or an output counted from 1.")] = "label",
    score: Annotated[str, typer.Option(help="logits, or decision: what a learner like icarl decides by.")] = "logits",
    budget: Annotated[
        int, typer.Option(help="Gradients, steps, perturbations or permutations for each sample.", min=1)
    ] = 100,
    background: Annotated[int, typer.Option(help="Training samples of the task as background.", min=1)] = 100,
    layer: Annotated[str | None, typer.Option(help="Grad-CAM's layer; by default the last with a map.")] = None,
    players: Annotated[
        str | None, typer.Option(help="Shapley and LIME: pixels, features, grid or superpixels.")
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(help="What is masked takes: mean, zero or blur. By default the mean; integrated gradients: zero."),
    ] = None,
    estimator: Annotated[str, typer.Option(help="Shapley: antithetic, castro, leverage or gradient.")] = "antithetic",
    seed: Annotated[int, typer.Option(help="Seed of all draws.", min=0)] = 0,
    data_dir: Annotated[Path | None, typer.Option(help="Where data files are, or go.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Rows that go through the network at once.", min=1)] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, mps, ...")] = "cpu",
    picture: Annotated[str, typer.Option("--format", help="Of the picture: png, svg or pdf.")] = "png",
    out: Annotated[
        Path | None, typer.Option(help="Where maps and picture go; by default explain/ in the record.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was written and each map's sum as JSON.")] = False,
) -> None:
    """Explain a record's network: why it decides as it does, sample by sample.

    Writes one .npz with the maps of every method and, for images, a picture with one panel for each. A method that would be
    wrong on this network is refused; with several methods the others go on, and the exit code is 1.
    """
    from perdure import explain as room
    from perdure.record import Record
    from perdure.runs.loaded_run import explained_in_words, networks_of, rebuilt_benchmark

    _check_format(picture)
    check_device(device)
    opened = Record.open(record)
    chosen = _methods(method, room.method_names())
    data = rebuilt_benchmark(opened, data_dir)
    if not opened.manifest.checkpoints:
        raise InputError(f"{record}: no checkpoint was kept, so there is no network to explain")
    networks = dict(zip(("logits", "decision"), networks_of(opened, None, data, device), strict=True))
    if score not in networks:
        raise InputError(f"--score {score}: {suggest(score, list(networks))}")
    network = networks[score](max(opened.manifest.checkpoints) if step is None else step - 1)
    whose = {"label": "the true class", "predicted": "the class the network decides for"}.get(
        target, f"output {target}"
    )
    explained = explained_in_words(whose, score, opened.manifest.decides_by)
    x, labels, others = _inputs(data, task, numbers(samples, "--samples"), background)
    wanted = _target(target, labels, data.outputs)
    console = Console(stderr=True)
    maps: dict[str, Any] = {}
    refused: dict[str, str] = {}
    try:
        with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
            for name in chosen:
                line = bar.add_task(name, total=len(x))
                try:
                    maps[name] = room.attribute(
                        network,
                        x,
                        wanted,
                        name,
                        background=others,
                        samples=budget,
                        seed=seed,
                        layer=layer,
                        baseline=baseline,
                        reduce="pixels",
                        batch_size=batch_size,
                        players=players,
                        estimator=estimator,
                        progress=partial(_show, bar, line),
                    )
                except InputError as error:
                    if len(chosen) == 1:
                        raise
                    refused[name] = str(error)
    finally:  # what is finished is kept, whatever ends the work
        written = _write(out or record / "explain", x, labels, maps, data, picture) if maps else []
    _tell(explained, written, maps, refused, as_json)


def _show(bar: Progress, line: TaskID, done: int, total: int) -> None:
    bar.update(line, completed=done, total=total)


def _check_format(word: str) -> None:
    from perdure.figures.style import FORMATS

    if word not in FORMATS:
        raise InputError(f"--format {word}: {suggest(word, list(FORMATS))}")


def _methods(asked: list[str] | None, known: list[str]) -> list[str]:
    names = list(dict.fromkeys(asked or ["expected_gradients"]))
    return [name for name in known if name != "exact_shapley"] if names == ["all"] else names


def _inputs(data: Benchmark, task: int, samples: list[int] | None, background: int) -> tuple[Any, Any, Any]:
    """Return normalised test samples, their labels and a background of training samples spread over the task."""
    import numpy as np
    import torch

    from perdure.learners.data import Preparation

    if task > len(data.tasks):
        raise InputError(f"--task {task}: {data.name} has tasks 1 to {len(data.tasks)}")
    chosen = data.tasks[task - 1]
    places = samples or list(range(1, min(4, len(chosen.test)) + 1))
    if min(places) < 1 or max(places) > len(chosen.test):
        raise InputError(
            f"--samples {','.join(map(str, places))}: task {task} has test samples 1 to {len(chosen.test)}"
        )
    ready = Preparation(data, torch.device("cpu"))
    rows = np.array(places) - 1
    spread = np.unique(np.linspace(0, len(chosen.train) - 1, min(background, len(chosen.train))).astype(int))
    x = ready.normalised(torch.from_numpy(np.ascontiguousarray(chosen.test.x[rows])))
    others = ready.normalised(torch.from_numpy(np.ascontiguousarray(chosen.train.x[spread])))
    return x, chosen.test.y[rows], others


def _target(word: str, labels: Any, outputs: int) -> Any:
    if word == "label":
        return labels
    if word == "predicted":
        return word
    if not word.isdigit() or not 1 <= int(word) <= outputs:
        raise InputError(f"--target {word}: expected label, predicted, or an output from 1 to {outputs}")
    return int(word) - 1


def _write(folder: Path, x: Any, labels: Any, maps: dict[str, Any], data: Benchmark, picture: str) -> list[Path]:
    import numpy as np

    from perdure import figures

    folder.mkdir(parents=True, exist_ok=True)
    arrays = {name: value.numpy() for name, value in maps.items()}
    np.savez_compressed(folder / "maps.npz", inputs=x.numpy(), labels=labels, **arrays)
    written = [folder / "maps.npz"]
    if maps and x.dim() == 4:
        names = [data.class_names[label] if data.class_names else str(label + 1) for label in labels[:SHOWN]]
        shown = {name: value[:SHOWN] for name, value in arrays.items()}
        written.append(
            figures.save(figures.attribution_panels(list(x[:SHOWN]), shown, labels=names), folder / f"maps.{picture}")
        )
    return written


def _tell(explained: str, written: list[Path], maps: dict[str, Any], refused: dict[str, str], as_json: bool) -> None:
    if as_json:
        sums = {name: value.flatten(1).sum(1).tolist() for name, value in maps.items()}
        told = {"explained": explained, "written": [str(path) for path in written], "sums": sums, "refused": refused}
        typer.echo(json.dumps(told, indent=2))
    else:
        typer.echo(f"explained: {explained}", err=True)
        for path in written:
            typer.echo(path)
    for reason in refused.values():
        typer.echo(f"perdure: {reason}", err=True)
    if refused:
        raise typer.Exit(1)
