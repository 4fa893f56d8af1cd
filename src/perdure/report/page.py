"""The report of an audit as one self-contained HTML file that works offline and can be printed."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from perdure import __version__
from perdure.audits import (
    CRITERIA,
    MEASURES,
    Audit,
    ExampleView,
    RunProvenance,
    ShapcResult,
    TrustFindings,
    example_views,
)
from perdure.audits.summary import QUESTIONS, AuditSummary, Question, summarize
from perdure.audits.summary.questions import CAUSES, PERFORMANCE, REASONS, RETRAINING, TRUST
from perdure.audits.summary.text import measuring_command, runs_word, what_is_needed
from perdure.base.files import write_atomically
from perdure.exporters.shapc_tables import shapc_differences_table, shapc_table
from perdure.exporters.tables import (
    Table,
    accuracy_differences_table,
    accuracy_table,
    format_report_cell,
    has_variants,
    measures_table,
    provenance_table,
    runs_table,
    variants_table,
)
from perdure.exporters.trust_tables import trust_tables
from perdure.policies import Policy, VerdictSettings
from perdure.report.answers import answers
from perdure.report.chart_data import MATRICES, page_data
from perdure.report.glossary import ABBREVIATIONS, GLOSSARY, term
from perdure.report.reproduction import reproduction_script, reproduction_steps
from perdure.report.summary_table import FIRST_ROWS, bar, decisions_sentence, summary_columns, summary_rows
from perdure.report.trust.section import trust_context
from perdure.report.viewer import viewer_data

if TYPE_CHECKING:
    from perdure.comparisons.release import ReleaseDecision

Result = TypeVar("Result", ShapcResult, TrustFindings)
WIDEST_PRINTED = 15  # largest `Table.breadth` that fits the width of a printed page
SCRIPTS = (
    "drawing",
    "panels",
    "charts",
    "charts-reasons",
    "charts-clamp",
    "charts-trust",
    "figures",
    "tables",
    "ranking",
    "viewer",
    "page",
)
SECTIONS = {
    "answer": "Answer",
    "performance": PERFORMANCE.short,
    "score": "Cost and score",
    "reasons": REASONS.short,
    "causes": CAUSES.short,
    "trust": TRUST.short,
    "retraining": RETRAINING.short,
    "learners-section": "Learners",
    "tables": "Tables",
    "missing": "Missing",
    "provenance": "Reproduce",
}


def write_page(
    audit: Audit,
    path: Path,
    examples: Iterable[ExampleView] | None = None,
    *,
    policy: Policy | None = None,
    decisions: Mapping[int, ReleaseDecision] | None = None,
) -> Path:
    """Write the report of an audit as one HTML file and return its path.

    ``examples``: the test examples in the viewer, by default those whose maps the audit stored.
    ``policy``: the thresholds and the ranking of the verdicts, by default those of `perdure.policies.verdicts`.
    ``decisions``: release decisions, by the position of the learner in the audit.
    """
    views = example_views(audit) if examples is None else tuple(examples)
    page = page_environment().get_template("page.html.j2").render(_context(audit, views, policy, decisions or {}))
    write_atomically(path, page.encode())
    return path


def page_environment() -> Environment:
    """Return the templates of the pages with their filters."""
    environment = Environment(
        loader=PackageLoader("perdure.report"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["format_cell"] = format_report_cell
    environment.filters["bar"] = bar
    environment.filters["term"] = term
    environment.filters["slug"] = slug
    environment.globals["abbr"] = Abbreviations()
    environment.policies["json.dumps_function"] = json.dumps
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":"), "ensure_ascii": False}
    return environment


class Abbreviations:
    """Abbreviations of one page: spelled out when used first, with a tooltip afterwards."""

    def __init__(self) -> None:
        self.used: set[str] = set()

    def __call__(self, short: str, starts_sentence: bool = False) -> Markup:
        """Return an abbreviation for the page; spelled out, it has a capital letter at the start of a sentence."""
        full = ABBREVIATIONS[short]
        abbreviation = Markup('<abbr title="{}">{}</abbr>').format(full, short)
        if short in self.used:
            return abbreviation
        self.used.add(short)
        return Markup("{} ({})").format(full[:1].upper() + full[1:] if starts_sentence else full, abbreviation)


def slug(key: str) -> str:
    """Return a key as part of an HTML id: other characters than letters and digits are written as their code."""
    return "".join(letter if letter.isalnum() or letter == "_" else f"-{ord(letter):x}-" for letter in key)


def _context(
    audit: Audit,
    examples: tuple[ExampleView, ...],
    policy: Policy | None,
    decisions: Mapping[int, ReleaseDecision],
) -> dict[str, Any]:
    """Return the variables of the page's template. The learners are in ranked order in all charts and tables."""
    summary = summarize(audit, None if policy is None else policy.verdicts)
    provenance = _provenance(audit, summary)
    audit = _in_ranked_order(audit, summary)
    rows = summary_rows(summary, decisions)
    data = page_data(audit)
    style = asset_text("style.css")
    scripts = "\n".join(asset_text(f"scripts/{name}.js") for name in SCRIPTS)
    script = f'\n"use strict";\n(() => {{\n{scripts}\n}})();\n'
    missing = _missing_groups(audit)
    available = [name for name in MEASURES if any(name in entry.measures for entry in audit.learners)]
    return {
        "audit": audit,
        "version": __version__,
        "questions": {question.name: question for question in QUESTIONS},
        "measures": MEASURES,
        "has_accuracies": any(entry.measure == "accuracy" for entry in audit.learners),
        "criteria": CRITERIA,
        "weights": list(data["weights"]),
        "benchmarks": list(dict.fromkeys(entry.benchmark for entry in audit.learners)),
        "overview": _overview(audit),
        "summary": summary,
        "columns": summary_columns(summary, decisions),
        "rows": rows,
        "first_rows": FIRST_ROWS,
        "decisions_sentence": decisions_sentence(summary, decisions),
        "rank_label": " or ".join(dict.fromkeys(term(learner.ranked_by).name for learner in summary.learners)),
        "rank_is_chosen": any(
            learner.ranked_by == summary.settings.rank_by != VerdictSettings.rank_by for learner in summary.learners
        ),
        "has_bars": any(cell.positions is not None for row in rows for cell in row.cells),
        "has_policy": policy is not None,
        "terms": list(GLOSSARY.values()) + [term(name) for name in MEASURES if name not in GLOSSARY],
        "sections": [(id_, name) for id_, name in SECTIONS.items() if id_ != "missing" or missing or audit.left_out],
        "cards": [
            (entry, index, answers(audit, entry), row)
            for index, (entry, row) in enumerate(zip(audit.learners, rows, strict=True))
        ],
        "widest_printed": WIDEST_PRINTED,
        "choices": [(name, audit.label(name)) for name in available],
        "tables": _tables(audit),
        "variants": variants_table(audit) if has_variants(audit) else None,
        "remarks": audit.remarks(variants=True),
        "missing": missing,
        "seeds_choice": [(seed, seed) for seed in dict.fromkeys(str(result.seed) for result in audit.shapc)],
        "quantities": [(name, name) for name in MATRICES],
        **trust_context(audit),
        "hints": {question.name: _hint(audit, question) for question in QUESTIONS},
        "runs_word": runs_word(audit),
        "viewer": viewer_data(examples, [entry.learner for entry in audit.learners]),
        "data": data,
        "style": style,
        "script": script,
        "policy": content_security_policy(style, script),
        **provenance,
    }


def _in_ranked_order(audit: Audit, summary: AuditSummary) -> Audit:
    """Return an audit whose learners, and the runs of SHAPC and trust, are in ranked order."""
    order = _positions(summary)
    learners = tuple(audit.learners[learner.index] for learner in summary.learners)

    def ranked(results: Sequence[Result]) -> tuple[Result, ...]:
        return tuple(sorted(results, key=lambda result: order.get((result.benchmark, result.learner), len(order))))

    return replace(audit, learners=learners, shapc=ranked(audit.shapc), trust=ranked(audit.trust))


def _positions(summary: AuditSummary) -> dict[tuple[str, str], int]:
    """Return the position of each learner in ranked order, by benchmark and name."""
    return {(learner.benchmark, learner.learner): index for index, learner in enumerate(summary.learners)}


def _hint(audit: Audit, question: Question) -> dict[str, str]:
    """Return how to measure a question that no learner has an answer to: what is needed first, and the command."""
    needed = what_is_needed(audit, [entry for entry in audit.learners if not entry.is_reference], question)
    return {"needed": needed, "command": question.command if needed else measuring_command(audit, question)}


def _missing_groups(audit: Audit) -> list[tuple[str, list[tuple[list[str], list[str]]]]]:
    """Return for each reason the learners that miss the same metrics, and these metrics."""
    groups = []
    for reason, learners in audit.missing(variants=True).items():
        by_names: dict[tuple[str, ...], list[str]] = {}
        for learner, names in learners.items():
            by_names.setdefault(tuple(names), []).append(learner)
        groups.append((reason, [(holders, list(names)) for names, holders in by_names.items()]))
    return groups


def _tables(audit: Audit) -> list[Table]:
    """Return the tables of the page: measures, runs, accuracies, differences, reasons and trust."""
    tables = [measures_table(audit), runs_table(audit), accuracy_table(audit)]
    if audit.accuracy_differences:
        tables.append(accuracy_differences_table(audit))
    if audit.shapc:
        tables.append(shapc_table(audit))
    if audit.differences:
        tables.append(shapc_differences_table(audit))
    return tables + trust_tables(audit, every=False)


def content_security_policy(style: str, script: str | None) -> str:
    """Return the policy of a page: its own style and script, embedded images, and nothing from anywhere else."""
    allowed = f"style-src 'sha256-{_sha256(style)}'"
    if script is not None:
        allowed = f"script-src 'sha256-{_sha256(script)}'; {allowed}"
    return f"default-src 'none'; {allowed}; img-src data:; base-uri 'none'; form-action 'none'"


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


def asset_text(name: str) -> str:
    """Return the text of a file that belongs to the pages."""
    return files("perdure.report").joinpath(name).read_text(encoding="utf-8")


def _overview(audit: Audit) -> str:
    learners = len(audit.learners)
    runs = sum(len(entry.runs) for entry in audit.learners)
    benchmarks = list(dict.fromkeys(entry.benchmark or "given matrices" for entry in audit.learners))
    tasks = sorted({len(entry.tasks) for entry in audit.learners})
    return (
        f"{learners} learner{'s' if learners != 1 else ''} on {', '.join(benchmarks)}, "
        f"{' or '.join(map(str, tasks))} task{'s' if tasks != [1] else ''}, {runs} run{'s' if runs != 1 else ''}"
    )


def _provenance(audit: Audit, summary: AuditSummary) -> dict[str, Any]:
    """Return the reproduction script, and the settings of each learner's last seed, in ranked order."""
    last: dict[tuple[str, str], RunProvenance] = {}
    order = _positions(summary)
    for run in sorted(audit.provenance, key=lambda run: order.get((run.benchmark, run.learner), len(order))):
        latest = last.get((run.learner, run.benchmark))
        if latest is None or (run.seed or 0) >= (latest.seed or 0):
            last[run.learner, run.benchmark] = run
    names = dict.fromkeys(name for run in last.values() for name in run.settings)
    settings = {name: [_setting_text(run.settings.get(name, "")) for run in last.values()] for name in names}
    return {
        "reproduction": reproduction_script(audit) if audit.provenance else None,
        "reproduction_steps": reproduction_steps(audit),
        "custom_loops": sorted(
            {run.learner for run in last.values() if not run.command and "imported" not in run.data}
        ),
        "settings_of": [run.learner for run in last.values()],
        "shared": {name: values[0] for name, values in settings.items() if len(set(values)) == 1},
        "differing": {name: values for name, values in settings.items() if len(set(values)) > 1},
        "provenance": provenance_table(audit, commands=False) if audit.provenance else None,
    }


def _setting_text(value: object) -> str:
    return "none" if value in ([], ()) else str(value)
