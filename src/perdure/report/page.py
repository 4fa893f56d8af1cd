"""The page: one file that can be mailed, opened offline and printed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader

from perdure import __version__
from perdure.audits import CRITERIA, MEASURES, Audit, RunProvenance, ViewedSample, viewed_samples
from perdure.base.files import write_atomically
from perdure.report.answers import answers
from perdure.report.chart_data import MATRICES, page_data
from perdure.report.shapc_tables import differences_table, reasons_table
from perdure.report.tables import accuracy_table, measures_table, provenance_table, runs_table, shown
from perdure.report.trust.section import trust_context
from perdure.report.viewer import viewer_data

OPEN_CARDS = 6  # more than these would hide everything below them; the rest open with a click
WIDEST_PRINTED = 15  # the breadth that a sheet of paper has room for
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
    "learning": "Learning",
    "score": "Cost and score",
    "reasons": "Reasons",
    "blame": "Algorithm or tasks",
    "trust": "Trust",
    "runs": "Runs",
    "missing": "Missing",
    "provenance": "Provenance",
}


def write_page(audit: Audit, path: Path, samples: Iterable[ViewedSample] | None = None) -> Path:
    """Write the report of an audit as one HTML file and return its path.

    ``samples`` fill the viewer; by default those whose maps the audit kept.
    """
    environment = Environment(
        loader=PackageLoader("perdure.report"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["shown"] = shown
    environment.policies["json.dumps_function"] = json.dumps
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":"), "ensure_ascii": False}
    page = environment.get_template("page.html.j2").render(
        _context(audit, viewed_samples(audit) if samples is None else tuple(samples))
    )
    write_atomically(path, page.encode())
    return path


def _context(audit: Audit, samples: tuple[ViewedSample, ...]) -> dict[str, Any]:
    data = page_data(audit)
    missing = audit.missing()
    drawn = [name for name in MEASURES if any(name in entry.measures for entry in audit.learners)]
    return {
        "audit": audit,
        "version": __version__,
        "measures": MEASURES,
        "criteria": CRITERIA,
        "weights": list(data["weights"]),
        "benchmarks": list(dict.fromkeys(entry.benchmark for entry in audit.learners)),
        "summary": _summary(audit),
        "sections": [(id_, name) for id_, name in SECTIONS.items() if id_ != "missing" or missing or audit.left_out],
        "cards": sorted(
            ((entry, place, answers(audit, entry)) for place, entry in enumerate(audit.learners)),
            key=lambda card: card[0].is_reference,
        ),
        "open_cards": OPEN_CARDS,
        "widest_printed": WIDEST_PRINTED,
        "choices": [(name, MEASURES[name].label) for name in drawn],
        "compared": [measures_table(audit), runs_table(audit), accuracy_table(audit)],
        "missing": missing,
        "reasons": [reasons_table(audit), *([differences_table(audit)] if audit.differences else [])]
        if audit.stability
        else [],
        "seeds_choice": [(seed, seed) for seed in dict.fromkeys(str(result.seed) for result in audit.stability)],
        "quantities": [(name, name) for name in MATRICES],
        **trust_context(audit),
        "viewer": viewer_data(samples),
        "data": data,
        "style": _asset("style.css"),
        "script": "\n".join(_asset(f"scripts/{name}.js") for name in SCRIPTS),
        **_provenance(audit),
    }


def _asset(name: str) -> str:
    return files("perdure.report").joinpath(name).read_text(encoding="utf-8")


def _summary(audit: Audit) -> str:
    learners = len(audit.learners)
    runs = sum(len(entry.runs) for entry in audit.learners)
    places = list(dict.fromkeys(entry.benchmark or "given matrices" for entry in audit.learners))
    tasks = sorted({len(entry.tasks) for entry in audit.learners})
    return (
        f"{learners} learner{'s' if learners != 1 else ''} on {', '.join(places)}: "
        f"{' or '.join(map(str, tasks))} task{'s' if tasks != [1] else ''}, {runs} run{'s' if runs != 1 else ''}."
    )


def _provenance(audit: Audit) -> dict[str, Any]:
    """Return the commands (of each learner's last seed, which makes the others too), and the settings shared or not."""
    last: dict[tuple[str, str], RunProvenance] = {}
    for run in audit.provenance:
        here = last.get((run.learner, run.benchmark))
        if here is None or (run.seed or 0) >= (here.seed or 0):
            last[run.learner, run.benchmark] = run
    names = dict.fromkeys(name for run in last.values() for name in run.settings)
    settings = {name: [_plain(run.settings.get(name, "")) for run in last.values()] for name in names}
    return {
        "commands": [run.command for run in last.values() if run.command],
        "own_loops": sorted({run.learner for run in last.values() if not run.command}),
        "settings_of": [run.learner for run in last.values()],
        "shared": {name: values[0] for name, values in settings.items() if len(set(values)) == 1},
        "differing": {name: values for name, values in settings.items() if len(set(values)) > 1},
        "provenance": provenance_table(audit, commands=False) if audit.provenance else None,
    }


def _plain(value: object) -> str:
    return "none" if value in ([], ()) else str(value)
