"""perdure audit and perdure report: records in, numbers and a page out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from perdure.base.errors import InputError
from perdure.cli.options import WEIGHTS_HELP, inside, weightings

PAGE = "report.html"
Paths = Annotated[list[Path], typer.Argument(metavar="PATH...", help="Records, or folders with records below.")]


_PANEL = "Does it keep deciding for the same reasons? (SHAPC)"


def audit(
    paths: Paths,
    weights: Annotated[list[str] | None, typer.Option("--weights", help=WEIGHTS_HELP)] = None,
    renormalise: Annotated[
        bool, typer.Option("--renormalise", help="Score over the criteria that are known, and say so.")
    ] = False,
    count_teachers: Annotated[bool, typer.Option("--count-teachers", help="Count frozen old networks in MS.")] = False,
    clamp: Annotated[
        bool, typer.Option("--clamp", help="Also tell the algorithms' doing from the tasks' (CLAMP); takes seconds.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Where audit.json goes; by default the first path.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    shapc: Annotated[
        bool, typer.Option("--shapc", help="Explain the checkpoints and compare the reasons.", rich_help_panel=_PANEL)
    ] = False,
    method: Annotated[
        str,
        typer.Option(help="The explainer, or least-biased: the one perdure trust found so.", rich_help_panel=_PANEL),
    ] = "expected_gradients",
    samples: Annotated[
        int, typer.Option(help="Budget of a sample and a network, both halves together.", min=1, rich_help_panel=_PANEL)
    ] = 200,
    per_task: Annotated[
        int | None,
        typer.Option(help="Test samples of each task; 40, or all with --precision.", min=2, rich_help_panel=_PANEL),
    ] = None,
    precision: Annotated[
        float | None,
        typer.Option(help="Stop when SHAPC-Mean is known to within this, to each side.", rich_help_panel=_PANEL),
    ] = None,
    top: Annotated[float, typer.Option(help="Share of important values.", rich_help_panel=_PANEL)] = 0.3,
    target: Annotated[str, typer.Option(help="label or predicted.", rich_help_panel=_PANEL)] = "label",
    score: Annotated[
        str,
        typer.Option(help="logits, or decision: what a learner like icarl decides by.", rich_help_panel=_PANEL),
    ] = "logits",
    head: Annotated[
        str,
        typer.Option(help="own, or first: of the sample's own step, to see the encoder alone.", rich_help_panel=_PANEL),
    ] = "own",
    background: Annotated[
        int, typer.Option(help="Training samples of the task to compare with.", min=1, rich_help_panel=_PANEL)
    ] = 100,
    variant: Annotated[str, typer.Option(help="paper, or authors: as their code.", rich_help_panel=_PANEL)] = "paper",
    layer: Annotated[str | None, typer.Option(help="Grad-CAM's layer.", rich_help_panel=_PANEL)] = None,
    seed: Annotated[int, typer.Option(help="Seed of samples and draws.", min=0, rich_help_panel=_PANEL)] = 0,
    keep_maps: Annotated[
        bool, typer.Option("--keep-maps", help="Keep the attributions, in safetensors.", rich_help_panel=_PANEL)
    ] = False,
    retrain_reference: Annotated[
        bool,
        typer.Option(
            "--retrain-reference",
            help="Also compare two seeds; with one record, train its first task again.",
            rich_help_panel=_PANEL,
        ),
    ] = False,
    network: Annotated[
        str | None,
        typer.Option(help="file.py:function that makes your own network.", rich_help_panel=_PANEL),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="file.py:function that returns [(inputs, labels), ...].", rich_help_panel=_PANEL),
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Where data files are.", rich_help_panel=_PANEL)] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, ...", rich_help_panel=_PANEL)] = "cpu",
    batch_size: Annotated[
        int | None, typer.Option(help="Rows through the network at once.", min=1, rich_help_panel=_PANEL)
    ] = None,
) -> None:
    """Audit records: what the learners learn, keep and cost, and with --shapc whether they keep their reasons.

    Writes audit.json and prints a table. Runs of one learner on one benchmark are averaged. Exit code 1 when a record is
    unfinished. With --shapc, --network and --data, a folder of checkpoints of your own is audited too.
    """
    from perdure.audits import FILE
    from perdure.audits import audit as audit_records
    from perdure.audits import audit_shapc as audit_one
    from perdure.cli.shapc_output import (
        StabilityProgress,
        own_data,
        own_network,
        print_result,
        print_stability,
    )
    from perdure.cli.tables import print_audit
    from perdure.record import Record, find_records

    own = {"network": own_network(network), "data": own_data(data)}
    asked = {
        "method": method,
        "samples": samples,
        "per_task": per_task,
        "precision": precision,
        "top": top,
        "target": target,
        "score": score,
        "head": head,
        "background": background,
        "variant": variant,
        "layer": layer,
        "seed": seed,
        "keep_maps": keep_maps,
        "data_dir": data_dir,
        "device": device,
        "batch_size": batch_size,
    }
    if (network is not None or data is not None) and not shapc:
        raise InputError("--network and --data are for --shapc; give it too")
    if shapc and len(paths) == 1 and not any(paths[0].rglob("record.json")):
        with StabilityProgress(Console(stderr=True)) as bars:
            one = audit_one(paths[0], **own, **asked, progress=bars.begin(str(paths[0])))
        if as_json:
            typer.echo(json.dumps(one.to_json(), indent=2, ensure_ascii=False, allow_nan=False))
        else:
            print_result(one, Console())
        return
    with StabilityProgress(Console(stderr=True)) as bars:
        result = audit_records(
            paths,
            weights=weightings(weights or []),
            renormalise=renormalise,
            count_teachers=count_teachers,
            clamp=clamp,
            stability=asked if shapc else False,
            retrain_reference=retrain_reference,
            begin=bars.begin,
            **own,
        )
    result.save(inside(out, FILE) or paths[0] / FILE)
    if as_json:
        typer.echo(json.dumps(result.to_json(), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        print_audit(result, Console())
        if shapc:
            print_stability(result, Console())
    unfinished = [path for path in find_records(paths) if not Record.open(path).complete]
    for path in unfinished:
        typer.echo(f"{path}: unfinished; repeat the command or the loop that makes it, and it goes on", err=True)
    if unfinished:
        raise typer.Exit(1)


def report(
    paths: Paths,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The page; by default report.html in the first path.")
    ] = None,
    tables: Annotated[
        Path | None, typer.Option(help="Also write every table here: CSV, LaTeX (booktabs) and Markdown.")
    ] = None,
    figures: Annotated[Path | None, typer.Option(help="Also write every figure here: PDF and SVG.")] = None,
) -> None:
    """Write the page of an audit: one HTML file, readable offline.

    Shows audit.json in the given folder if it is newer than the records, otherwise audits them first. What takes longer
    (perdure audit --clamp) is shown when audit.json has it, and what perdure trust has left in the records always.
    """
    from perdure.audits import FILE, Audit, with_trust
    from perdure.audits import audit as audit_records

    if len(paths) == 1 and not paths[0].exists():
        raise InputError(f"{paths[0]}: there is no such directory")
    saved = paths[0] / FILE
    fresh = len(paths) == 1 and saved.exists() and not _newer_records(paths[0], saved)
    result = with_trust(Audit.load(saved)) if fresh else audit_records(paths)
    typer.echo(result.report(inside(out, PAGE) or paths[0] / PAGE))
    for written in (result.tables(tables) if tables else []) + (result.figures(figures) if figures else []):
        typer.echo(written)


def _newer_records(folder: Path, audit_file: Path) -> bool:
    """Whether a record below a folder was written after its audit."""
    written = audit_file.stat().st_mtime_ns
    return any(manifest.stat().st_mtime_ns > written for manifest in folder.rglob("record.json"))
