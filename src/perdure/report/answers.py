"""The answers to the five questions for one learner, as sentences with numbers, intervals and caveats."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perdure.audits import MEASURES, Audit, LatentProperties, LearnerAudit, ShapcResult
from perdure.audits.summary.questions import CAUSES, PERFORMANCE, REASONS
from perdure.audits.summary.text import (
    CLIP_NOTE,
    clipped_score,
    explain_calibrated_score,
    has_forgotten_most,
    is_clipped_score,
)
from perdure.report.cards import (
    Answer,
    Number,
    card_bar_positions,
    card_clipped,
    card_margin,
    card_percent,
    detail,
    not_measured_answer,
)
from perdure.report.glossary import term
from perdure.report.trust.answers import answer_retraining, answer_trust


def answers(audit: Audit, entry: LearnerAudit) -> tuple[Answer, ...]:
    """Return the five answers for a learner, in the order of the questions."""
    return (
        _answer_performance(audit, entry),
        _answer_reasons(audit, entry),
        _answer_causes(audit, entry),
        answer_trust(audit, entry),
        answer_retraining(audit, entry),
    )


def _answer_performance(audit: Audit, entry: LearnerAudit) -> Answer:
    if entry.measure != "accuracy":
        return _answer_unbounded(entry)
    accuracy = entry.measures["average_accuracy"]
    if math.isnan(accuracy.mean):
        return Answer(PERFORMANCE, missing=f"Not available: {accuracy.reason}.")
    trained = len(entry.tasks) if entry.is_reference else len(set(entry.curriculum))
    tasks = f"{trained} task{'s' if trained != 1 else ''}"
    when = f"Trained on all {tasks} at once" if entry.is_reference else f"After {tasks}"
    sentences = [
        f"{when}, it classifies {card_percent(accuracy.mean)} of the test examples correctly.",
        *_forgetting(entry),
        *_cost(entry),
        *_reference(audit, entry),
    ]
    details = [name for name in ("forgetting", "REM", "BWT+", "FWT", "MS", "SSS", "CE") if _is_known(entry, name)]
    return Answer(
        PERFORMANCE,
        tuple(sentences),
        Number(
            "average accuracy",
            card_percent(accuracy.mean),
            card_margin(accuracy, scale=100, digits=1),
            *card_bar_positions(accuracy),
        ),
        tuple(detail(_spelled(name), entry.measures[name], name) for name in details)
        + tuple(
            detail(f"CL_score {name}", value, "cl_score")
            for name, value in entry.scores.items()
            if value.mean == value.mean
        ),
    )


def _answer_unbounded(entry: LearnerAudit) -> Answer:
    """Return the answer for losses, or performances without a range: no percentages and no bars."""
    word = entry.measure
    average, forgetting = entry.measures[f"average_{word}"], entry.measures[f"{word}_forgetting"]
    if math.isnan(average.mean):
        return Answer(PERFORMANCE, missing=f"Not available: {average.reason}.")
    trained = len(set(entry.curriculum))
    direction = "lower" if word == "loss" else "higher"
    when = f"After {trained} task{'s' if trained != 1 else ''}"
    sentences = [f"{when}, its average {word} is {average.mean:.4g} ({card_margin(average)}; {direction} is better)."]
    if math.isnan(forgetting.mean):
        sentences.append(f"Forgetting is not available: {forgetting.reason}.")
    else:
        change = "worse" if forgetting.mean >= 0 else "better"
        sentences.append(
            f"On earlier tasks, the {word} is {abs(forgetting.mean):.4g} {change} than its best ({card_margin(forgetting)})."
        )
    return Answer(PERFORMANCE, (*sentences, *_cost(entry)))


def _forgetting(entry: LearnerAudit) -> list[str]:
    if entry.is_reference:
        return []
    forgetting = entry.measures["forgetting"]
    if math.isnan(forgetting.mean):
        return [f"Forgetting is not available: {forgetting.reason}."]
    points, interval = f"{abs(100 * forgetting.mean):.1f} points", card_margin(forgetting, scale=100, digits=1)
    if forgetting.mean < 0:
        return [f"Accuracy on earlier tasks is {points} above its previous best ({interval})."]
    sentence = f"Accuracy on earlier tasks is {points} below its best ({interval})"
    if not math.isnan(forgetting.low) and forgetting.low <= 0:
        sentence += ", not significantly different from zero"
    return [sentence + "."]


def _cost(entry: LearnerAudit) -> list[str]:
    labels = {"MS": "model size", "SSS": "stored examples", "CE": "computation"}
    scores = [f"{label} {entry.measures[name].mean:.2f}" for name, label in labels.items() if _is_known(entry, name)]
    return [f"Cost from 0 (expensive) to 1 (cheapest): {', '.join(scores)}."] if scores else []


def _reference(audit: Audit, entry: LearnerAudit) -> list[str]:
    if entry.is_reference:
        return ["It is a reference for the other learners: without a sequence of tasks, there is no forgetting."]
    references = [other for other in audit.learners if other.is_reference and other.benchmark == entry.benchmark]
    return [
        f"For comparison, {other.learner} (trained on all tasks at once) reaches "
        f"{card_percent(other.measures['average_accuracy'].mean)}."
        for other in references
    ]


def _answer_reasons(audit: Audit, entry: LearnerAudit) -> Answer:
    if entry.is_reference:
        return Answer(REASONS, missing="Not applicable: there is no earlier network to compare with.")
    results = [result for result in audit.shapc if result.run in entry.runs]
    if not results:
        return not_measured_answer(audit, entry, REASONS)
    calibrated, unit = entry.measures["shapc_calibrated"], "run" if len(results) > 1 else "example"
    if math.isnan(calibrated.mean):
        return Answer(REASONS, missing=f"Measured, but not available: {calibrated.reason}.")
    sentences = [
        explain_calibrated_score(entry),
        *([CLIP_NOTE] if is_clipped_score(calibrated) else []),
        *_by_outcome(results),
        *_retraining_reference(results),
        *_sampling_noise(results),
    ]
    shown, accuracy = clipped_score(calibrated), entry.measures["average_accuracy"].mean
    forgotten = f" at an accuracy of {card_percent(accuracy)}" if has_forgotten_most(entry) else ""
    return Answer(
        REASONS,
        tuple(sentences),
        Number(
            f"calibrated SHAPC{forgotten}",
            f"{shown.mean:.2f}",
            card_margin(shown, digits=2, unit=unit),
            *card_bar_positions(shown),
        ),
        tuple(detail(MEASURES[name].label, entry.measures[name], name) for name in ("shapc_mean", "shapc_var")),
    )


def _by_outcome(results: Sequence[ShapcResult]) -> list[str]:
    """Compare examples that are still correct with forgotten ones, if there is a single run with both."""
    if len(results) > 1:
        return []
    known = {name: value for name, value in results[0].outcomes.items() if not math.isnan(value.mean)}
    parts = [f"{value.mean:.2f} for examples that are {name} (n = {value.n})" for name, value in known.items()]
    if len(parts) < 2:
        return []
    return [f"SHAPC-Mean is {' and '.join(parts)}; n counts pairs of example and step."]


def _retraining_reference(results: Sequence[ShapcResult]) -> list[str]:
    references = [result.retraining.calibrated for result in results if result.retraining is not None]
    scores = [clipped_score(score).mean for score in references if not math.isnan(score.mean)]
    if not scores:
        return []
    value = f"{min(scores):.2f}" if len(scores) == 1 else f"{min(scores):.2f} to {max(scores):.2f}"
    return [f"For comparison, networks trained on the same task from different seeds score {value}."]


def _sampling_noise(results: Sequence[ShapcResult]) -> list[str]:
    if all(result.budget_is_enough for result in results):
        return []
    return ["The number of samples per map is small, so the extrapolation to maps without sampling noise is uncertain."]


def _answer_causes(audit: Audit, entry: LearnerAudit) -> Answer:
    if entry.is_reference:
        return Answer(
            CAUSES, missing="Not applicable: it learns all tasks in one step, so there are no curves to explain."
        )
    if entry.measure != "accuracy":
        return Answer(CAUSES, missing=f"CLAMP is fitted to accuracies; these runs hold {entry.measure} values.")
    fits = [fit for fit in audit.clamp if fit.benchmark == entry.benchmark and entry.learner in fit.algorithms]
    if not fits:
        return not_measured_answer(audit, entry, CAUSES)
    fit = fits[0]
    index = fit.algorithms.index(entry.learner)
    numbers = {name: _property(fit, name, index) for name in ("efficiency", "retention", "translation")}
    retention, efficiency = fit.estimates["retention"][index], fit.estimates["efficiency"][index]
    gain = f"One visit to a task gains {efficiency:.2f} times as much as for the average learner"
    sentences = [
        f"Each step retains {100 * retention:.0f} % of what earlier steps built up{_caveat(fit, 'retention', index)}.",
        f"{gain}{_caveat(fit, 'efficiency', index)}.",
    ]
    return Answer(CAUSES, tuple(sentences), numbers["retention"], (numbers["efficiency"], numbers["translation"]))


def _caveat(fit: LatentProperties, name: str, index: int) -> str:
    if fit.supported[name][index]:
        return ""
    low, high = (float(bound) for bound in fit.intervals[name][index])
    upper = "more" if math.isinf(high) else f"{high:.2f}"
    return f" (undecided: the curves allow a {name} from {low:.2f} to {upper})"


def _property(fit: LatentProperties, name: str, index: int) -> Number:
    value = float(fit.estimates[name][index])
    low, high = (float(bound) for bound in fit.intervals[name][index])
    bounds = f"{low:.2f} to {'unbounded' if math.isinf(high) else f'{high:.2f}'}"
    return Number(name, f"{value:.2f}", f"95 % interval {bounds}", *card_clipped(low, value, high), name)


def _is_known(entry: LearnerAudit, name: str) -> bool:
    return name in entry.measures and not math.isnan(entry.measures[name].mean)


def _spelled(name: str) -> str:
    """Return the name of a metric, spelled out, with its abbreviation."""
    entry, label = term(name), MEASURES[name].label
    return label if entry.name.lower() == label.lower() else f"{entry.name} ({label})"
