"""The part of perdure trust that compares explainers by their attribution bias."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from perdure.base.errors import InputError
from perdure.cli.options import own_function

if TYPE_CHECKING:
    from perdure.audits.bias.ratings import Ratings
    from perdure.audits.bias.results import BiasResult, ExplainerBias
    from perdure.audits.shapc.results import ShapcResult

Show = Callable[[str, int, int], None]


@dataclass(frozen=True)
class OwnNetwork:
    """A user's trained network, the weights it has (None when the function loads them), and the samples to ask about."""

    network: str
    weights: Path | None
    data: str
    outputs: int | None
    """None for the largest label + 1."""


def bias_of_own(own: OwnNetwork, out: Path, samples: int, asked: dict[str, Any], show: Show) -> BiasResult:
    """Compare explainers on a network that is in no record."""
    import numpy as np
    import torch

    from perdure.audits.bias.measure import measure_bias
    from perdure.audits.bias.shapley_store import KeptShapley
    from perdure.runs.data import OwnData, balanced_order
    from perdure.runs.loaded_run import filled, read_weights

    given = _samples(own.data)
    data = OwnData.checked([given[:2]], None if len(given) == 2 else [given[2]])
    rows = np.sort(balanced_order(data.labels(0), asked["seed"])[:samples])
    x, labels = data.inputs(0, rows), data.labels(0)[rows]
    outputs = own.outputs or int(data.labels(0).max()) + 1
    network = own_function(own.network)(tuple(x.shape[1:]), outputs)
    if not isinstance(network, torch.nn.Module):
        raise InputError(f"--network {own.network}: it made a {type(network).__name__}, expected a torch.nn.Module")
    if own.weights is not None:
        source = "--outputs" if own.outputs else "the largest label + 1; say --outputs if there are more"
        what = f"{own.weights}: the checkpoint, for a network of {outputs} outputs ({source}),"
        network = filled(network, read_weights(own.weights), what)
    device, count = asked.pop("device"), asked.pop("background")
    target = asked.pop("target")
    found = measure_bias(
        network.to(device).eval(),
        x.to(device),
        labels if target == "label" else target,
        background=data.background(0, count, asked["seed"]).to(device),
        subject=f"{own.network} on {own.data}",
        tables=KeptShapley(out / "shapley"),
        progress=show,
        **asked,
    )
    found.save(out / "bias.json")
    return found


def _samples(place: str) -> Sequence[Any]:
    """Return (inputs, labels) or (inputs, labels, background) from a user's file or function."""
    import numpy as np

    if place.endswith(".npz"):
        try:
            with np.load(place, allow_pickle=False) as arrays:
                found = [arrays[name] for name in ("x", "y", "background") if name in arrays]
                if not {"x", "y"} <= set(arrays):
                    raise InputError(f"--data {place}: it has {', '.join(arrays) or 'nothing'}; expected x and y")
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"--data {place}: it cannot be read as arrays ({error})") from None
        return found
    given = own_function(place)()
    if not isinstance(given, tuple | list) or len(given) not in (2, 3):
        raise InputError(f"--data {place}: expected (inputs, labels) or (inputs, labels, background)")
    return given


def trained_record(
    benchmark: str | None,
    network: str | None,
    width: int | None,
    per_class: int | None,
    data_dir: Path | None,
    given: dict[str, Any],
    seed: int,
    out: Path,
) -> Path:
    """Train a network on all classes of a benchmark at once, or find the one an earlier call has trained."""
    from dataclasses import replace

    from perdure import learners, tasks
    from perdure.base.files import write_atomically
    from perdure.cli.progress import RunProgress
    from perdure.record.schema import ASIDE

    data = tasks.load(benchmark or "split-digits", per_class=per_class, data_dir=data_dir)
    protocol = learners.protocol_for(data)
    run = learners.Run(
        data,
        learners.get("joint"),
        network=network or protocol.network,
        width=width,
        training=replace(protocol.training, **given),
        seed=seed,
    )
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / ASIDE, b"networks of perdure trust\n")
    folder = out / f"{data.name}-{network or protocol.network}-seed-{seed}"
    if not folder.exists():
        typer.echo(f"no record is named, so {run.network} is trained on {data.name} first ({folder})", err=True)
    with RunProgress("training", Console(stderr=True), tells_tasks=False) as progress:
        learners.execute(run, folder, progress)
    return folder


def tell_bias(
    found: BiasResult,
    stability: ShapcResult | None,
    ratings: Ratings | None,
    figure: Path | None,
    as_json: bool,
    where: Path,
    asked: Sequence[str],
) -> None:
    """Print the comparison, or everything as JSON; save the figure; exit with 1 when an explainer asked for was refused."""
    people = None
    if ratings is not None:
        from perdure.audits.bias.ratings import compare_with_ratings

        people = compare_with_ratings(found, ratings)
    if figure is not None:
        from perdure import figures

        figures.save(figures.bias_bars(found), figure)
        typer.echo(f"picture: {figure}", err=True)
    if as_json:
        told = {"bias": found.to_json(), **({} if stability is None else {"shapc": stability.to_json()})}
        if people is not None:
            told["ratings"] = {"explainers": list(people.explainers), "r": people.linear.r, "reading": people.reading}
        typer.echo(json.dumps(told, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        print_bias(found, where, Console())
        if people is not None:
            typer.echo(f"{people.raters} raters, {people.images} image(s). {people.reading}")
        if stability is not None:
            from perdure.cli.shapc_output import print_result

            print_result(stability, Console())
            typer.echo("perdure audit RUNS --shapc --method least-biased puts it beside other runs and on the page.")
    for name, why in found.refused.items():
        typer.echo(f"perdure: {name} was left out: {why}", err=True)
    if set(asked) & set(found.refused):
        raise typer.Exit(1)


def print_bias(found: BiasResult, where: Path, console: Console) -> None:
    """Print the bias of every explainer and control, and the verdict."""
    say = partial(console.print, highlight=False, markup=False, soft_wrap=True)
    say(
        f"Can the explanation be believed? {found.subject}: {found.samples} samples, "
        f"{found.settings['player_count']} players ({found.settings['players']})"
    )
    if found.target == "label":
        say(
            f"The true class is explained; the network gives it the highest score on {found.settings['decided']:.0%} of them."
        )
    table = Table(
        title="attribution bias", title_justify="left", header_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    table.add_column("explainer", no_wrap=True)
    for name in ("all shares, sides ↓", "corrected", "top 10%", "low 10%"):
        table.add_column(name, justify="right", no_wrap=True)
    for before, entry in zip([None, *found.by_bias], found.by_bias, strict=False):
        if before is not None and entry.control and not before.control:
            table.add_section()
        cells = (entry.corrected.mean(), *(entry.cells[0][side].mean for side in range(2)))
        table.add_row(
            _name(entry), _interval(entry.overall), *("–" if cell != cell else f"{cell:.4f}" for cell in cells)
        )
    console.print(table)
    start = found.settings["baseline"] or "mean"
    masked = {"mean": "the background's mean", "own": "your baseline"}.get(start, start)
    if found.estimator == "exact":
        say(f"Judged by exact Shapley values; masked values take {masked}.")
    else:
        floor = next(entry.floor.mean() for entry in found.explainers if entry.layer is None)
        say(
            f"Judged by Shapley values from {found.permutations} permutations ({found.estimator}), masked values taking "
            f"{masked}; sampling noise is {found.noise_share:.1%} of their squared norm, and a map without bias would score "
            f"{floor:.4f}."
        )
    for entry in found.explainers:
        if entry.layer is not None:
            say(f"{entry.method} is judged at layer {entry.layer} ({entry.players} positions), so it is not ranked.")
        if entry.degenerate:
            say(
                f"{entry.method}: {entry.degenerate} of {found.samples} samples are set aside, because its map or the "
                "Shapley values are zero everywhere."
            )
    if found.verdict is None:
        say("No explainer could be ranked.")
    else:
        say(found.verdict.reading)
    say(f"Everything is in {where}.")


def _name(entry: ExplainerBias) -> str:
    if entry.control:
        return f"{entry.method} (control)"
    return entry.method if entry.ranked else f"{entry.method} (its layer)"


def _interval(value: Any) -> str:
    """Biases are small: four digits for the limits too."""
    return str(value) if value.method == "none" else f"{value.mean:.4f} [{value.low:.4f}, {value.high:.4f}]"
