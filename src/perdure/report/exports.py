"""Tables (CSV, LaTeX, Markdown) and figures (PDF, SVG) of an audit, for use in papers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.audits import Audit
from perdure.audits.retraining.summaries import answer_distance
from perdure.base.files import write_atomically
from perdure.exporters.exported_tables import exported_tables
from perdure.exporters.formats.latex import fitted_latex
from perdure.figures import (
    accuracy_lines,
    accuracy_matrices,
    performance_criteria_dots,
    performance_criteria_lines,
    performance_progress_lines,
    save,
)
from perdure.figures import shapc as shapc_figures
from perdure.figures.bias import bias_bars
from perdure.figures.clamp import clamp_performance_curves, clamp_property_bars, clamp_transfer_map
from perdure.figures.retraining import checkpoint_dots, retraining_summary_lines

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("pdf", "svg")


def export_tables(audit: Audit, folder: Path) -> list[Path]:
    """Write every table in all three formats and return the paths."""
    written = []
    for table in exported_tables(audit):
        for extension, text in (("csv", table.csv()), ("tex", fitted_latex(table)), ("md", table.markdown())):
            path = folder / f"{table.name}.{extension}"
            write_atomically(path, text.encode())
            written.append(path)
    return written


def exported_figures(audit: Audit) -> dict[str, Figure]:
    """Return every figure for which the audit has numbers, by file name; each benchmark has separate figures."""
    by_name: dict[str, Figure] = {}
    benchmarks = list(dict.fromkeys(entry.benchmark for entry in audit.learners))
    for number, benchmark in enumerate(benchmarks, start=1):
        suffix = f"-{number}" if len(benchmarks) > 1 else ""
        part = replace(audit, learners=tuple(entry for entry in audit.learners if entry.benchmark == benchmark))
        accuracies = replace(part, learners=tuple(entry for entry in part.learners if entry.measure == "accuracy"))
        if accuracies.learners:
            by_name |= {
                f"accuracy{suffix}": accuracy_lines(accuracies),
                f"accuracy-matrices{suffix}": accuracy_matrices(accuracies),
                f"progress{suffix}": performance_progress_lines(accuracies),
            }
        by_name |= {
            f"criteria{suffix}": performance_criteria_dots(part),
            f"criteria-parallel{suffix}": performance_criteria_lines(part),
        }
        if any(result.benchmark == benchmark for result in audit.shapc):
            by_name |= {
                f"reasons{suffix}": shapc_figures.shapc_bands(part),
                f"reasons-matrices{suffix}": shapc_figures.shapc_matrices(part),
                f"reasons-lines{suffix}": shapc_figures.shapc_lines(part),
                f"reasons-distributions{suffix}": shapc_figures.shapc_distributions(part),
                f"reasons-bars{suffix}": shapc_figures.shapc_bars(part),
                f"reasons-boxes{suffix}": shapc_figures.shapc_boxes(part),
            }
    for number, fit in enumerate(audit.clamp, start=1):
        suffix = f"-{number}" if len(audit.clamp) > 1 else ""
        for block in range(len(fit.curves)):
            block_suffix = f"-{block + 1}" if len(fit.curves) > 1 else ""
            by_name[f"clamp-curves{suffix}{block_suffix}"] = clamp_performance_curves(fit, block)
        by_name[f"clamp-transfer{suffix}"] = clamp_transfer_map(fit)
        by_name[f"clamp-properties{suffix}"] = clamp_property_bars(fit)
    return by_name | _trust_figures(audit)


def _trust_figures(audit: Audit) -> dict[str, Figure]:
    """Return the figures on trust and retraining; each measured run has separate figures."""
    by_name: dict[str, Figure] = {}
    for number, run in enumerate(audit.trust, start=1):
        suffix = f"-{number}" if len(audit.trust) > 1 else ""
        if run.bias is not None:
            by_name[f"trust-bias{suffix}"] = bias_bars(run.bias)
        if run.retraining is not None and sum(level.top is None for level in run.retraining.levels) > 1:
            by_name[f"trust-noise{suffix}"] = retraining_summary_lines(
                run.retraining, answer_distance(run.retraining.distances)
            )
        if run.checkpoints is not None:
            distance = answer_distance(tuple(next(iter(run.checkpoints.scores.values()))))
            by_name[f"trust-checkpoints{suffix}"] = checkpoint_dots(run.checkpoints, run.retraining, distance)
    return by_name


def export_figures(audit: Audit, folder: Path) -> list[Path]:
    """Write every figure as PDF and SVG and return the paths."""
    return [
        save(figure, folder / f"{name}.{extension}")
        for name, figure in exported_figures(audit).items()
        for extension in FORMATS
    ]
