"""The tables on trust and retraining: bias by explainer, MeGe and ReCo by noise and between a run's checkpoints."""

from __future__ import annotations

import math
from collections.abc import Iterator

from perdure.audits import Audit, ExplainerScores, Interval, TrustFindings
from perdure.audits.bias.results import BiasResult
from perdure.audits.controls import CONTROLS
from perdure.audits.retraining.summaries import DISTANCE, answer_distance
from perdure.exporters.tables import Cell, Table

SCORES = {"mege": "MeGe", "reco_rate": "ReCo, rates", "reco_precision": "ReCo, precisions"}
_EXPLAINER_COLUMNS = ("learner", "seed", "explainer")
_SCORE_COLUMNS = ("MeGe ↑", "ReCo, rates ↑", "p", "p (Holm)", "ReCo, precisions ↑", "S=", "S≠")
_EXTRA_COLUMNS = ("distance", "mean distance ↓", "examples", "degenerate")


def trust_tables(audit: Audit, every: bool = True) -> list[Table]:
    """Return the tables for which the audit has numbers; with ``every``, all shares, distances and pairs of steps."""
    has = {part for run in audit.trust for part in ("bias", "retraining", "checkpoints") if getattr(run, part)}
    tables = []
    if "bias" in has:
        tables += [trust_bias_table(audit), *([bias_shares_table(audit)] if every else [])]
    if "retraining" in has:
        tables += [retraining_table(audit, every), *([trust_trends_table(audit)] if every else [])]
    if "checkpoints" in has:
        tables += [trust_checkpoints_table(audit, every), *([trust_steps_table(audit)] if every else [])]
    return tables


def _explainer_cells(run: TrustFindings, method: str) -> tuple[Cell, ...]:
    return run.learner, run.seed, f"{method} (control)" if method in CONTROLS else method


def trust_bias_table(audit: Audit) -> Table:
    """Return the bias of every explainer over all shares and both sides, and its difference from the least biased."""
    columns = (
        "bias ↓",
        "corrected ↓",
        "noise floor",
        "above the least biased",
        "p (Holm)",
        "degenerate",
        "measured at",
    )
    rows = [row for run in audit.trust if run.bias is not None for row in _bias_rows(run, run.bias)]
    title = "Attribution bias over all shares and both sides, intervals over examples"
    return Table("trust-bias", title, (*_EXPLAINER_COLUMNS, *columns), tuple(rows), digits=4)


def _bias_rows(run: TrustFindings, result: BiasResult) -> Iterator[tuple[Cell, ...]]:
    rivals = {} if result.verdict is None else {rival.method: rival for rival in result.verdict.rivals}
    for entry in result.by_bias:
        rival = rivals.get(entry.method)
        yield (
            *_explainer_cells(run, entry.method),
            entry.overall,
            float(entry.corrected.mean()),
            float(entry.floor.mean()),
            None if rival is None else Interval(rival.difference, rival.low, rival.high, result.examples, "t"),
            None if rival is None else rival.p,
            entry.degenerate,
            "the input" if entry.layer is None else f"layer {entry.layer}, not ranked",
        )


def bias_shares_table(audit: Audit) -> Table:
    """Return the bias at every share and side."""
    header = (*_EXPLAINER_COLUMNS, "side", "share", "bias ↓", "corrected ↓", "sampling standard error", "noise floor")
    rows: list[tuple[Cell, ...]] = [
        (
            *_explainer_cells(run, entry.method),
            side,
            share,
            entry.cells[i][j],
            *(float(table[i, j]) for table in (entry.corrected, entry.sampling_stderr, entry.floor)),
        )
        for run in audit.trust
        if run.bias is not None
        for entry in run.bias.explainers
        for i, share in enumerate(run.bias.shares)
        for j, side in enumerate(run.bias.sides)
    ]
    return Table("trust-bias-shares", "Attribution bias by share and side", header, tuple(rows), digits=4)


def _score_cells(scores: ExplainerScores) -> tuple[Cell, ...]:
    return (
        scores.mege,
        scores.reco_rate,
        scores.p_value,
        scores.corrected_p,
        scores.reco_precision,
        scores.same,
        scores.different,
    )


def _extra_cells(distance: str, scores: ExplainerScores) -> tuple[Cell, ...]:
    """Return the cells of `_EXTRA_COLUMNS`."""
    return distance, scores.mege_distance, scores.examples, scores.set_aside


def retraining_table(audit: Audit, every: bool = True) -> Table:
    """Return MeGe and ReCo of every explainer at every noise level, for all distances or the default one."""
    rows: list[tuple[Cell, ...]] = []
    for run in audit.trust:
        if run.retraining is None:
            continue
        default = answer_distance(run.retraining.distances)
        for level in run.retraining.levels:
            accuracy = sum(level.accuracy) / len(level.accuracy)
            rows += [
                (
                    *_explainer_cells(run, method),
                    str(level),
                    accuracy,
                    *_score_cells(scores[distance]),
                    *(_extra_cells(distance, scores[distance]) if every else ()),
                )
                for distance in (run.retraining.distances if every else (default,))
                for method, scores in level.scores.items()
            ]
    header = (*_EXPLAINER_COLUMNS, "noise", "accuracy", *_SCORE_COLUMNS, *(_EXTRA_COLUMNS if every else ()))
    return Table("trust-retraining", f"MeGe and ReCo after retraining{_title_suffix(every)}", header, tuple(rows))


def _title_suffix(every: bool) -> str:
    return ", intervals over examples" + ("" if every else f" (distance {DISTANCE} if available)")


def trust_trends_table(audit: Audit) -> Table:
    """Return the trend of each score with noise: a decrease, or an increase for the mean distance."""
    rows: list[tuple[Cell, ...]] = [
        (
            *_explainer_cells(run, method),
            distance,
            _LABELS[score],
            *(_number(value) for value in (trend.rank_correlation, trend.p_value)),
            trend.blocks,
            trend.left_out,
            trend.reason or "",
        )
        for run in audit.trust
        if run.retraining is not None
        for method, by_distance in run.retraining.trends.items()
        for distance, trends in by_distance.items()
        for score, trend in trends.items()
    ]
    header = (
        *_EXPLAINER_COLUMNS,
        "distance",
        "score",
        "rank correlation",
        "p",
        "folds",
        "folds left out",
        "reason if missing",
    )
    return Table("trust-trends", "Trend of the scores with noise on the weights (Page's test)", header, tuple(rows))


_LABELS = {**SCORES, "mege_distance": "mean distance"}


def trust_checkpoints_table(audit: Audit, every: bool = True) -> Table:
    """Return MeGe and ReCo over the pairs of a run's checkpoints, with the scores of retrained networks."""
    rows: list[tuple[Cell, ...]] = []
    for run in audit.trust:
        if run.checkpoints is None:
            continue
        for method, scores in run.checkpoints.scores.items():
            for distance in scores if every else (answer_distance(tuple(scores)),):
                retrained = (
                    None if run.retraining is None else run.retraining.levels[0].scores.get(method, {}).get(distance)
                )
                rows.append(
                    (
                        *_explainer_cells(run, method),
                        *_score_cells(scores[distance]),
                        _number(run.checkpoints.shapc[method]),
                        *((None, None) if retrained is None else (retrained.mege, retrained.reco_rate)),
                        *(_extra_cells(distance, scores[distance]) if every else ()),
                    )
                )
    comparison = ("SHAPC ↑", "retrained: MeGe ↑", "retrained: ReCo, rates ↑")
    header = (*_EXPLAINER_COLUMNS, *_SCORE_COLUMNS, *comparison, *(_EXTRA_COLUMNS if every else ()))
    title = f"MeGe and ReCo between a run's checkpoints{_title_suffix(every)}"
    return Table("trust-checkpoints", title, header, tuple(rows))


def trust_steps_table(audit: Audit) -> Table:
    """Return the scores of every pair of checkpoints."""
    rows: list[tuple[Cell, ...]] = [
        (
            *_explainer_cells(run, method),
            distance,
            pair.first + 1,
            pair.second + 1,
            *(_number(value) for value in (pair.mege, pair.reco_rate, pair.shapc)),
            pair.same,
            pair.different,
        )
        for run in audit.trust
        if run.checkpoints is not None
        for method, by_distance in run.checkpoints.pairs.items()
        for distance, pairs in by_distance.items()
        for pair in pairs
    ]
    header = (
        *_EXPLAINER_COLUMNS,
        "distance",
        "after step",
        "and step",
        "MeGe ↑",
        "ReCo, rates ↑",
        "SHAPC ↑",
        "S=",
        "S≠",
    )
    return Table("trust-steps", "MeGe and ReCo of each pair of checkpoints", header, tuple(rows))


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
