"""perdure compare: what changed between two versions of a model?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, cast

import typer
from rich.console import Console

from perdure.base.errors import InputError
from perdure.cli.engines import Address, EngineName, EngineOptions, ShardText, Threads, Workers
from perdure.cli.options import (
    EXECUTES,
    AllowCode,
    AsJson,
    BatchSize,
    Data,
    DataDir,
    Device,
    Layout,
    MethodOptions,
    Network,
    allow_code_of,
    check_device_option,
    model_source,
    parse_method_options,
    parse_target,
    user_data,
    user_network,
)
from perdure.cli.output.json_output import print_json
from perdure.cli.output.names import echo

OUT = Path("comparison")
CACHE = "cache"
PAGE = "report.html"
_VERSION = f"a record, a checkpoint, a file of weights (with --network and --data), or file.py:model. {EXECUTES}"


def compare(
    old: Annotated[str, typer.Argument(metavar="OLD", help=f"The old version: {_VERSION}", show_default=False)],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The new version, in the same forms.", show_default=False)],
    reference: Annotated[
        list[str] | None,
        typer.Option(
            "--reference",
            help="A version retrained on OLD's data with another seed, or a folder of such records. Repeatable; at least 3.",
        ),
    ] = None,
    retrain: Annotated[
        int | None,
        typer.Option(help="Train OLD, a record of perdure run, this many times again as references.", min=3),
    ] = None,
    method: Annotated[
        str, typer.Option(help="The explainer. Models without gradients get Shapley values.")
    ] = "expected_gradients",
    option: MethodOptions = None,
    target: Annotated[str, typer.Option(help="Explained class: label, predicted, or an output (1-based).")] = "label",
    samples: Annotated[int, typer.Option(help="Random draws per map.", min=2)] = 200,
    examples: Annotated[
        int, typer.Option(help="Test examples to explain, balanced over tasks and classes.", min=2)
    ] = 40,
    background: Annotated[int, typer.Option(help="Background examples.", min=1)] = 100,
    untrained: Annotated[
        int, typer.Option(help="Untrained networks for the zero of the calibrated score; 0 for no such score.", min=0)
    ] = 12,
    seed: Annotated[int, typer.Option(help="Seed of the examples and draws.", min=0)] = 0,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder of report.html, comparison.json and finished maps.")
    ] = OUT,
    network: Network = None,
    data: Data = None,
    layout: Layout = None,
    allow_code: AllowCode = False,
    data_dir: DataDir = None,
    batch_size: BatchSize = None,
    device: Device = "cpu",
    as_json: AsJson = False,
    engine: EngineName = "local",
    workers: Workers = None,
    shard: ShardText = None,
    address: Address = None,
    threads: Threads = 1,
) -> None:
    """Compare two versions of a model on one test set: accuracy, flips, confidences and reasons.

    With references (versions retrained on the same data) the verdict says whether NEW changed by more than retraining changes;
    without them it is unknown how much change is harmless. Run the same command again to resume. perdure check turns a
    comparison into a release gate.
    """
    from perdure.audits import ShapcSettings
    from perdure.cli.output.comparison_tables import print_comparison
    from perdure.cli.output.progress import PartProgress
    from perdure.comparisons import compare as compare_versions
    from perdure.comparisons.results import FILE

    places = EngineOptions.checked(engine, workers, shard, address, threads)
    check_device_option(device)
    if reference and retrain:
        raise InputError("--reference and --retrain: pass one of them")
    if layout is not None and network is None:
        raise InputError("--layout needs --network")
    settings = ShapcSettings(
        method=method,
        target=cast("Literal['label', 'predicted'] | int", parse_target(target)),
        samples=samples,
        background=background,
        seed=seed,
        batch_size=batch_size,
        untrained=untrained,
        options=parse_method_options(option, [method]).get(method, {}),
    )
    if allow_code:
        allow_code_of(old, new, *(reference or []))
    made = None if network is None else user_network(network, layout)
    sets = None if data is None else user_data(data)
    with PartProgress(Console(stderr=True)) as bars, places.open_reporting(out, device) as opened:
        comparison = compare_versions(
            model_source(old, "OLD"),
            model_source(new, "NEW"),
            network=made,
            data=sets,
            reference=retrain or ([model_source(text, "--reference") for text in reference] if reference else None),
            examples=examples,
            settings=settings,
            data_dir=data_dir,
            device=device,
            cache=out / CACHE,
            progress=bars.show,
            engine=opened,
        )
    comparison.save(out / FILE)
    page = comparison.report(out / PAGE)
    if as_json:
        print_json(comparison.to_json())
    else:
        print_comparison(comparison, Console())
    echo(page, err=as_json)
