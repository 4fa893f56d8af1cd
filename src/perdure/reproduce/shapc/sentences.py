"""The results of a study of the SHAPC paper in sentences, all computed from its rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from perdure.audits import MEASURES, Audit, LearnerAudit, ShapcResult
from perdure.audits.results import format_p
from perdure.audits.shapc.scores import SUFFICIENT
from perdure.audits.summary.text import join_words
from perdure.reproduce.formatting import format_paragraph
from perdure.reproduce.learners.run_rows import measurements_of_rows, rows_of_learner
from perdure.reproduce.learners.study import Study, learner_study_cell, learner_study_training
from perdure.reproduce.provenance import seed_text
from perdure.reproduce.result_rows import Row
from perdure.reproduce.shapc.ranking import RANKED_BY, RankAgreement, measured_mean, rank_learners, significant_pairs
from perdure.reproduce.shapc.tables import code

MOST_FOLLOWERS = 2
"""Learners that are named after the best one."""


def shapc_answer(audit: Audit, agreements: Sequence[RankAgreement]) -> str:
    """Return which learners keep their reasons best and worst, and whether the paper's ranking holds."""
    ranked = [entry for entry in rank_learners(audit) if not math.isnan(measured_mean(entry, RANKED_BY))]
    if not ranked:
        return "SHAPC was not computed for any of these runs."
    points = {"Reasons": [*_best_and_worst(audit, ranked), *_at_chance(ranked)], "Paper": _holds(agreements)}
    return "\n".join(
        f"- **{title}**: {format_paragraph(*sentences)}" for title, sentences in points.items() if sentences
    )


def _best_and_worst(audit: Audit, ranked: Sequence[LearnerAudit]) -> list[str]:
    best, *others = ranked
    score = f"calibrated SHAPC {_score(best)}"
    if not others:
        return [f"{code(best.learner)} has {score}; there is no other learner to compare it with."]
    followers = [f"{code(entry.learner)} ({_score(entry)})" for entry in others[:-1][:MOST_FOLLOWERS]]
    after = f", followed by {join_words(followers)}" if followers else ""
    text = f"{code(best.learner)} keeps its reasons best ({score}){after}; {code(others[-1].learner)} keeps them least"
    sentences = [f"{text} ({_score(others[-1])})."]
    if (significant := significant_pairs(audit, RANKED_BY)) is not None:
        above = sum(frozenset((best.learner, entry.learner)) in significant for entry in others)
        sentences.append(f"Learners significantly below {code(best.learner)}: {above} of {len(others)}.")
    return sentences


def _score(entry: LearnerAudit) -> str:
    return learner_study_cell(entry.measures[RANKED_BY])


def _at_chance(ranked: Sequence[LearnerAudit]) -> list[str]:
    """Return which learners are not above untrained networks."""
    names = [code(entry.learner) for entry in ranked if entry.measures[RANKED_BY].low <= 0]
    return [f"Not significantly above untrained networks: {join_words(names)}."] if names else []


def _holds(agreements: Sequence[RankAgreement]) -> list[str]:
    """Return in how many pairs the paper's ranking holds, and where its first and its last method are."""
    by_measure = {agreement.measure: agreement for agreement in agreements}
    if (main := by_measure.get("shapc_mean")) is None:
        return []
    kendall = f" (Kendall's τ {main.kendall.tau:+.2f}, {format_p(main.kendall.p)})"
    others = [
        f"{agreement.same} by {MEASURES[name].label}"
        for name in (RANKED_BY, "average_accuracy")
        if (agreement := by_measure.get(name)) is not None and agreement.pairs == main.pairs
    ]
    sentences = [f"The ranking by SHAPC-Mean holds in {main.same} of {main.pairs} pairs{kendall}{_of_reversed(main)}."]
    if others:
        sentences.append(f"Pairs in the paper's order by other measures: {join_words(others)}.")
    places = [
        f"{code(name)} is in place {main.ours.index(name) + 1}" for name in (main.published[0], main.published[-1])
    ]
    return [*sentences, f"Of {len(main.ours)} methods, the paper's first {places[0]} here, its last {places[1]}."]


def _of_reversed(agreement: RankAgreement) -> str:
    count = len(agreement.reversed_pairs)
    if not count or agreement.significant is None:
        return ""
    significant = len(agreement.significant)
    if count == 1:
        return f"; the difference of the reversed pair is {'' if significant else 'not '}significant"
    return (
        f"; {significant or 'none'} of the {count} reversed pairs differ{'s' if significant == 1 else ''} significantly"
    )


def missing_runs(study: Study, rows: Sequence[Row]) -> str:
    """Return which runs of a study have no row; empty if none is missing."""
    known = {(row["learner"], int(row["seed"])) for row in rows}
    learners: dict[str, list[str]] = {}
    for learner in study.learners:
        if seeds := [seed for seed in range(study.seeds) if (learner, seed) not in known]:
            learners.setdefault(seed_text(seeds), []).append(code(learner))
    if not learners:
        return ""
    missing = "; ".join(f"{seeds} of {join_words(names)}" for seeds, names in learners.items())
    single = " The intervals of SHAPC of a single run cover its examples only." if _has_single_run(rows) else ""
    return f"**Incomplete**: not measured yet: {missing}. Rankings can change.{single}"


def _has_single_run(rows: Sequence[Row]) -> bool:
    return any(len(rows_of_learner(rows, learner)) == 1 for learner in {row["learner"] for row in rows})


def protocol_text(study: Study, rows: Sequence[Row], class_count: int) -> str:
    """Return the data, the network and the training of a study in a sentence."""
    count = max(len(run.task_names) for run in measurements_of_rows(rows))
    trials = " Every learner has the same number of trials, on validation images only." if study.trials else ""
    return f"{count} tasks of {class_count // count} classes, {learner_study_training(study)}.{trials}"


def samples_text(audit: Audit) -> str:
    """Return how the explanations were computed, and in how many runs the number of samples is sufficient."""
    results = audit.shapc
    if not results:
        return ""
    examples = _range(len(chosen) for result in results for chosen in result.examples.values())
    used = [
        f"{_range(int(result.settings[name]) for result in results)} {label}"
        for name, label in (("samples", "gradients per map"), ("background", "background images"))
    ]
    enough = sum(result.budget_is_enough for result in results)
    degenerate = sum(result.degenerate for result in results)
    ceilings = [float(result.matrices["ceiling"][0, 1]) for result in results]
    return format_paragraph(
        f"Explanations: {', '.join(used)}, {examples} test examples per task.",
        f"The number of gradients is sufficient in {enough} of {len(results)} runs (doubling it changes SHAPC-Mean by at most "
        f"{SUFFICIENT:g}){_not_sufficient(results)}.",
        f"Noise ceiling of the first pair: {min(ceilings):.2f} to {max(ceilings):.2f}.",
        f"Pairs of example and step without an important region: {degenerate}.",
    )


def _not_sufficient(results: Sequence[ShapcResult]) -> str:
    runs = [f"{code(result.learner)} seed {result.seed}" for result in results if not result.budget_is_enough]
    return f"; not in {', '.join(runs)}" if runs else ""


def _range(values: Iterable[int]) -> str:
    known = sorted(set(values))
    return str(known[0]) if len(known) == 1 else f"{known[0]} to {known[-1]}"


def settings_text(study: Study, rows: Sequence[Row]) -> str:
    """Return the shared training settings and each learner's own, after tuning."""
    training = study.training
    shared = [f"Momentum {training.momentum:g}"]
    if training.milestones:
        epochs = " and ".join(map(str, training.milestones))
        shared.append(f"learning rate x {training.decay:g} after epoch {epochs}")
    own = {row["learner"]: row["settings"] for row in rows}
    listing = [
        f"{code(learner)} " + ", ".join(f"{name} {_setting(value)}" for name, value in settings.items())
        for learner, settings in own.items()
        if settings
    ]
    return f"{'; '.join([', '.join(shared), *listing])}."


def _setting(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, int | float) else str(value)
