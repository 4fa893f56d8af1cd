"""perdure trust: can the explanations be believed?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console

from perdure.base.errors import InputError
from perdure.cli.bars import make_bar
from perdure.cli.options import own_function
from perdure.cli.trust.bias import OwnNetwork, bias_of_own, tell_bias, trained_record

if TYPE_CHECKING:
    from perdure.audits.bias.ratings import Ratings
    from perdure.learners import Training

Target = Literal["label", "predicted"]
OUT_RETRAINING, OUT_BIAS = Path("runs/retraining"), Path("runs/trust")
_DATA = "Data and network"
_EXPLAIN = "Explanations"
_NOISE = "Weight randomisation"
_BIAS = "Attribution bias"


def trust(
    record: Annotated[
        Path | None,
        typer.Argument(
            help="A record: its network is asked about. With --retrain its data and training are used, and its checkpoints "
            "are compared too."
        ),
    ] = None,
    retrain: Annotated[
        bool, typer.Option("--retrain", help="Do explanations survive retraining? (MeGe, ReCo, weight randomisation)")
    ] = False,
    benchmark: Annotated[
        str | None, typer.Option(help="A benchmark's name, or a path to your own data.", rich_help_panel=_DATA)
    ] = None,
    per_class: Annotated[
        int | None, typer.Option(help="So many examples of each class.", min=1, rich_help_panel=_DATA)
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Where data files are, or go.", rich_help_panel=_DATA)] = None,
    network: Annotated[
        str | None,
        typer.Option(
            help="A name, or file.py:function of your own: (input shape, outputs) -> network.", rich_help_panel=_DATA
        ),
    ] = None,
    width: Annotated[int | None, typer.Option(help="Width of the network.", min=1, rich_help_panel=_DATA)] = None,
    epochs: Annotated[int | None, typer.Option(help="Epochs of each fold.", rich_help_panel=_DATA)] = None,
    batch_size: Annotated[int | None, typer.Option(help="Examples in a batch.", rich_help_panel=_DATA)] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate.", rich_help_panel=_DATA)] = None,
    optimizer: Annotated[str | None, typer.Option(help="sgd, adam or adagrad.", rich_help_panel=_DATA)] = None,
    momentum: Annotated[float | None, typer.Option(help="Momentum of sgd.", rich_help_panel=_DATA)] = None,
    folds: Annotated[
        int, typer.Option(help="Networks to train; 0 for a record's checkpoints alone.", min=0, rich_help_panel=_DATA)
    ] = 5,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Folds trained at once, sharing the cores; by default one a core.", min=1, rich_help_panel=_DATA
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, mps, ...", rich_help_panel=_DATA)] = "cpu",
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method",
            help="An explainer (perdure explain --method NAME); may be given several times. By default all are compared; "
            "with --retrain expected gradients alone.",
            rich_help_panel=_EXPLAIN,
        ),
    ] = None,
    samples: Annotated[
        int, typer.Option(help="Test samples to ask about, balanced over classes.", min=1, rich_help_panel=_BIAS)
    ] = 50,
    permutations: Annotated[
        int,
        typer.Option(help="Permutations for a sample's Shapley values, the yardstick.", min=20, rich_help_panel=_BIAS),
    ] = 100,
    step: Annotated[
        int | None,
        typer.Option(help="The checkpoint after this step; by default the last.", min=1, rich_help_panel=_BIAS),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            help="Weights of your own --network: .safetensors, .pt or .pth; without, as the function makes it.",
            rich_help_panel=_BIAS,
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="Your own samples, as the network takes them: file.npz with x, y and perhaps background, or "
            "file.py:function, () -> (inputs, labels) or (inputs, labels, background).",
            rich_help_panel=_BIAS,
        ),
    ] = None,
    outputs: Annotated[
        int | None,
        typer.Option(help="Outputs of your own --network; by default the largest label + 1.", rich_help_panel=_BIAS),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            help="What masked values take, and where integrated gradients start: mean (of the background), zero or blur.",
            rich_help_panel=_BIAS,
        ),
    ] = None,
    ratings: Annotated[
        Path | None,
        typer.Option(
            help="CSV of people's ratings (explainer, rater, rating[, image]): do they prefer little bias?",
            rich_help_panel=_BIAS,
        ),
    ] = None,
    shapc: Annotated[
        bool,
        typer.Option(
            "--shapc", help="Then ask, with the least biased explainer: are the reasons kept?", rich_help_panel=_BIAS
        ),
    ] = False,
    per_fold: Annotated[
        int, typer.Option(help="Samples of each fold (of each task: half) to explain.", min=2, rich_help_panel=_EXPLAIN)
    ] = 40,
    budget: Annotated[
        int,
        typer.Option(help="Gradients, steps, perturbations or permutations a map.", min=1, rich_help_panel=_EXPLAIN),
    ] = 100,
    background: Annotated[
        int, typer.Option(help="Training samples to compare with.", min=1, rich_help_panel=_EXPLAIN)
    ] = 50,
    target: Annotated[Target, typer.Option(help="Whose class is explained.", rich_help_panel=_EXPLAIN)] = "label",
    layer: Annotated[str | None, typer.Option(help="Grad-CAM's layer.", rich_help_panel=_EXPLAIN)] = None,
    players: Annotated[
        str | None,
        typer.Option(help="Shapley and LIME: pixels, features, grid or superpixels.", rich_help_panel=_EXPLAIN),
    ] = None,
    distance: Annotated[
        str,
        typer.Option(
            help="What the tables show: l2, l2-unit, cosine, spearman, ssim, ssim-unit.", rich_help_panel=_EXPLAIN
        ),
    ] = "l2-unit",
    noise: Annotated[str, typer.Option(help="Percent of the weights' own spread.", rich_help_panel=_NOISE)] = "5,10,30",
    top_down: Annotated[
        float | None,
        typer.Option(help="Also add so many percent from the output down, layer by layer.", rich_help_panel=_NOISE),
    ] = None,
    figure: Annotated[
        Path | None,
        typer.Option(help="Save the comparison (with --retrain: the scores against noise) as .png, .svg or .pdf."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of folds, networks and draws.", min=0)] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where networks and maps are kept, to be used again; by default runs/retraining, or runs/trust. What is found "
            "about a RECORD is kept in it.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print every number as JSON.")] = False,
) -> None:
    """Can the explanations be believed? Which explainer is least biased; with --retrain: do they survive training again?

    Without --retrain, compares explainers with the Shapley values of the same outputs and says which is least biased on this
    network, and whether that is safe to say. The network is a RECORD's, or yours (--network file.py:function, --weights,
    --data), or one that is trained first (--benchmark, --network NAME). perdure audit --shapc --method least-biased uses it.

    With --retrain, trains --folds networks, each without one fold of the data, explains held-out samples with all of them,
    and prints MeGe and ReCo with their controls, without noise on the weights and with. With a RECORD the same is asked of
    its checkpoints.

    Findings about a RECORD are left in it, where perdure audit and perdure report find them.
    Run it again: finished networks, values and maps are used as they are. Exit code 1 when an explainer named by --method
    had to be refused.
    """
    from perdure.audits.retraining.maps import Explaining

    training = {"epochs": epochs, "batch_size": batch_size, "lr": lr, "optimizer": optimizer, "momentum": momentum}
    given = {name: value for name, value in training.items() if value is not None}
    if not retrain:
        bias: dict[str, Any] = {"permutations": permutations, "budget": budget, "background": background}
        bias |= {"target": target, "layer": layer, "players": players, "seed": seed, "device": device}
        if method:
            bias["methods"] = method
        if baseline is not None:
            bias["baseline"] = baseline
        _check_bias(record, network, data, out, shapc)
        rated = _read_ratings(ratings)
        where = OUT_BIAS if out is None else out
        if data is None or network is None:
            if record is None:
                record = trained_record(benchmark, network, width, per_class, data_dir, given, seed, where)
            _bias_of_record(record, samples, step, data_dir, bias, shapc, rated, figure, as_json)
            return
        with Bar(Console(stderr=True)) as bar:
            found_bias = bias_of_own(OwnNetwork(network, weights, data, outputs), where, samples, bias, bar.show)
        tell_bias(found_bias, None, rated, figure, as_json, where / "bias.json", asked=method or [])
        return
    if folds == 0 and record is None:
        raise InputError("--folds 0 leaves nothing to do without a record; name one, or train at least 2 folds")
    shares = [share / 100 for share in _percents(noise, "--noise")]
    explaining = Explaining(budget, background, target, layer, players, seed)
    asked: dict[str, Any] = {"methods": method or ["expected_gradients"], "explaining": explaining, "device": device}
    found: dict[str, Any] = {}
    with Bar(Console(stderr=True)) as bar:
        if record is not None:
            from perdure.audits import across_checkpoints

            half = max(2, per_fold // 2)
            found["checkpoints"] = across_checkpoints(
                record, **asked, per_task=half, data_dir=data_dir, progress=bar.show
            )
        if folds:
            from perdure.audits import retrain as measure

            subject = _subject(record, benchmark, per_class, data_dir, network, width, given)
            found["retraining"] = measure(
                **subject,
                **asked,
                folds=folds,
                per_fold=per_fold,
                noise=shares,
                cascade_share=None if top_down is None else top_down / 100,
                seed=seed,
                workers=workers,
                out=out or OUT_RETRAINING,
                progress=bar.show,
            )
    if record is not None:
        from perdure.audits.findings import keep_findings

        keep_findings(record, **{name: result.summary() for name, result in found.items()})
    _tell(found, distance, figure, as_json)


def _bias_of_record(
    record: Path,
    samples: int,
    step: int | None,
    data_dir: Path | None,
    bias: dict[str, Any],
    shapc: bool,
    ratings: Ratings | None,
    figure: Path | None,
    as_json: bool,
) -> None:
    """Compare explainers on a record's network, and use the least biased one if asked."""
    from perdure.audits import audit_shapc, record_bias
    from perdure.audits.bias.results import FILE
    from perdure.audits.shapc.settings import LEAST_BIASED

    with Bar(Console(stderr=True)) as bar:
        place = None if step is None else step - 1
        found = record_bias(record, step=place, samples=samples, data_dir=data_dir, progress=bar.show, **bias)
        stability = None
        if shapc:
            stability = audit_shapc(
                record,
                method=LEAST_BIASED,
                data_dir=data_dir,
                device=bias["device"],
                progress=lambda done, total, _: bar.show("SHAPC", done, total),
            )
    tell_bias(found, stability, ratings, figure, as_json, record / FILE, asked=bias.get("methods", []))


def _check_bias(record: Path | None, network: str | None, data: str | None, out: Path | None, shapc: bool) -> None:
    """Refuse options that would be left unused."""
    if record is not None and out is not None:
        raise InputError(f"--out {out}: what is found about a record is kept in the record; leave it out")
    if data is not None and (record is not None or network is None):
        raise InputError("--data: give it with --network file.py:function, a trained network of your own")
    if data is not None and shapc:
        raise InputError(
            "--shapc: it compares the checkpoints of a record; for your own, name the explainer: "
            "perdure audit FOLDER --shapc --method NAME --network file.py:function --data file.py:function"
        )
    if data is None and record is None and network is not None and ":" in network:
        raise InputError(f"--network {network}: give --data too, the samples to ask your network about")


def _read_ratings(file: Path | None) -> Ratings | None:
    if file is None:
        return None
    from perdure.audits.bias.ratings import read_ratings

    return read_ratings(file)


def _percents(text: str, option: str) -> list[float]:
    try:
        values = [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise InputError(f"{option} {text}: expected numbers separated by commas, as in 5,10,30") from None
    if any(not 0 <= value < float("inf") for value in values):
        raise InputError(f"{option} {text}: expected percentages of at least 0")
    return values


def _subject(
    record: Path | None,
    benchmark: str | None,
    per_class: int | None,
    data_dir: Path | None,
    network: str | None,
    width: int | None,
    given: dict[str, Any],
) -> dict[str, Any]:
    """Return data, network and training: of the record, or as the options say."""
    from dataclasses import replace

    from perdure import nets, tasks
    from perdure.audits.shapc.reference import recorded_training
    from perdure.learners import protocol_for
    from perdure.record import Record
    from perdure.runs.loaded_run import rebuilt_benchmark

    maker = own_function(network) if network and ":" in network else network
    if record is None:
        data = tasks.load(benchmark or "split-digits", per_class=per_class, data_dir=data_dir)
        training: Training = replace(protocol_for(data).training, **given)
        return {"data": data, "network": maker, "width": width, "training": training}
    if benchmark is not None:
        raise InputError("--benchmark: the record names its own data; give one of the two")
    opened = Record.open(record)
    name = opened.manifest.network.get("name")
    if maker is None and name not in nets.names():
        raise InputError(f"{record}: it does not name a network of ours; give --network file.py:function, or --folds 0")
    return {
        "data": rebuilt_benchmark(opened, data_dir),
        "network": maker or name,
        "width": width or opened.manifest.network.get("width"),
        "training": replace(recorded_training(opened.manifest), **given),
    }


class Bar:
    """One bar for each part of the work; nothing in a pipe."""

    def __init__(self, console: Console) -> None:
        self.bar = make_bar(console)
        self.lines: dict[int, Any] = {}

    def __enter__(self) -> Bar:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def show(self, what: str, done: int, total: int) -> None:
        """Show what is being done; a new total is a new part."""
        if total not in self.lines:
            self.lines[total] = self.bar.add_task(what, total=total, detail="")
        self.bar.update(self.lines[total], description=what, completed=done)


def _tell(found: dict[str, Any], distance: str, figure: Path | None, as_json: bool) -> None:
    from perdure.cli.trust.tables import print_checkpoints, print_retraining

    for result in found.values():
        if distance not in result.distances:
            raise InputError(f"--distance {distance}: these maps have {', '.join(result.distances)}")
    if figure is not None and "retraining" in found:
        from perdure import figures

        figures.save(figures.noise_lines(found["retraining"], distance), figure)
    if as_json:
        told = {name: result.to_json() for name, result in found.items()}
        typer.echo(json.dumps(told, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        if "retraining" in found:
            print_retraining(found["retraining"], distance, Console())
        if "checkpoints" in found:
            print_checkpoints(found["checkpoints"], distance, Console())
    refused = {name: why for result in found.values() for name, why in result.refused.items()}
    for name, why in refused.items():
        typer.echo(f"perdure: {name} was left out: {why}", err=True)
    if refused:
        raise typer.Exit(1)
