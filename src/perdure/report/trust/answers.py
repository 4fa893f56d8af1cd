"""The two questions about explanations, answered from what perdure trust has measured and no further."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perdure.audits import Audit, ExplainerScores, Interval, LearnerAudit, RetrainingSummary, TrustFindings
from perdure.audits.bias.results import BiasResult
from perdure.report.cards import QUESTIONS, Answer, Number, ends, margin, small

DISTANCE = "l2-unit"
"""What cards and tables show: it does not depend on the scale of the maps, which differs between networks and explainers."""
LEVEL = 0.05
SCORES = {"mege": "MeGe", "reco_rate": "ReCo, rates", "reco_precision": "ReCo, precisions"}


def findings_of(audit: Audit, entry: LearnerAudit, part: str) -> list[TrustFindings]:
    """Return the findings of a learner's runs that have a part: bias, retraining or checkpoints."""
    return [found for found in audit.trust if found.run in entry.runs and getattr(found, part) is not None]


def shown_distance(kinds: Sequence[str]) -> str:
    """Return the distance that is shown first."""
    return DISTANCE if DISTANCE in kinds else kinds[0]


def named(found: TrustFindings) -> str:
    """Return what tells a run from the others of its learner."""
    return found.run if found.seed is None else f"seed {found.seed}"


def believed(audit: Audit, entry: LearnerAudit) -> Answer:
    """Answer from the bias of the explainers on the learner's network; several runs are told one by one."""
    found = findings_of(audit, entry, "bias")
    if not found:
        return Answer(QUESTIONS[3], missing="Not measured for this learner.", command="perdure trust RECORD")
    if len(found) > 1:
        told = [f"{named(one).capitalize()}: {' '.join(bias_words(one.bias)[:1])}" for one in found if one.bias]
        return Answer(QUESTIONS[3], tuple(told))
    result = found[0].bias
    if result is None or result.verdict is None:
        return Answer(QUESTIONS[3], missing="Measured, but no explainer could be ranked.")
    bias = result.verdict.bias
    others = [one for one in result.explainers if one.method != result.verdict.least]
    return Answer(
        QUESTIONS[3],
        tuple(bias_words(result)),
        _bias_number(f"bias of {result.verdict.least}, 0 is none", bias),
        tuple(_bias_number(one.method, one.overall) for one in others if not math.isnan(one.overall.mean)),
    )


def _bias_number(name: str, bias: Interval) -> Number:
    """Return a bias, which depends on the number of variables and so has no scale from 0 to 1 that a bar could show."""
    none = math.nan
    return Number(name, f"{bias.mean:.4f}", margin(bias, digits=4, of="sample"), none, none, none)


def bias_words(result: BiasResult) -> list[str]:
    """Return the verdict, what it is judged by, and what the controls score."""
    told = [result.verdict.reading if result.verdict else "No explainer could be ranked."]
    if result.estimator == "exact":
        told.append("Judged by exact Shapley values.")
    else:
        floors = [entry.floor for entry in result.explainers if entry.layer is None]
        floor = f"; a map without bias would score {floors[0].mean():.4f} by their sampling noise" if floors else ""
        told.append(f"Judged by Shapley values from {result.permutations} permutations{floor}.")
    controls = [f"{entry.method} {entry.overall.mean:.4f}" for entry in result.explainers if entry.control]
    if controls:
        told.append(f"Maps that say nothing: {', '.join(controls)}.")
    return told


def survived(audit: Audit, entry: LearnerAudit) -> Answer:
    """Answer from retraining in folds and from the run's own checkpoints, of the first run that has them."""
    retrained, compared = (findings_of(audit, entry, part) for part in ("retraining", "checkpoints"))
    if not retrained and not compared:
        return Answer(QUESTIONS[4], missing="Not measured for this learner.", command="perdure trust RECORD --retrain")
    sentences, details, headline = [], [], None
    if retrained and retrained[0].retraining is not None:
        summary = retrained[0].retraining
        distance = shown_distance(summary.distances)
        first = summary.explainers[0] if summary.explainers else summary.methods[0]
        scores = summary.levels[0].scores[first][distance]
        headline = _headline(first, scores)
        sentences += retraining_words(summary, distance)
        details = [
            small(f"{label} of {first}", getattr(scores, name))
            for name, label in SCORES.items()
            if not math.isnan(getattr(scores, name).mean)
        ]
    else:
        sentences.append("Networks have not been trained again (perdure trust RECORD --retrain).")
    if compared:
        sentences += checkpoint_words(compared[0], retrained[0].retraining if retrained else None)
    more = max(len(retrained), len(compared))
    if more > 1:
        sentences.append(f"{more} runs were measured; this is {named((retrained or compared)[0])}.")
    return Answer(QUESTIONS[4], tuple(sentences), headline, tuple(details))


def _headline(method: str, scores: ExplainerScores) -> Number | None:
    rate = scores.reco_rate
    if math.isnan(rate.mean):
        return None
    return Number(f"ReCo, rates, of {method}", f"{rate.mean:.2f}", margin(rate, digits=2, of="sample"), *ends(rate))


def retraining_words(summary: RetrainingSummary, distance: str) -> list[str]:
    """Return what can be said of networks trained again: who beats chance, and where MeGe lies between the controls."""
    scores = {method: kinds[distance] for method, kinds in summary.levels[0].scores.items()}
    tested = [name for name in summary.explainers if not math.isnan(scores[name].corrected_p)]
    sure = [name for name in tested if scores[name].corrected_p < LEVEL]
    told = []
    if not tested:
        why = next((scores[name].reco_rate.reason for name in summary.explainers), None)
        told.append(
            f"Whether explanations tell agreement from error is not known: {why or 'no explainer was measured'}."
        )
    elif len(tested) == 1:
        verdict = "more than chance gives" if sure else "which these samples cannot tell from chance"
        told.append(
            f"Explanations by {tested[0]} separate agreement from error with ReCo {scores[tested[0]].reco_rate.mean:.2f} "
            f"(p {scores[tested[0]].p_value:.3f}), {verdict}."
        )
    else:
        who = ", ".join(sure) if sure else "none"
        told.append(
            f"Of {len(tested)} explainers {len(sure)} separate agreement from error better than chance "
            f"(p < {LEVEL:g} after Holm's correction): {who}."
        )
    told += _between_controls(summary, scores)
    return told


def _between_controls(summary: RetrainingSummary, scores: dict[str, ExplainerScores]) -> list[str]:
    known = {name: scores[name].mege.mean for name in scores if not math.isnan(scores[name].mege.mean)}
    if not summary.explainers or summary.explainers[0] not in known:
        return []
    first = summary.explainers[0]
    controls = [f"{known[name]:.2f} for {what}" for name, what in _CONTROL_WORDS.items() if name in known]
    beside = f", where it is {' and '.join(controls)}" if controls else ""
    return [f"Maps of {first} under networks trained again agree with MeGe {known[first]:.2f}{beside}."]


_CONTROL_WORDS = {"random": "noise", "constant": "a map that says nothing"}


def trend_words(summary: RetrainingSummary, distance: str) -> list[str]:
    """Return for which explainers MeGe falls as noise on the weights grows; nothing where there are too few levels."""
    trends = {name: summary.trends[name][distance]["mege"] for name in summary.explainers}
    tested = [name for name, trend in trends.items() if not math.isnan(trend.p_value)]
    falls = [name for name in tested if trends[name].p_value < LEVEL]
    if not tested:
        return []
    who = f": {', '.join(falls)}" if falls else ""
    count = f"{len(falls)} of {len(tested)} explainers"
    test = f"(Page's test over folds, p < {LEVEL:g}, a guide)"
    return [f"As noise on the weights grows, MeGe falls for {count} {test}{who}."]


def checkpoint_words(found: TrustFindings, retraining: RetrainingSummary | None) -> list[str]:
    """Return MeGe between the run's own checkpoints beside that of plain retraining, for the first explainer."""
    if found.checkpoints is None:
        return []
    method = found.checkpoints.methods[0]
    distance = shown_distance(tuple(found.checkpoints.scores[method]))
    own = found.checkpoints.scores[method][distance].mege
    if math.isnan(own.mean):
        return [f"Between its own checkpoints MeGe is not known: {own.reason}."]
    sentence = f"Between its own checkpoints MeGe of {method} is {own.mean:.2f} [{own.low:.2f}, {own.high:.2f}]"
    again = None if retraining is None else retraining.levels[0].scores.get(method, {}).get(distance)
    if again is None or math.isnan(again.mege.mean):
        return [sentence + "."]
    apart = own.high < again.mege.low or own.low > again.mege.high
    reading = "the two intervals do not meet" if apart else "the intervals overlap"
    return [f"{sentence}, between networks trained again {again.mege.mean:.2f}: {reading}."]
