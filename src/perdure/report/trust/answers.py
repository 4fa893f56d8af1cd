"""The answers about explanations, from the results of `perdure trust`: attribution bias, retraining and checkpoints."""

from __future__ import annotations

import math

from perdure.audits import Audit, ExplainerScores, Interval, LearnerAudit, RetrainingSummary, TrustFindings
from perdure.audits.bias.results import BiasResult
from perdure.audits.retraining.summaries import answer_distance
from perdure.audits.summary.questions import RETRAINING, TRUST
from perdure.audits.summary.text import measuring_command
from perdure.exporters.trust_tables import SCORES
from perdure.report.cards import Answer, Number, card_bar_positions, card_margin, detail, not_measured_answer

LEVEL = 0.05


def answer_findings(audit: Audit, entry: LearnerAudit, part: str) -> list[TrustFindings]:
    """Return the findings of a learner's runs that contain a part: bias, retraining or checkpoints."""
    return [findings for findings in audit.trust if findings.run in entry.runs and getattr(findings, part) is not None]


def answer_run_label(findings: TrustFindings) -> str:
    """Return the label of a run among the runs of its learner: its seed, or its path if it has none."""
    return findings.run if findings.seed is None else f"seed {findings.seed}"


def answer_trust(audit: Audit, entry: LearnerAudit) -> Answer:
    """Return the answer from the bias of the explainers on the learner's networks; several runs are listed one by one."""
    findings = answer_findings(audit, entry, "bias")
    if not findings:
        return not_measured_answer(audit, entry, TRUST)
    if len(findings) > 1:
        sentences = [
            f"{answer_run_label(run).capitalize()}: {' '.join(bias_answer(run.bias)[:1])}"
            for run in findings
            if run.bias
        ]
        return Answer(TRUST, tuple(sentences))
    result = findings[0].bias
    if result is None or result.verdict is None:
        return Answer(TRUST, missing="Measured, but no explainer could be ranked.")
    others = [explainer for explainer in result.explainers if explainer.method != result.verdict.least]
    return Answer(
        TRUST,
        tuple(bias_answer(result)),
        _bias_number(f"bias of {result.verdict.least} (0: unbiased)", result.verdict.bias),
        tuple(
            _bias_number(explainer.method, explainer.overall)
            for explainer in others
            if not math.isnan(explainer.overall.mean)
        ),
    )


def _bias_number(name: str, bias: Interval) -> Number:
    """Return a bias without a bar: its scale depends on the number of variables and has no upper end at 1."""
    no_bar = (math.nan, math.nan, math.nan)
    return Number(name, f"{bias.mean:.4f}", card_margin(bias, digits=4, unit="example"), *no_bar, "bias")


def bias_answer(result: BiasResult) -> list[str]:
    """Return sentences with the verdict, the reference and the scores of the controls."""
    sentences = [result.verdict.reading if result.verdict else "No explainer could be ranked."]
    if result.estimator == "exact":
        sentences.append("The reference is exact Shapley values.")
    else:
        floors = [entry.floor for entry in result.explainers if entry.layer is None]
        floor = f"; because of their noise, an unbiased map would score {floors[0].mean():.4f}" if floors else ""
        sentences.append(f"The reference is Shapley values from {result.permutations} permutations{floor}.")
    controls = [f"{entry.method} {entry.overall.mean:.4f}" for entry in result.explainers if entry.control]
    if controls:
        sentences.append(f"Uninformative control maps score: {', '.join(controls)}.")
    return sentences


def answer_retraining(audit: Audit, entry: LearnerAudit) -> Answer:
    """Return the answer from retraining in folds and from the run's checkpoints, for the first run that has them."""
    retrained, compared = (answer_findings(audit, entry, part) for part in ("retraining", "checkpoints"))
    if not retrained and not compared:
        return not_measured_answer(audit, entry, RETRAINING)
    sentences, details, headline = [], [], None
    if retrained and retrained[0].retraining is not None:
        summary = retrained[0].retraining
        distance = answer_distance(summary.distances)
        first = summary.explainers[0] if summary.explainers else summary.methods[0]
        scores = summary.levels[0].scores[first][distance]
        headline = _headline(first, scores)
        sentences += retraining_answer(summary, distance)
        details = [
            detail(f"{label} of {first}", getattr(scores, name), name)
            for name, label in SCORES.items()
            if not math.isnan(getattr(scores, name).mean)
        ]
    else:
        command = measuring_command(audit, RETRAINING, entry)
        sentences.append(f"No networks were retrained for comparison (run {command}).")
    if compared:
        sentences += checkpoints_answer(compared[0], retrained[0].retraining if retrained else None)
    count = max(len(retrained), len(compared))
    if count > 1:
        sentences.append(
            f"{count} runs were measured; these numbers are of {answer_run_label((retrained or compared)[0])}."
        )
    return Answer(RETRAINING, tuple(sentences), headline, tuple(details))


def _headline(method: str, scores: ExplainerScores) -> Number | None:
    rate = scores.reco_rate
    if math.isnan(rate.mean):
        return None
    interval = card_margin(rate, digits=2, unit="example")
    return Number(f"ReCo (rates) of {method}", f"{rate.mean:.2f}", interval, *card_bar_positions(rate))


def retraining_answer(summary: RetrainingSummary, distance: str) -> list[str]:
    """Return sentences on retrained networks: which explainers beat chance, and MeGe compared with the controls."""
    scores = {method: by_distance[distance] for method, by_distance in summary.levels[0].scores.items()}
    tested = [name for name in summary.explainers if not math.isnan(scores[name].corrected_p)]
    significant = [name for name in tested if scores[name].corrected_p < LEVEL]
    if not tested:
        reason = next((scores[name].reco_rate.reason for name in summary.explainers), None)
        sentence = f"ReCo is not available: {reason or 'no explainer was measured'}."
    elif len(tested) == 1:
        verdict = "better than chance" if significant else "not significantly better than chance"
        sentence = (
            f"Explanations by {tested[0]} distinguish errors from agreement with ReCo "
            f"{scores[tested[0]].reco_rate.mean:.2f} (p {scores[tested[0]].p_value:.3f}), {verdict}."
        )
    else:
        listing = ", ".join(significant) if significant else "none"
        sentence = (
            f"{len(significant)} of {len(tested)} explainers distinguish errors from agreement better than chance "
            f"(p < {LEVEL:g} after Holm's correction): {listing}."
        )
    return [sentence, *_mege_and_controls(summary, scores)]


def _mege_and_controls(summary: RetrainingSummary, scores: dict[str, ExplainerScores]) -> list[str]:
    known = {name: scores[name].mege.mean for name in scores if not math.isnan(scores[name].mege.mean)}
    if not summary.explainers or summary.explainers[0] not in known:
        return []
    first = summary.explainers[0]
    controls = [f"{known[name]:.2f} for {label}" for name, label in _CONTROL_LABELS.items() if name in known]
    comparison = f" (compare {' and '.join(controls)})" if controls else ""
    return [f"Between retrained networks, maps of {first} agree with MeGe {known[first]:.2f}{comparison}."]


_CONTROL_LABELS = {"random": "random maps", "constant": "a constant map"}


def describe_trends(summary: RetrainingSummary, distance: str) -> list[str]:
    """Return a sentence that names the explainers whose MeGe decreases with noise; empty if there are too few levels."""
    trends = {name: summary.trends[name][distance]["mege"] for name in summary.explainers}
    tested = [name for name, trend in trends.items() if not math.isnan(trend.p_value)]
    decreasing = [name for name in tested if trends[name].p_value < LEVEL]
    if not tested:
        return []
    names = f": {', '.join(decreasing)}" if decreasing else ""
    count = f"{len(decreasing)} of {len(tested)} explainers"
    test = f"(Page's trend test over folds, p < {LEVEL:g}, exploratory)"
    return [f"With increasing noise on the weights, MeGe decreases for {count} {test}{names}."]


def checkpoints_answer(findings: TrustFindings, retraining: RetrainingSummary | None) -> list[str]:
    """Return a sentence that compares MeGe between the run's checkpoints with retraining, for the first explainer."""
    if findings.checkpoints is None:
        return []
    method = findings.checkpoints.methods[0]
    distance = answer_distance(tuple(findings.checkpoints.scores[method]))
    mege = findings.checkpoints.scores[method][distance].mege
    if math.isnan(mege.mean):
        return [f"MeGe between the run's checkpoints is not available: {mege.reason}."]
    sentence = f"Between the run's checkpoints, MeGe of {method} is {mege.mean:.2f} [{mege.low:.2f}, {mege.high:.2f}]"
    retrained = None if retraining is None else retraining.levels[0].scores.get(method, {}).get(distance)
    if retrained is None or math.isnan(retrained.mege.mean):
        return [sentence + "."]
    separate = mege.high < retrained.mege.low or mege.low > retrained.mege.high
    reading = "the two intervals do not overlap" if separate else "the intervals overlap"
    return [f"{sentence}; between retrained networks it is {retrained.mege.mean:.2f} ({reading})."]
