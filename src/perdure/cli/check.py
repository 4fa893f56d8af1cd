"""perdure check: the release gate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from perdure.base.errors import InputError
from perdure.cli.options import (
    AllowCode,
    AsJson,
    BatchSize,
    Data,
    DataDir,
    Device,
    Group,
    Layout,
    Losses,
    MethodOptions,
    MetricName,
    Network,
    Percent,
    TrainedTasks,
    allow_code_of,
    check_device_option,
    model_source,
    parse_method_options,
    user_data,
    user_network,
)
from perdure.cli.output.json_output import print_json
from perdure.cli.output.names import echo

POLICY = Path("policy.toml")
_REASONS = "Rules on reasons"
_CI = "Continuous integration"


def check(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="A record, a folder with several seeds of one learner, results of another framework (perdure import --help), "
            "a table of accuracies, a checkpoint, a file of weights, or file.py:model.",
            show_default=False,
        ),
    ],
    policy: Annotated[Path, typer.Option(help="The policy, a TOML file.")] = POLICY,
    baseline: Annotated[
        str | None, typer.Option(help="What rules on changes, flips and reasons compare with, in the forms of TARGET.")
    ] = None,
    examples: Annotated[
        int | None, typer.Option(help="Test examples per task, for results that do not state it.", min=1)
    ] = None,
    until_decided: Annotated[
        bool,
        typer.Option("--until-decided", help="Examine test examples in random order until every rule is decided."),
    ] = False,
    allow_undecided: Annotated[
        bool,
        typer.Option("--allow-undecided", help="Exit with 0 instead of 2 if no rule fails and some are undecided."),
    ] = False,
    init: Annotated[
        bool, typer.Option("--init", help="Write a policy that TARGET satisfies to --policy, and check nothing.")
    ] = False,
    as_json: AsJson = False,
    junit: Annotated[Path | None, typer.Option(help="Also write JUnit XML to this file.", rich_help_panel=_CI)] = None,
    github: Annotated[
        bool,
        typer.Option(
            "--github",
            help="Also print annotations for GitHub Actions, and append to its step summary.",
            rich_help_panel=_CI,
        ),
    ] = False,
    method: Annotated[
        str,
        typer.Option(
            help="The explainer; auto: expected_gradients, or Shapley values for models without gradients.",
            rich_help_panel=_REASONS,
        ),
    ] = "auto",
    option: MethodOptions = None,
    samples: Annotated[int, typer.Option(help="Random draws per map.", min=2, rich_help_panel=_REASONS)] = 200,
    explained: Annotated[
        int, typer.Option(help="Test examples to explain, per task for SHAPC.", min=2, rich_help_panel=_REASONS)
    ] = 40,
    seed: Annotated[int, typer.Option(help="Seed of the order of examples and of simulations.", min=0)] = 0,
    network: Network = None,
    data: Data = None,
    layout: Layout = None,
    allow_code: AllowCode = False,
    data_dir: DataDir = None,
    batch_size: BatchSize = None,
    device: Device = "cpu",
    percent: Percent = False,
    losses: Losses = False,
    metric: MetricName = None,
    group: Group = None,
    curriculum: TrainedTasks = None,
) -> None:
    """Decide whether TARGET satisfies a policy. The exit code is 0 (pass), 1 (fail) or 2 (undecided, or invalid input).

    A rule passes if the whole interval of its metric satisfies it, fails if none of it does, and is undecided otherwise or
    without evidence. The probability of any wrong decision is at most the policy's false_alarm_rate. docs/check.md describes
    policies.
    """
    from perdure.audits import ImportOptions

    importing = ImportOptions(percent, losses, metric, group, curriculum)
    if init:
        _write_policy(target, policy, examples, importing, seed)
        return
    if not policy.exists():
        raise InputError(f"{policy}: no such file. perdure check RECORD --init writes a first policy")
    from perdure.cli.output.progress import PartProgress
    from perdure.comparisons.gate import check as check_target

    made, sets = _user_sources(network, data, layout, device)
    if allow_code:
        allow_code_of(target, *([baseline] if baseline else []))
    with PartProgress(Console(stderr=True)) as bars:
        result = check_target(
            model_source(target, "TARGET"),
            policy,
            baseline=None if baseline is None else model_source(baseline, "--baseline"),
            network=made,
            data=sets,
            examples=examples,
            until_decided=until_decided,
            explained=explained,
            settings=_settings(method, option, samples, seed, batch_size),
            seed=seed,
            importing=importing,
            data_dir=data_dir,
            device=device,
            progress=bars.show,
        )
    _report(result, as_json, junit, github)
    if result.verdict == "undecided" and allow_undecided:
        echo("undecided, but allowed (--allow-undecided): exit code 0", err=True)
        return
    if result.exit_code:
        raise typer.Exit(result.exit_code)


def _write_policy(target: str, policy: Path, examples: int | None, importing: Any, seed: int) -> None:
    from perdure.comparisons.gate import initial_policy, write_initial_policy

    text = initial_policy(Path(target), examples=examples, importing=importing, seed=seed)
    echo(write_initial_policy(policy, text))


def _user_sources(network: str | None, data: str | None, layout: str | None, device: str) -> tuple[Any, Any]:
    """Return the user's network and test data; torch is loaded only if one of them is given."""
    if layout is not None and network is None:
        raise InputError("--layout needs --network")
    if device != "cpu":
        check_device_option(device)
    return (None if network is None else user_network(network, layout), None if data is None else user_data(data))


def _settings(method: str, option: list[str] | None, samples: int, seed: int, batch_size: int | None) -> Any:
    from perdure.audits import ShapcSettings

    if option and method == "auto":
        raise InputError("--option needs a named --method")
    options = parse_method_options(option, [method]).get(method, {}) if option else {}
    return ShapcSettings(method=method, samples=samples, seed=seed, batch_size=batch_size, options=options)


def _report(result: Any, as_json: bool, junit: Path | None, github: bool) -> None:
    """Print the result and write it in the formats of CI systems."""
    from perdure.base.files import write_atomically
    from perdure.cli.output.check_tables import print_check
    from perdure.exporters.checks import append_step_summary, github_annotations, junit_xml

    if as_json:
        print_json(result.to_json())
    else:
        print_check(result, Console())
    if junit is not None:
        write_atomically(junit, junit_xml(result))
    if github:
        for line in github_annotations(result):
            typer.echo(line, err=as_json)
        append_step_summary(result)
