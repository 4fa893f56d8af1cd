"""The five questions of a reliability card, each answered in sentences that carry no more than their numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perdure.audits import MEASURES, Audit, LatentProperties, LearnerAudit, ShapcResult
from perdure.report.cards import QUESTIONS, Answer, Number, clipped, ends, margin, percent, small
from perdure.report.trust.answers import believed, survived


def answers(audit: Audit, entry: LearnerAudit) -> tuple[Answer, ...]:
    """Return the five answers for a learner, in the order of the questions."""
    return (
        _learned(audit, entry),
        _reasons(audit, entry),
        _blame(audit, entry),
        believed(audit, entry),
        survived(audit, entry),
    )


def _learned(audit: Audit, entry: LearnerAudit) -> Answer:
    accuracy = entry.measures["average_accuracy"]
    if math.isnan(accuracy.mean):
        return Answer(QUESTIONS[0], missing=f"Not known: {accuracy.reason}.")
    trained = len(entry.tasks) if entry.is_reference else len(set(entry.curriculum))
    tasks = f"{trained} task{'s' if trained != 1 else ''}"
    how = f"Trained on all {tasks} at once, it" if entry.is_reference else f"After {tasks} it"
    sentences = [f"{how} is right on {percent(accuracy.mean)} of the test samples.", *_kept(entry), *_cost(entry)]
    sentences += _reference(audit, entry)
    details = [name for name in ("forgetting", "REM", "BWT+", "FWT", "MS", "SSS", "CE") if _known(entry, name)]
    return Answer(
        QUESTIONS[0],
        tuple(sentences),
        Number("average accuracy", percent(accuracy.mean), margin(accuracy, scale=100, digits=1), *ends(accuracy)),
        tuple(small(MEASURES[name].label, entry.measures[name]) for name in details)
        + tuple(small(f"CL_score {name}", value) for name, value in entry.scores.items() if value.mean == value.mean),
    )


def _kept(entry: LearnerAudit) -> list[str]:
    if entry.is_reference:
        return []
    lost = entry.measures["forgetting"]
    if math.isnan(lost.mean):
        return [f"What it keeps is not known: {lost.reason}."]
    points = f"{abs(100 * lost.mean):.1f} points ({margin(lost, scale=100, digits=1)})"
    if lost.mean < 0:
        return [f"On earlier tasks it is now better than it ever was, by {points}."]
    sentence = f"On earlier tasks it has lost {points} from its best"
    if not math.isnan(lost.low) and lost.low <= 0:
        sentence += ", which these runs cannot tell from nothing"
    return [sentence + "."]


def _cost(entry: LearnerAudit) -> list[str]:
    parts = {"MS": "model size", "SSS": "stored samples", "CE": "computing"}
    known = [f"{words} {entry.measures[name].mean:.2f}" for name, words in parts.items() if _known(entry, name)]
    return [f"Cost, 1 being cheapest: {', '.join(known)}."] if known else []


def _reference(audit: Audit, entry: LearnerAudit) -> list[str]:
    if entry.is_reference:
        return ["It is a reference for the others, not a sequence: nothing can be forgotten."]
    peers = [one for one in audit.learners if one.is_reference and one.benchmark == entry.benchmark]
    return [
        f"For comparison, {one.learner} (all tasks at once) reaches {percent(one.measures['average_accuracy'].mean)}."
        for one in peers
    ]


def _reasons(audit: Audit, entry: LearnerAudit) -> Answer:
    if entry.is_reference:
        return Answer(QUESTIONS[1], missing="There is no earlier network to compare with.")
    results = [result for result in audit.stability if result.run in entry.runs]
    if not results:
        return Answer(QUESTIONS[1], missing="Not measured in this audit.", command="perdure audit RUNS --shapc")
    found, of = entry.measures["shapc_calibrated"], "run" if len(results) > 1 else "sample"
    if math.isnan(found.mean):
        return Answer(QUESTIONS[1], missing=f"Measured, but it cannot be read: {found.reason}.")
    plain = entry.measures["shapc_mean"]
    tasks = len(set(entry.curriculum))
    sentences = [
        f"After {tasks} tasks its reasons are {100 * found.mean:.0f} % of the way from chance to its own noise ceiling.",
        *_outcomes(results),
        *_retrained(results),
    ]
    if not all(result.budget_is_enough for result in results):
        limits = [result.limit.mean for result in results if not result.budget_is_enough]
        sentences.append(
            f"The maps still hold sampling noise: with a larger budget the number would be near {min(limits):.2f}"
            + (f" to {max(limits):.2f}." if f"{max(limits):.2f}" != f"{min(limits):.2f}" else ".")
        )
    return Answer(
        QUESTIONS[1],
        tuple(sentences),
        Number("calibrated SHAPC", f"{found.mean:.2f}", margin(found, digits=2, of=of), *ends(found)),
        (small("SHAPC-Mean", plain), small("SHAPC-Var", entry.measures["shapc_var"])),
    )


def _outcomes(results: Sequence[ShapcResult]) -> list[str]:
    """Tell the samples still right from the forgotten ones, where a single run has both; runs are not mixed."""
    if len(results) > 1:
        return []
    known = {name: value for name, value in results[0].outcomes.items() if not math.isnan(value.mean)}
    said = [f"{value.mean:.2f} over pairs {name} ({value.n})" for name, value in known.items()]
    return [f"SHAPC-Mean is {' and '.join(said)}."] if len(said) > 1 else []


def _retrained(results: Sequence[ShapcResult]) -> list[str]:
    known = [result.retraining.calibrated.mean for result in results if result.retraining is not None]
    if not known:
        return []
    ends = f"{min(known):.2f}" if len(known) == 1 else f"{min(known):.2f} to {max(known):.2f}"
    return [f"Networks trained from different seeds on the same task score {ends} against each other."]


def _blame(audit: Audit, entry: LearnerAudit) -> Answer:
    if entry.is_reference:
        return Answer(QUESTIONS[2], missing="It learns all tasks in one step, so there is no curve to explain.")
    found = [part for part in audit.latent if part.benchmark == entry.benchmark and entry.learner in part.algorithms]
    if not found:
        return Answer(QUESTIONS[2], missing="Not fitted in this audit.", command="perdure audit RUNS --clamp")
    part = found[0]
    place = part.algorithms.index(entry.learner)
    numbers = {name: _latent(part, name, place) for name in ("efficiency", "retention", "translation")}
    kept, efficiency = part.estimates["retention"][place], part.estimates["efficiency"][place]
    sentences = [
        f"A step leaves {100 * kept:.0f} % of what earlier steps had built up{_doubt(part, 'retention', place)}.",
        f"A visit teaches it {efficiency:.2f} times the average learner's gain{_doubt(part, 'efficiency', place)}.",
    ]
    return Answer(QUESTIONS[2], tuple(sentences), numbers["retention"], tuple(numbers.values())[::2])


def _doubt(part: LatentProperties, name: str, place: int) -> str:
    return "" if part.supported[name][place] else ", a number these data alone do not determine"


def _latent(part: LatentProperties, name: str, place: int) -> Number:
    value = float(part.estimates[name][place])
    low, high = (float(end) for end in part.intervals[name][place])
    ends = f"{low:.2f} to {'unbounded' if math.isinf(high) else f'{high:.2f}'}"
    return Number(name, f"{value:.2f}", f"95 % interval {ends}", *clipped(low, value, high))


def _known(entry: LearnerAudit, name: str) -> bool:
    return name in entry.measures and not math.isnan(entry.measures[name].mean)
