"""The tables of a study of the SHAPC paper in Markdown, with the published numbers next to ours."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

import numpy as np

from perdure.audits import MEASURES, Audit, LearnerAudit, ShapcResult
from perdure.audits.results import LEVEL, format_p
from perdure.audits.shapc.scores import OUTCOMES
from perdure.metrics.shapc import TOP
from perdure.reproduce.formatting import format_markdown_table
from perdure.reproduce.learners.run_rows import measurements_of_rows, rows_of_learner
from perdure.reproduce.learners.study import learner_study_cell
from perdure.reproduce.result_rows import Row
from perdure.reproduce.shapc.published import TABLE_1_MEASURES, published_measure, published_shares
from perdure.reproduce.shapc.ranking import (
    COMPARED,
    RANKED_BY,
    RankAgreement,
    pairs_in_same_order,
    rank_agreement,
    rank_learners,
)

MISSING = "–"
BYTES_PER_NUMBER = 4
"""Parameters are 32-bit floating-point numbers."""


def shapc_main_table(audit: Audit, benchmark: str) -> str:
    """Return Table 1: every learner in ranked order, each measure with the paper's value in the next column."""
    published = {measure: published_measure(benchmark, measure) for measure in TABLE_1_MEASURES}
    header = ["learner", "seeds", MEASURES[RANKED_BY].label]
    for measure in TABLE_1_MEASURES:
        header += [MEASURES[measure].label, "paper"]
    table = []
    for entry in rank_learners(audit):
        cells = [code(entry.learner), str(len(entry.runs)), _measure_cell(entry, RANKED_BY)]
        for measure in TABLE_1_MEASURES:
            value = published[measure].get(entry.learner)
            cells += [_measure_cell(entry, measure), "" if value is None else f"{value:.3f}"]
        table.append(cells)
    return format_markdown_table(header, table)


def shapc_detail_table(audit: Audit, rows: Sequence[Row]) -> str:
    """Return what SHAPC consists of and what the learners cost, in ranked order."""
    header = ["learner", *(f"SHAPC, {name}" for name in OUTCOMES), "other seed, same task: calibrated"]
    header += ["multiply-adds / naive", "memory (MB)"]
    results = results_by_learner(audit)
    naive = _operations(rows_of_learner(rows, "naive"))
    table = []
    for entry in rank_learners(audit):
        runs = results.get(entry.learner, [])
        own = rows_of_learner(rows, entry.learner)
        table.append(
            [
                code(entry.learner),
                *(mean_cell([run.outcomes[name].mean for run in runs]) for name in OUTCOMES),
                mean_cell([run.retraining.calibrated.mean for run in runs if run.retraining is not None]),
                mean_cell([_operations(own) / naive], digits=2),
                mean_cell([_largest_memory(own)], digits=2),
            ]
        )
    return format_markdown_table(header, table)


def _operations(rows: Sequence[Row]) -> float:
    """Return the mean number of multiply-adds of some runs; NaN if it is unknown."""
    totals = [run.cost.operations.sum() for run in measurements_of_rows(rows) if run.cost is not None]
    return float(np.mean(totals)) if totals else math.nan


def _largest_memory(rows: Sequence[Row]) -> float:
    """Return the largest memory during a step besides the network in megabytes, averaged over runs; NaN if it is unknown."""
    largest = [
        (cost.memory_bits / 8 + BYTES_PER_NUMBER * (cost.kept + cost.teachers)).max() / 1e6
        for run in measurements_of_rows(rows)
        if (cost := run.cost) is not None
    ]
    return float(np.mean(largest)) if largest else math.nan


def shapc_share_table(audit: Audit) -> str:
    """Return Table 2: SHAPC-Mean and SHAPC-Var at each share of important values, with the paper's values if it has any."""
    results = results_by_learner(audit)
    shares = _shares(results)
    header = ["learner"]
    header += [f"{percent(share)}: {name}" for share in shares for name in ("Mean", "Var")]
    header += [f"paper {percent(share)}" for share in shares]
    table = []
    for entry in rank_learners(audit):
        if not (runs := results.get(entry.learner)):
            continue
        cells = [
            mean_cell([run.sensitivity[share][index].mean for run in runs]) for share in shares for index in (0, 1)
        ]
        printed = published_shares(entry.learner)
        cells += ["{:.3f}, {:.3f}".format(*printed[share]) if share in printed else "" for share in shares]
        table.append([code(entry.learner), *cells])
    return format_markdown_table(header, table)


def share_agreement(audit: Audit, reference: float = TOP) -> str:
    """Return how far the ranking by SHAPC-Mean at the other shares agrees with that at one of them; empty if it cannot."""
    results = results_by_learner(audit)
    means = {
        share: {name: _mean([run.sensitivity[share][0].mean for run in runs]) for name, runs in results.items()}
        for share in _shares(results)
    }
    counts = []
    for share, values in means.items():
        same, pairs = pairs_in_same_order(values, means[reference]) if reference in means else (0, 0)
        if share != reference and pairs:
            counts.append(f"{same} of {pairs} at {percent(share)}")
    if not counts:
        return ""
    return f"Pairs of learners in the same order by SHAPC-Mean as at {percent(reference)}: {', '.join(counts)}."


def _shares(results: Mapping[str, Sequence[ShapcResult]]) -> list[float]:
    """Return the shares that all results have."""
    shares = [set(run.sensitivity) for runs in results.values() for run in runs]
    return sorted(set.intersection(*shares)) if shares else []


def shapc_rankings(audit: Audit, benchmark: str) -> list[RankAgreement]:
    """Return the agreement with the paper's ranking by each measure that at least two of its learners have."""
    agreements = [rank_agreement(audit, measure, published_measure(benchmark, measure)) for measure in COMPARED]
    return [agreement for agreement in agreements if agreement is not None]


def shapc_ranking_table(agreements: Sequence[RankAgreement]) -> str:
    """Return the rankings by each measure, best first, next to the paper's."""
    header = ["measure", "ranking here", "ranking in the paper", "pairs in the same order", "Kendall's τ"]
    header.append("reversed pairs with a significant difference")
    table = []
    for agreement in agreements:
        kendall = agreement.kendall
        table.append(
            [
                MEASURES[agreement.measure].label,
                " > ".join(map(code, agreement.ours)),
                " > ".join(map(code, agreement.published)),
                f"{agreement.same} of {agreement.pairs}",
                MISSING if math.isnan(kendall.tau) else f"{kendall.tau:+.2f} ({format_p(kendall.p)})",
                _reversals(agreement),
            ]
        )
    return format_markdown_table(header, table)


def _reversals(agreement: RankAgreement) -> str:
    if agreement.significant is None:
        return "not tested"
    return ", ".join(f"{code(better)} above {code(worse)}" for better, worse in agreement.significant) or "none"


def significant_differences(audit: Audit) -> str:
    """Return a list of the differences of SHAPC that are significant after Holm's correction over all pairs."""
    found = [f"- {difference}" for difference in audit.differences if difference.p < LEVEL]
    return "\n".join(found or ["- none"])


def results_by_learner(audit: Audit) -> dict[str, list[ShapcResult]]:
    """Return the SHAPC results of each learner that has any, in ranked order."""
    results = {
        entry.learner: [result for result in audit.shapc if result.run in entry.runs] for entry in rank_learners(audit)
    }
    return {learner: found for learner, found in results.items() if found}


def code(name: str) -> str:
    """Return a name in the typeface of code."""
    return f"`{name}`"


def percent(share: float) -> str:
    """Return a share in percent."""
    return f"{100 * share:.0f} %"


def mean_cell(values: Sequence[float], digits: int = 3) -> str:
    """Return the mean of the known values; a dash if none is known."""
    mean = _mean(values)
    return MISSING if math.isnan(mean) else f"{mean:.{digits}f}"


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return statistics.fmean(known) if known else math.nan


def _measure_cell(entry: LearnerAudit, measure: str) -> str:
    return learner_study_cell(entry.measures[measure]) if measure in entry.measures else MISSING
