"""What an audit gives to a paper: tables as CSV, LaTeX and Markdown, figures as PDF and SVG."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.audits import Audit
from perdure.base.files import write_atomically
from perdure.figures import accuracy_lines, accuracy_matrices, criteria_dots, criteria_lines, progress_lines, save
from perdure.figures.bias import bias_bars
from perdure.figures.clamp import performance_curves, property_bars, transfer_map
from perdure.figures.retraining import checkpoint_dots, summary_lines
from perdure.figures.shapc import (
    stability_bands,
    stability_bars,
    stability_boxes,
    stability_distributions,
    stability_lines,
    stability_matrices,
)
from perdure.report.shapc_tables import differences_table, reasons_table
from perdure.report.tables import (
    Table,
    accuracy_table,
    correlation_table,
    measures_table,
    progress_table,
    properties_table,
    provenance_table,
    runs_table,
    transfer_table,
)
from perdure.report.trust.answers import shown_distance
from perdure.report.trust.tables import trust_tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("pdf", "svg")


def tables(audit: Audit) -> tuple[Table, ...]:
    """Return every table the audit has numbers for."""
    found = [measures_table(audit), runs_table(audit), accuracy_table(audit), progress_table(audit)]
    if audit.correlation:
        found.append(correlation_table(audit))
    for number, part in enumerate(audit.latent, start=1):
        mark = f"-{number}" if len(audit.latent) > 1 else ""
        found += [properties_table(part, f"properties{mark}"), transfer_table(part, f"transfer{mark}")]
    if audit.stability:
        found.append(reasons_table(audit))
    if audit.differences:
        found.append(differences_table(audit))
    found += trust_tables(audit)
    if audit.provenance:
        found.append(provenance_table(audit))
    return tuple(found)


def write_tables(audit: Audit, folder: Path) -> list[Path]:
    """Write every table in the three forms and return the files."""
    written = []
    for table in tables(audit):
        for ending, text in (("csv", table.csv()), ("tex", table.latex()), ("md", table.markdown())):
            path = folder / f"{table.name}.{ending}"
            write_atomically(path, text.encode())
            written.append(path)
    return written


def figures(audit: Audit) -> dict[str, Figure]:
    """Return every figure the audit has numbers for, by the name of its file; each benchmark has its own."""
    found: dict[str, Figure] = {}
    benchmarks = list(dict.fromkeys(entry.benchmark for entry in audit.learners))
    for number, benchmark in enumerate(benchmarks, start=1):
        mark = f"-{number}" if len(benchmarks) > 1 else ""
        part = replace(audit, learners=tuple(entry for entry in audit.learners if entry.benchmark == benchmark))
        found |= {
            f"accuracy{mark}": accuracy_lines(part),
            f"accuracy-matrices{mark}": accuracy_matrices(part),
            f"progress{mark}": progress_lines(part),
            f"criteria{mark}": criteria_dots(part),
            f"criteria-parallel{mark}": criteria_lines(part),
        }
        if any(result.benchmark == benchmark for result in audit.stability):
            found |= {
                f"reasons{mark}": stability_bands(part),
                f"reasons-matrices{mark}": stability_matrices(part),
                f"reasons-lines{mark}": stability_lines(part),
                f"reasons-distributions{mark}": stability_distributions(part),
                f"reasons-bars{mark}": stability_bars(part),
                f"reasons-boxes{mark}": stability_boxes(part),
            }
    for number, fit in enumerate(audit.latent, start=1):
        mark = f"-{number}" if len(audit.latent) > 1 else ""
        for block in range(len(fit.curves)):
            which = f"-{block + 1}" if len(fit.curves) > 1 else ""
            found[f"clamp-curves{mark}{which}"] = performance_curves(fit, block)
        found[f"clamp-transfer{mark}"] = transfer_map(fit)
        found[f"clamp-properties{mark}"] = property_bars(fit)
    return found | _trust_figures(audit)


def _trust_figures(audit: Audit) -> dict[str, Figure]:
    """Return the figures of the Trust part; where several runs were measured, each has its own."""
    found: dict[str, Figure] = {}
    for number, one in enumerate(audit.trust, start=1):
        mark = f"-{number}" if len(audit.trust) > 1 else ""
        if one.bias is not None:
            found[f"trust-bias{mark}"] = bias_bars(one.bias)
        if one.retraining is not None and sum(level.top is None for level in one.retraining.levels) > 1:
            found[f"trust-noise{mark}"] = summary_lines(one.retraining, shown_distance(one.retraining.distances))
        if one.checkpoints is not None:
            kinds = tuple(next(iter(one.checkpoints.scores.values())))
            found[f"trust-checkpoints{mark}"] = checkpoint_dots(one.checkpoints, one.retraining, shown_distance(kinds))
    return found


def write_figures(audit: Audit, folder: Path) -> list[Path]:
    """Write every figure as PDF and as SVG and return the files."""
    return [save(figure, folder / f"{name}.{ending}") for name, figure in figures(audit).items() for ending in FORMATS]
