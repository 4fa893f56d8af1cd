"""The tables of the Trust part: bias by explainer, MeGe and ReCo by noise, and across a run's checkpoints."""

from __future__ import annotations

import math
from collections.abc import Iterator

from perdure.audits import Audit, ExplainerScores, Interval, TrustFindings
from perdure.audits.bias.results import BiasResult
from perdure.audits.controls import CONTROLS
from perdure.report.tables import Cell, Table
from perdure.report.trust.answers import DISTANCE, SCORES, shown_distance

_WHO = ("learner", "seed", "explainer")
_SCORES = ("MeGe ↑", "ReCo, rates ↑", "p", "p (Holm)", "ReCo, precisions ↑", "S=", "S≠")
_EVERY = ("distance", "mean distance ↓", "samples", "set aside")


def trust_tables(audit: Audit, every: bool = True) -> list[Table]:
    """Return the tables the audit has numbers for; ``every``: all shares, distances and pairs of steps too."""
    has = {part for found in audit.trust for part in ("bias", "retraining", "checkpoints") if getattr(found, part)}
    made = []
    if "bias" in has:
        made += [bias_table(audit), *([bias_shares_table(audit)] if every else [])]
    if "retraining" in has:
        made += [retraining_table(audit, every), *([trends_table(audit)] if every else [])]
    if "checkpoints" in has:
        made += [checkpoints_table(audit, every), *([steps_table(audit)] if every else [])]
    return made


def _who(found: TrustFindings, method: str) -> tuple[Cell, ...]:
    return found.learner, found.seed, f"{method} (control)" if method in CONTROLS else method


def bias_table(audit: Audit) -> Table:
    """The bias of every explainer over all shares and both sides, and how far it is behind the least biased."""
    judged = ("bias ↓", "corrected ↓", "noise floor", "behind the least biased", "p (Holm)", "set aside", "judged at")
    rows = [row for found in audit.trust if found.bias is not None for row in _bias_rows(found, found.bias)]
    title = "Attribution bias over all shares and both sides, intervals over samples"
    return Table("trust-bias", title, (*_WHO, *judged), tuple(rows), digits=4)


def _bias_rows(found: TrustFindings, result: BiasResult) -> Iterator[tuple[Cell, ...]]:
    rivals = {} if result.verdict is None else {rival.method: rival for rival in result.verdict.rivals}
    for entry in result.by_bias:
        rival = rivals.get(entry.method)
        yield (
            *_who(found, entry.method),
            entry.overall,
            float(entry.corrected.mean()),
            float(entry.floor.mean()),
            None if rival is None else Interval(rival.difference, rival.low, rival.high, result.samples, "t"),
            None if rival is None else rival.p,
            entry.degenerate,
            "the input" if entry.layer is None else f"layer {entry.layer}, not ranked",
        )


def bias_shares_table(audit: Audit) -> Table:
    """The bias at every share and side."""
    header = (*_WHO, "side", "share", "bias ↓", "corrected ↓", "sampling standard error", "noise floor")
    rows: list[tuple[Cell, ...]] = [
        (
            *_who(found, entry.method),
            side,
            share,
            entry.cells[i][j],
            *(float(table[i, j]) for table in (entry.corrected, entry.sampling_stderr, entry.floor)),
        )
        for found in audit.trust
        if found.bias is not None
        for entry in found.bias.explainers
        for i, share in enumerate(found.bias.shares)
        for j, side in enumerate(found.bias.sides)
    ]
    return Table("trust-bias-shares", "Attribution bias by share and side", header, tuple(rows), digits=4)


def _cells(scores: ExplainerScores) -> tuple[Cell, ...]:
    return (
        scores.mege,
        scores.reco_rate,
        scores.p_value,
        scores.corrected_p,
        scores.reco_precision,
        scores.same,
        scores.different,
    )


def _rest(kind: str, scores: ExplainerScores) -> tuple[Cell, ...]:
    """Return the cells of `_EVERY`."""
    return kind, scores.mege_distance, scores.samples, scores.set_aside


def retraining_table(audit: Audit, every: bool = True) -> Table:
    """MeGe and ReCo of every explainer at every level of noise; without ``every`` under the distance shown first."""
    rows: list[tuple[Cell, ...]] = []
    for found in audit.trust:
        if found.retraining is None:
            continue
        shown = shown_distance(found.retraining.distances)
        for level in found.retraining.levels:
            accuracy = sum(level.accuracy) / len(level.accuracy)
            rows += [
                (
                    *_who(found, method),
                    str(level),
                    accuracy,
                    *_cells(scores[kind]),
                    *(_rest(kind, scores[kind]) if every else ()),
                )
                for kind in (found.retraining.distances if every else (shown,))
                for method, scores in level.scores.items()
            ]
    header = (*_WHO, "noise", "accuracy", *_SCORES, *(_EVERY if every else ()))
    return Table("trust-retraining", f"MeGe and ReCo after retraining{_which(every)}", header, tuple(rows))


def _which(every: bool) -> str:
    return ", intervals over samples" + ("" if every else f", distance {DISTANCE} where it is known")


def trends_table(audit: Audit) -> Table:
    """Whether each score falls (the mean distance: rises) with noise, fold by fold."""
    rows: list[tuple[Cell, ...]] = [
        (
            *_who(found, method),
            kind,
            _LABELS[score],
            *(_number(value) for value in (trend.rank_correlation, trend.p_value)),
            trend.blocks,
            trend.left_out,
            trend.reason or "",
        )
        for found in audit.trust
        if found.retraining is not None
        for method, kinds in found.retraining.trends.items()
        for kind, trends in kinds.items()
        for score, trend in trends.items()
    ]
    header = (*_WHO, "distance", "score", "rank correlation", "p", "folds", "folds left out", "why there is none")
    return Table("trust-trends", "Does the score follow noise on the weights (Page's test)", header, tuple(rows))


_LABELS = {**SCORES, "mege_distance": "mean distance"}


def checkpoints_table(audit: Audit, every: bool = True) -> Table:
    """The same over the pairs of a run's checkpoints, beside plain retraining."""
    rows: list[tuple[Cell, ...]] = []
    for found in audit.trust:
        if found.checkpoints is None:
            continue
        for method, scores in found.checkpoints.scores.items():
            for kind in scores if every else (shown_distance(tuple(scores)),):
                again = (
                    None if found.retraining is None else found.retraining.levels[0].scores.get(method, {}).get(kind)
                )
                rows.append(
                    (
                        *_who(found, method),
                        *_cells(scores[kind]),
                        _number(found.checkpoints.shapc[method]),
                        *((None, None) if again is None else (again.mege, again.reco_rate)),
                        *(_rest(kind, scores[kind]) if every else ()),
                    )
                )
    beside = ("SHAPC ↑", "trained again: MeGe ↑", "trained again: ReCo, rates ↑")
    header = (*_WHO, *_SCORES, *beside, *(_EVERY if every else ()))
    return Table("trust-checkpoints", f"MeGe and ReCo between a run's checkpoints{_which(every)}", header, tuple(rows))


def steps_table(audit: Audit) -> Table:
    """Every pair of checkpoints by itself."""
    rows: list[tuple[Cell, ...]] = [
        (
            *_who(found, method),
            kind,
            pair.first + 1,
            pair.second + 1,
            *(_number(value) for value in (pair.mege, pair.reco_rate, pair.shapc)),
            pair.same,
            pair.different,
        )
        for found in audit.trust
        if found.checkpoints is not None
        for method, kinds in found.checkpoints.pairs.items()
        for kind, pairs in kinds.items()
        for pair in pairs
    ]
    header = (*_WHO, "distance", "after step", "and step", "MeGe ↑", "ReCo, rates ↑", "SHAPC ↑", "S=", "S≠")
    return Table("trust-steps", "MeGe and ReCo of each pair of checkpoints", header, tuple(rows))


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
