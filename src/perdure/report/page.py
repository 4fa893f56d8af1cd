"""The report of an audit as one self-contained HTML file that works offline and can be printed."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader

from perdure import __version__
from perdure.audits import CRITERIA, MEASURES, Audit, ExampleView, RunProvenance, example_views
from perdure.base.files import write_atomically
from perdure.exporters.shapc_tables import shapc_differences_table, shapc_table
from perdure.exporters.tables import (
    accuracy_differences_table,
    accuracy_table,
    format_report_cell,
    has_variants,
    measures_table,
    provenance_table,
    runs_table,
    variants_table,
)
from perdure.report.answers import answers
from perdure.report.chart_data import MATRICES, page_data
from perdure.report.questions import CAUSES, PERFORMANCE, REASONS, RETRAINING, TRUST
from perdure.report.trust.section import trust_context
from perdure.report.viewer import viewer_data

OPEN_CARDS = 6  # cards that are open at first; more would push the charts too far down
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
    "cards": "Answers",
    "performance": PERFORMANCE.short,
    "score": "Cost and score",
    "reasons": REASONS.short,
    "causes": CAUSES.short,
    "trust": TRUST.short,
    "retraining": RETRAINING.short,
    "runs": "Runs",
    "missing": "Missing",
    "provenance": "Provenance",
}


def write_page(audit: Audit, path: Path, examples: Iterable[ExampleView] | None = None) -> Path:
    """Write the report of an audit as one HTML file and return its path.

    ``examples``: the test examples in the viewer, by default those whose maps the audit stored.
    """
    environment = Environment(
        loader=PackageLoader("perdure.report"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["format_cell"] = format_report_cell
    environment.policies["json.dumps_function"] = json.dumps
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":"), "ensure_ascii": False}
    page = environment.get_template("page.html.j2").render(
        _context(audit, example_views(audit) if examples is None else tuple(examples))
    )
    write_atomically(path, page.encode())
    return path


def _context(audit: Audit, examples: tuple[ExampleView, ...]) -> dict[str, Any]:
    """Return the variables of the page's template."""
    data = page_data(audit)
    style = asset_text("style.css")
    scripts = "\n".join(asset_text(f"scripts/{name}.js") for name in SCRIPTS)
    script = f'\n"use strict";\n(() => {{\n{scripts}\n}})();\n'
    missing = audit.missing(variants=True)
    available = [name for name in MEASURES if any(name in entry.measures for entry in audit.learners)]
    return {
        "audit": audit,
        "version": __version__,
        "questions": {
            "performance": PERFORMANCE,
            "reasons": REASONS,
            "causes": CAUSES,
            "trust": TRUST,
            "retraining": RETRAINING,
        },
        "measures": MEASURES,
        "has_accuracies": any(entry.measure == "accuracy" for entry in audit.learners),
        "criteria": CRITERIA,
        "weights": list(data["weights"]),
        "benchmarks": list(dict.fromkeys(entry.benchmark for entry in audit.learners)),
        "summary": _summary(audit),
        "sections": [(id_, name) for id_, name in SECTIONS.items() if id_ != "missing" or missing or audit.left_out],
        "cards": sorted(
            ((entry, index, answers(audit, entry)) for index, entry in enumerate(audit.learners)),
            key=lambda card: card[0].is_reference,
        ),
        "open_cards": OPEN_CARDS,
        "widest_printed": WIDEST_PRINTED,
        "choices": [(name, audit.label(name)) for name in available],
        "compared": [measures_table(audit), runs_table(audit), accuracy_table(audit)],
        "accuracy_differences": accuracy_differences_table(audit) if audit.accuracy_differences else None,
        "variants": variants_table(audit) if has_variants(audit) else None,
        "remarks": audit.remarks(variants=True),
        "missing": missing,
        "reasons": [shapc_table(audit), *([shapc_differences_table(audit)] if audit.differences else [])]
        if audit.shapc
        else [],
        "seeds_choice": [(seed, seed) for seed in dict.fromkeys(str(result.seed) for result in audit.shapc)],
        "quantities": [(name, name) for name in MATRICES],
        **trust_context(audit),
        "viewer": viewer_data(examples),
        "data": data,
        "style": style,
        "script": script,
        "policy": content_security_policy(style, script),
        **_provenance(audit),
    }


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


def _summary(audit: Audit) -> str:
    learners = len(audit.learners)
    runs = sum(len(entry.runs) for entry in audit.learners)
    benchmarks = list(dict.fromkeys(entry.benchmark or "given matrices" for entry in audit.learners))
    tasks = sorted({len(entry.tasks) for entry in audit.learners})
    return (
        f"{learners} learner{'s' if learners != 1 else ''} on {', '.join(benchmarks)}: "
        f"{' or '.join(map(str, tasks))} task{'s' if tasks != [1] else ''}, {runs} run{'s' if runs != 1 else ''}."
    )


def _provenance(audit: Audit) -> dict[str, Any]:
    """Return commands and settings of each learner's last seed; its command also creates the earlier seeds."""
    last: dict[tuple[str, str], RunProvenance] = {}
    for run in audit.provenance:
        latest = last.get((run.learner, run.benchmark))
        if latest is None or (run.seed or 0) >= (latest.seed or 0):
            last[run.learner, run.benchmark] = run
    names = dict.fromkeys(name for run in last.values() for name in run.settings)
    settings = {name: [_setting_text(run.settings.get(name, "")) for run in last.values()] for name in names}
    return {
        "commands": [run.command for run in last.values() if run.command],
        "custom_loops": sorted({run.learner for run in last.values() if not run.command}),
        "settings_of": [run.learner for run in last.values()],
        "shared": {name: values[0] for name, values in settings.items() if len(set(values)) == 1},
        "differing": {name: values for name, values in settings.items() if len(set(values)) > 1},
        "provenance": provenance_table(audit, commands=False) if audit.provenance else None,
    }


def _setting_text(value: object) -> str:
    return "none" if value in ([], ()) else str(value)
