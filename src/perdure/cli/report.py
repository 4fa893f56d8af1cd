"""perdure report: an audit as an HTML page, tables and figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from perdure.base.files import write_atomically
from perdure.cli.options import (
    DataDir,
    Device,
    Group,
    Losses,
    MetricName,
    Percent,
    ResultPaths,
    TrainedTasks,
    output_file_option,
    result_folder,
)
from perdure.cli.output.names import echo
from perdure.cli.stored_audit import stored_or_new_audit

if TYPE_CHECKING:
    from perdure.audits import Audit, ImportOptions
    from perdure.comparisons.release import ReleaseDecision
    from perdure.policies import Policy

PAGE = "report.html"
SCRIPT = "reproduce.sh"


def report(
    paths: ResultPaths,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The page; default: report.html in the first path.")
    ] = None,
    tables: Annotated[
        Path | None, typer.Option(help="Also write every table to this folder: CSV, LaTeX (booktabs) and Markdown.")
    ] = None,
    figures: Annotated[Path | None, typer.Option(help="Also write every figure to this folder: PDF and SVG.")] = None,
    script: Annotated[
        Path | None, typer.Option(help="Also write the script that reproduces the report (bash) to this path.")
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(
            help="A policy file: its thresholds and ranking give the verdicts, and its rules decide on each learner's release."
        ),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(
            help="A record, or a folder with the seeds of one learner: what rules compare with. Without rules, each learner is "
            "compared with it like perdure compare does."
        ),
    ] = None,
    data_dir: DataDir = None,
    device: Device = "cpu",
    percent: Percent = False,
    losses: Losses = False,
    metric: MetricName = None,
    group: Group = None,
    curriculum: TrainedTasks = None,
) -> None:
    """Write the report of an audit: one HTML file that works offline.

    Uses audit.json in the given folder if the records have not changed since; otherwise the records are audited first. CLAMP
    and SHAPC are shown if audit.json contains them (perdure audit --clamp --shapc), results of perdure trust always.
    """
    from perdure.audits import ImportOptions
    from perdure.policies import read_policy
    from perdure.report import write_page

    importing = ImportOptions(percent, losses, metric, group, curriculum)
    result = stored_or_new_audit(paths, "report", importing)
    rules = None if policy is None else read_policy(policy)
    decisions = _decide(result, rules, baseline, importing, data_dir, device)
    page = result_folder(paths[0]) / PAGE if out is None else output_file_option(out, PAGE)
    echo(write_page(result, page, policy=rules, decisions=decisions))
    for written in (result.tables(tables) if tables else []) + (result.figures(figures) if figures else []):
        echo(written)
    if script is not None:
        path = output_file_option(script, SCRIPT)
        write_atomically(path, result.reproduction_script().encode())
        echo(path)


def _decide(
    result: Audit,
    policy: Policy | None,
    baseline: Path | None,
    importing: ImportOptions,
    data_dir: Path | None,
    device: str,
) -> dict[int, ReleaseDecision]:
    """Return the release decisions, with a progress bar on a terminal; empty without rules and baseline."""
    if baseline is None and (policy is None or not policy.rules):
        return {}
    from perdure.cli.output.progress import PartProgress
    from perdure.comparisons.release import release_decisions

    with PartProgress(Console(stderr=True)) as bars:
        return release_decisions(
            result, policy, baseline, importing=importing, data_dir=data_dir, device=device, progress=bars.show
        )
