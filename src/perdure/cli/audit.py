"""perdure audit: from records to numbers with intervals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from perdure.base.errors import InputError
from perdure.cli.engines import Address, EngineName, EngineOptions, ShardText, Threads, UnitBars, Workers, print_missing
from perdure.cli.options import (
    AllowCode,
    AsJson,
    BatchSize,
    CountTeachers,
    Data,
    DataDir,
    Details,
    Device,
    Expect,
    Group,
    Layout,
    Losses,
    MethodOptions,
    MetricName,
    Network,
    Percent,
    Renormalise,
    ResultPaths,
    Store,
    TrainedTasks,
    VerdictPolicy,
    Weights,
    check_expect_option,
    check_expected_audit,
    output_file_option,
    parse_method_options,
    parse_target,
    parse_weights,
    user_sources,
)
from perdure.cli.output.json_output import print_json
from perdure.cli.output.names import echo
from perdure.cli.plans import Plan, print_audit_plan
from perdure.cli.score import CeEpsilon, Variants

if TYPE_CHECKING:
    from perdure.audits import Audit, ShapcSettings

DETAILS_HINT = "perdure audit --details prints every number; perdure report writes a page."
_PANEL = "Does it still decide for the same reasons? (SHAPC)"


def audit(
    paths: ResultPaths,
    weights: Weights = None,
    renormalise: Renormalise = False,
    count_teachers: CountTeachers = False,
    ce_epsilon: CeEpsilon = 10.0,
    variants: Variants = False,
    clamp: Annotated[
        bool, typer.Option("--clamp", help="Also fit CLAMP to the accuracy curves: algorithm or tasks? Takes seconds.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Where audit.json is written; default: the first path.")] = None,
    expect: Expect = None,
    as_json: AsJson = False,
    details: Details = False,
    policy: VerdictPolicy = None,
    shapc: Annotated[
        bool, typer.Option("--shapc", help="Explain the checkpoints and compare the reasons.", rich_help_panel=_PANEL)
    ] = False,
    method: Annotated[
        str,
        typer.Option(
            help="The explainer; least-biased: the one that perdure trust bias recommends; auto: expected_gradients, or "
            "Shapley values for models without gradients.",
            rich_help_panel=_PANEL,
        ),
    ] = "auto",
    option: MethodOptions = None,
    samples: Annotated[
        int,
        typer.Option(
            help="Random draws per map; two halves of them measure sampling noise.", min=1, rich_help_panel=_PANEL
        ),
    ] = 200,
    examples: Annotated[
        int | None,
        typer.Option(
            help="Test examples per task; default 40. With --precision the largest number, default all.",
            min=2,
            rich_help_panel=_PANEL,
        ),
    ] = None,
    precision: Annotated[
        float | None,
        typer.Option(
            help="Explain as many examples of each task as needed until the 95 % interval of the calibrated score is within "
            "± this; with --untrained 0, that of SHAPC-Mean.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    top: Annotated[float, typer.Option(help="Share of values that count as important.", rich_help_panel=_PANEL)] = 0.3,
    target: Annotated[
        str, typer.Option(help="Explained class: label, predicted, or an output (1-based).", rich_help_panel=_PANEL)
    ] = "label",
    score: Annotated[
        str,
        typer.Option(
            help="Explained score: logits, or decision (the score by which a learner like icarl decides).",
            rich_help_panel=_PANEL,
        ),
    ] = "logits",
    head: Annotated[
        str,
        typer.Option(
            help="Output layer: own, or first (of the step that trained the task, to isolate changes of the encoder).",
            rich_help_panel=_PANEL,
        ),
    ] = "own",
    background: Annotated[
        int, typer.Option(help="Background examples, from the task's training data.", min=1, rich_help_panel=_PANEL)
    ] = 100,
    untrained: Annotated[
        int,
        typer.Option(
            help="Untrained networks for the zero of the calibrated score; 0 for no calibrated score.",
            min=0,
            rich_help_panel=_PANEL,
        ),
    ] = 12,
    untrained_samples: Annotated[
        int | None,
        typer.Option(
            help="Random draws per map of an untrained network; default an eighth of --samples, at least 20.",
            min=2,
            rich_help_panel=_PANEL,
        ),
    ] = None,
    variant: Annotated[
        str, typer.Option(help="Definition of SHAPC: paper, or authors (their code).", rich_help_panel=_PANEL)
    ] = "paper",
    layer: Annotated[str | None, typer.Option(help="Layer of Grad-CAM.", rich_help_panel=_PANEL)] = None,
    seed: Annotated[
        int, typer.Option(help="Seed of example order and random draws.", min=0, rich_help_panel=_PANEL)
    ] = 0,
    keep_maps: Annotated[
        bool, typer.Option("--keep-maps", help="Store the attribution maps (safetensors).", rich_help_panel=_PANEL)
    ] = False,
    retrain_reference: Annotated[
        bool,
        typer.Option(
            "--retrain-reference",
            help="Also compare networks of two seeds; a single record is trained again on its first task.",
            rich_help_panel=_PANEL,
        ),
    ] = False,
    network: Network = None,
    data: Data = None,
    layout: Layout = None,
    allow_code: AllowCode = False,
    store: Store = False,
    data_dir: DataDir = None,
    device: Device = "cpu",
    batch_size: BatchSize = None,
    plan: Plan = False,
    engine: EngineName = "local",
    workers: Workers = None,
    shard: ShardText = None,
    address: Address = None,
    threads: Threads = 1,
    percent: Percent = False,
    losses: Losses = False,
    metric: MetricName = None,
    group: Group = None,
    curriculum: TrainedTasks = None,
) -> None:
    """Audit records: what the learners learn, keep and cost, and with --shapc whether their reasons change.

    Writes audit.json and prints the answer in a sentence and a ranked table; --details prints every number. Runs of one learner
    on one benchmark are averaged. The exit code is 1 if a record is
    unfinished; with --expect, if the audit differs from the expected one. With --shapc, --network and --data, PATH can be
    your own folder of checkpoints.
    """
    from perdure.audits import FILE, ImportOptions, ShapcSettings
    from perdure.cli.output.audit_tables import print_summary
    from perdure.engine.execution import fixed_threads
    from perdure.policies import read_policy

    where = EngineOptions.checked(engine, workers, shard, address, threads)
    if (network is not None or data is not None) and not shapc:
        raise InputError("--network and --data need --shapc")
    if not shapc:
        _refuse_shapc_options(method, option, examples, precision, keep_maps, retrain_reference, allow_code)
    if expect is not None:
        check_expect_option(expect)
    rules = None if policy is None else read_policy(policy)
    is_folder = len(paths) == 1 and paths[0].is_dir() and not any(paths[0].rglob("record.json"))
    networks, sets, settings = None, None, None
    if shapc:
        if network or data or layout or allow_code or store:
            networks, sets = user_sources([] if is_folder else paths, network, data, layout, allow_code, store)
        options: dict[str, Any] = {
            "samples": samples,
            "top": top,
            "target": parse_target(target) if target.isdigit() else target,
            "score": score,
            "head": head,
            "background": background,
            "untrained": untrained,
            "untrained_samples": untrained_samples,
            "variant": variant,
            "layer": layer,
            "seed": seed,
            "batch_size": batch_size,
        }
        settings = ShapcSettings(**options, **_method_options(method, option))
    explained: dict[str, Any] = {
        "network": networks,
        "data": sets,
        "examples": examples,
        "precision": precision,
        "keep_maps": keep_maps,
        "data_dir": data_dir,
        "device": device,
    }
    if settings is not None and is_folder:
        with fixed_threads(threads):
            _audit_checkpoints(paths[0], settings, explained, as_json)
        return
    if plan:
        _plan(paths, settings, explained, where, as_json)
        return
    folder = paths[0].parent if paths[0].is_file() else paths[0]
    auditing: dict[str, Any] = {
        "weights": parse_weights(weights) if weights else None,
        "renormalise": renormalise,
        "count_teachers": count_teachers,
        "ce_epsilon": ce_epsilon,
        "clamp": clamp,
        "importing": ImportOptions(percent, losses, metric, group, curriculum),
    }
    explained |= {"shapc": settings, "retrain_reference": retrain_reference}
    result, missing = _audited(paths, auditing, explained, where, folder)
    if settings is not None:
        result = _with_options(result, network=network, data=data, layout=layout, allow_code=allow_code)
    result.save(folder / FILE if out is None else output_file_option(out, FILE))
    if as_json:
        print_json(result.to_json(rules))
    else:
        with_details = details or variants
        print_summary(result, Console(), rules, "" if with_details else DETAILS_HINT)
        if with_details:
            _print_details(result, variants)
    _finish(result, paths, expect)
    if missing:
        raise typer.Exit(1)


def _plan(
    paths: list[Path], settings: ShapcSettings | None, explained: dict[str, Any], where: EngineOptions, as_json: bool
) -> None:
    """Print what the explanations of all sequences of tasks among some records are expected to cost."""
    from perdure.record import Record, find_records

    if settings is None:
        raise InputError("--plan needs --shapc; everything else takes seconds")
    records = [path for path in find_records(paths) if not Record.open(path).measurements.is_reference]
    print_audit_plan(
        records,
        settings,
        where.local_workers,
        where.threads,
        sources={name: explained[name] for name in ("network", "data", "data_dir", "device")},
        examples=explained["examples"],
        precision=explained["precision"],
        keep_maps=explained["keep_maps"],
        as_json=as_json,
    )


def _audited(
    paths: list[Path], auditing: dict[str, Any], explained: dict[str, Any], where: EngineOptions, folder: Path
) -> tuple[Audit, bool]:
    """Return the audit, and whether explanations are missing."""
    from perdure.audits import audit as audit_records

    if explained["shapc"] is None:
        return audit_records(paths, **auditing), False
    return _audit_on_engine(paths, auditing | explained, where, folder)


def _audit_on_engine(
    paths: list[Path], arguments: dict[str, Any], where: EngineOptions, folder: Path
) -> tuple[Audit, bool]:
    """Return the audit with SHAPC of all runs whose examples could be explained, and whether some are missing.

    One shard of several explains its part and ends the command.
    """
    from perdure.audits import audit as audit_records
    from perdure.engine.execution import fixed_threads
    from perdure.engine.study import IncompleteStudyError

    with (
        UnitBars(Console(stderr=True), "explanations") as bars,
        where.open(folder, arguments["device"], bars) as engine,
        fixed_threads(where.threads),
    ):
        try:
            result = audit_records(paths, engine=engine, allow_missing=where.shard is None, **arguments)
        except IncompleteStudyError as error:
            print_missing(error.result, folder, where.shard)
            echo("Run the command without --shard to collect the results.", err=True)
            raise typer.Exit(1 if error.result.failed else 0) from None
    print_missing(bars.result, folder)
    return result, bool(bars.result.failed)


def _print_details(result: Audit, variants: bool) -> None:
    """Print every number: metrics, SHAPC and CLAMP."""
    from perdure.cli.output.audit_tables import print_audit, print_shapc
    from perdure.cli.output.fit_tables import print_latent_properties

    print_audit(result, Console(), variants)
    if result.shapc:
        print_shapc(result, Console())
    for properties in result.clamp:
        print_latent_properties(properties, Console())


def _with_options(result: Audit, **options: Any) -> Audit:
    """Return an audit whose origin has options as the command line names them."""
    if result.origin is None:
        return result
    return replace(result, origin=replace(result.origin, options={**result.origin.options, **options}))


def _finish(result: Audit, paths: list[Path], expect: str | None) -> None:
    """Compare the audit with the expected one; without one, exit with 1 if a record is unfinished."""
    unfinished = _report_unfinished(paths)
    if expect is not None:
        check_expected_audit(result, expect)
    elif unfinished:
        raise typer.Exit(1)


def _report_unfinished(paths: list[Path]) -> bool:
    """Name the records that are unfinished; return whether there are any."""
    from perdure.record import Record, find_records
    from perdure.record.reader import split_record_paths

    records, _ = split_record_paths(paths)
    unfinished = [path for path in find_records(records) if not Record.open(path).complete] if records else []
    for path in unfinished:
        echo(f"{path}: unfinished. Run the command or training loop that writes it again to resume", err=True)
    return bool(unfinished)


def _method_options(method: str, option: list[str] | None) -> dict[str, Any]:
    """Return the method and its own options; options without a named method are those of expected gradients."""
    from perdure.audits.shapc.values import AUTO, LEAST_BIASED

    if not option:
        return {"method": method}
    if method == LEAST_BIASED:
        raise InputError("--option needs a named --method; least-biased chooses the method later")
    named = "expected_gradients" if method == AUTO else method
    return {"method": named, "options": parse_method_options(option, [named]).get(named, {})}


def _refuse_shapc_options(
    method: str,
    option: list[str] | None,
    examples: int | None,
    precision: float | None,
    keep_maps: bool,
    retrain_reference: bool,
    allow_code: bool,
) -> None:
    """Refuse options that have no effect without --shapc."""
    given = {
        "--method": method != "auto",
        "--option": bool(option),
        "--examples": examples is not None,
        "--precision": precision is not None,
        "--keep-maps": keep_maps,
        "--retrain-reference": retrain_reference,
        "--allow-code": allow_code,
    }
    for name, is_given in given.items():
        if is_given:
            raise InputError(f"{name} needs --shapc")


def _audit_checkpoints(path: Path, settings: Any, explained: dict[str, Any], as_json: bool) -> None:
    """Audit a folder of checkpoints that is not a record."""
    from perdure.audits import audit_shapc
    from perdure.cli.output.audit_tables import print_shapc_result
    from perdure.cli.output.progress import AuditProgress

    with AuditProgress(Console(stderr=True)) as bars:
        result = audit_shapc(path, settings=settings, progress=bars.start(str(path)), **explained)
    if as_json:
        print_json(result.to_json())
    else:
        print_shapc_result(result, Console())
