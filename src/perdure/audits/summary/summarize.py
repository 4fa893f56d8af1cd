"""Summarize an audit: judge each question for each learner by its interval, rank the learners, and say what is uncertain."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from perdure.audits.results import LEVEL, format_p
from perdure.audits.summary.explanations import (
    combined,
    explainer_of,
    freedom_from_bias,
    missing_interval,
    similarity_after_retraining,
)
from perdure.audits.summary.questions import CAUSES, PERFORMANCE, QUESTIONS, REASONS, RETRAINING, TRUST, Question
from perdure.audits.summary.results import (
    AuditSummary,
    LearnerSummary,
    QuestionVerdict,
    count_of,
    decided_questions,
    rating_key,
)
from perdure.audits.summary.text import (
    NUMBERS_ONLY,
    by_benchmark,
    can_be_measured,
    capitalized,
    clipped_score,
    contrasted_pairs,
    has_forgotten_most,
    join_names,
    measuring_command,
    not_measured_points,
    plain,
    summary_sentence,
)
from perdure.base.errors import InputError, error_suggestion
from perdure.metrics import METRICS, Interval, binomial_interval
from perdure.policies.verdicts import QuestionName, Thresholds, VerdictSettings, judge

if TYPE_CHECKING:
    from perdure.audits.clamp import LatentProperties
    from perdure.audits.results import Audit, LearnerAudit, TrustFindings

NOT_MEASURED = "not measured"
ONE_RUN = "one run, so there is no interval; the number of test examples is unknown"
DEFAULT_METHOD = "expected_gradients"
ONE_VISIT = (
    "every task was trained once, so only the assumptions of the fitted model separate forgetting from interference "
    "between tasks"
)


def summarize(audit: Audit, settings: VerdictSettings | None = None) -> AuditSummary:
    """Return the answer of an audit.

    Learners are ranked within each benchmark by average accuracy, or by the metric that ``settings`` name. Learners
    whose interval overlaps with that of the best one share its rank; the best of the others begins the next rank. Learners
    with the same rank are ordered by their verdicts on the other questions, then by the value. References that learn all tasks
    at once have no rank and come last.
    """
    settings = settings or VerdictSettings()
    _check_metrics(audit, settings)
    groups: dict[tuple[str, str], list[int]] = {}
    for index, entry in enumerate(audit.learners):
        groups.setdefault((entry.benchmark, entry.measure), []).append(index)
    learners = [learner for indices in groups.values() for learner in _ranked_group(audit, indices, settings)]
    return AuditSummary(
        summary_sentence(audit, learners),
        tuple(learners),
        uncertain_points(learners),
        caveats(audit, learners),
        (*shared_ranks(learners), *ranked_without_interval(learners)),
        not_measured_points(learners),
        settings,
    )


def _ranked_group(audit: Audit, indices: list[int], settings: VerdictSettings) -> list[LearnerSummary]:
    """Return the learners of one benchmark in ranked order, then its references."""
    sequences = [index for index in indices if not audit.learners[index].is_reference]
    references = [index for index in indices if audit.learners[index].is_reference]
    metric = _rank_metric(audit.learners[indices[0]], settings)
    higher = METRICS.get(metric).higher_is_better if metric in METRICS else True
    values = [metric_interval(audit.learners[index], metric)[0] for index in sequences]
    ranked = [
        (_learner(audit, index, rank, metric, settings), value)
        for index, rank, value in zip(sequences, ranks(values, higher), values, strict=True)
    ]
    groups: dict[int | None, list[LearnerSummary]] = {}
    for learner, _ in ranked:
        groups.setdefault(learner.rank, []).append(learner)
    decided = {rank: decided_questions(group) for rank, group in groups.items()}

    def key(pair: tuple[LearnerSummary, Interval]) -> tuple[Any, ...]:
        learner, value = pair
        worse = math.inf if math.isnan(value.mean) else -value.mean if higher else value.mean
        return learner.rank, rating_key(learner, decided[learner.rank]), worse, learner.index

    ordered = [learner for learner, _ in sorted(ranked, key=key)]
    return ordered + [_learner(audit, index, None, metric, settings) for index in references]


def ranks(values: Sequence[Interval], higher_is_better: bool) -> list[int]:
    """Return the rank of each value: values whose interval overlaps with that of the best one share its rank.

    The best of the remaining values begins the next rank, which counts all values before it: 1, 1, 3, 4, 4, 6. A value without
    an interval counts as an interval of length 0; missing values share the last rank.
    """
    sign = 1.0 if higher_is_better else -1.0
    ends = [sorted(sign * end for end in _ends(value)) for value in values]
    means = [-math.inf if math.isnan(value.mean) else sign * value.mean for value in values]
    remaining = sorted(range(len(values)), key=lambda index: -means[index])
    result = [0] * len(values)
    while remaining:
        rank, best = len(values) - len(remaining) + 1, remaining[0]
        shared = [index for index in remaining if ends[index][1] >= ends[best][0]]
        for index in shared:
            result[index] = rank
        remaining = [index for index in remaining if index not in shared]
    return result


def _ends(value: Interval) -> tuple[float, float]:
    if math.isnan(value.mean):
        return -math.inf, -math.inf
    if math.isnan(value.low) or math.isnan(value.high):
        return value.mean, value.mean
    return value.low, value.high


def _learner(audit: Audit, index: int, rank: int | None, metric: str, settings: VerdictSettings) -> LearnerSummary:
    entry = audit.learners[index]
    return LearnerSummary(
        learner=entry.learner,
        benchmark=entry.benchmark,
        rank=rank,
        verdicts=question_verdicts(audit, entry, settings),
        runs=len(entry.runs),
        index=index,
        title=entry.title,
        accuracy=entry.measures["average_accuracy"].mean if "average_accuracy" in entry.measures else math.nan,
        ranked_by=metric,
        rank_value=metric_interval(entry, metric)[0],
    )


def _rank_metric(entry: LearnerAudit, settings: VerdictSettings) -> str:
    """Return the metric of the ranking; losses and performances without a range are ranked by their average."""
    if entry.measure == "accuracy" or settings.rank_by.endswith(entry.measure):
        return settings.rank_by
    return f"average_{entry.measure}"


def _check_metrics(audit: Audit, settings: VerdictSettings) -> None:
    """Refuse a metric that no learner of the audit has."""
    known = {name for entry in audit.learners for name in entry.measures}
    for key, name in (("rank_by", settings.rank_by), ("metric", settings.metric)):
        if name not in known and name != VerdictSettings.rank_by:
            raise InputError(f"{key}: this audit has no {name}, {error_suggestion(name, sorted(known))}")


def question_verdicts(
    audit: Audit, entry: LearnerAudit, settings: VerdictSettings
) -> dict[QuestionName, QuestionVerdict]:
    """Return the verdicts on a learner, in the order of the questions."""
    measured: dict[QuestionName, QuestionVerdict] = {
        "performance": _performance(entry, settings),
        "reasons": _reasons(audit, entry, settings),
        "causes": _causes(audit, entry, settings),
        "trust": _trust(audit, entry, settings),
        "retraining": _retraining(audit, entry, settings),
    }
    return {question.name: measured[question.name] for question in QUESTIONS}


def metric_interval(entry: LearnerAudit, metric: str) -> tuple[Interval, str]:
    """Return a metric of a learner with its interval, and what the interval is over.

    It is over runs. The accuracy of a single run has an interval over test examples, if their number is known.
    """
    value = entry.measures.get(metric)
    if value is None:
        return missing_interval(f"this audit has no {metric} for it"), ""
    if len(entry.runs) > 1 or math.isnan(value.mean):
        return value, count_of(value.n, "run")
    if not math.isnan(value.low):
        return value, count_of(value.n, "example")
    if metric == "average_accuracy" and entry.test_examples:
        return accuracy_over_examples(entry), f"{sum(entry.test_examples)} test examples of one run"
    return replace(value, reason=ONE_RUN), "1 run"


def accuracy_over_examples(entry: LearnerAudit) -> Interval:
    """Return the average accuracy of a single run with an interval over test examples.

    Combines the exact intervals of the tasks, which have independent test examples (MOVER; Zou and Donner 2008). It does not
    cover the effect of training again with another seed.
    """
    tasks = range(len(entry.tasks)) if entry.is_reference else sorted(set(entry.curriculum))
    parts = []
    for task in tasks:
        examples = entry.test_examples[task]
        correct = float(np.clip(entry.table[-1, task], 0, 1)) * examples
        parts.append(binomial_interval(round(correct), examples))
    mean = entry.measures["average_accuracy"].mean
    below = math.hypot(*(part.mean - part.low for part in parts)) / len(parts)
    above = math.hypot(*(part.high - part.mean for part in parts)) / len(parts)
    examples = sum(part.n for part in parts)
    return Interval(mean, max(0.0, mean - below), min(1.0, mean + above), examples, "exact")


def _performance(entry: LearnerAudit, settings: VerdictSettings) -> QuestionVerdict:
    chosen = entry.measures.get(settings.metric)
    has_chosen = chosen is not None and not math.isnan(chosen.mean)
    metric = settings.metric if entry.measure == "accuracy" or has_chosen else f"average_{entry.measure}"
    thresholds = settings.thresholds["performance"] if metric == settings.metric else None
    value, basis = metric_interval(entry, metric)
    verdict = _judged(PERFORMANCE, value, thresholds, metric, basis)
    low, high = METRICS.get(metric).bounds if metric in METRICS else (0.0, 1.0)
    bounded = math.isfinite(low) and math.isfinite(high)
    note = _forgetting_note(entry) if metric == "average_accuracy" else ""
    if not bounded:
        return replace(verdict, positions=None, marks=(), is_percentage=False)
    better = METRICS.get(metric).higher_is_better if metric in METRICS else True
    return _placed(replace(verdict, note=note), (low, high) if better else (high, low))


def _forgetting_note(entry: LearnerAudit) -> str:
    value = entry.measures.get("forgetting")
    if entry.is_reference or value is None or math.isnan(value.mean):
        return ""
    points = 100 * value.mean
    if points < 0.5:
        return "forgets nothing"
    return f"forgets {points:.0f} point{'s' if round(points) != 1 else ''}"


def _reasons(audit: Audit, entry: LearnerAudit, settings: VerdictSettings) -> QuestionVerdict:
    if entry.is_reference:
        return QuestionVerdict(REASONS, "undefined", reason="there is no earlier network to compare with")
    results = [result for result in audit.shapc if result.run in entry.runs]
    if not results:
        return _not_measured(audit, entry, REASONS)
    value = entry.measures["shapc_calibrated"]
    basis = count_of(len(results), "run")
    if len(results) == 1:
        basis = runs_and_examples([results[0].seed], value.n)
    verdict = _placed(
        replace(
            _judged(REASONS, value, settings.thresholds["reasons"], "shapc_calibrated", basis),
            value=clipped_score(value),
            note=f"at {100 * entry.measures['average_accuracy'].mean:.0f} % accuracy",
        )
    )
    if not math.isnan(value.mean) and has_forgotten_most(entry):
        reason = "it has forgotten most of what it learned, so there are no reasons left to keep"
        return replace(verdict, rating="undefined", reason=reason)
    return verdict


def _causes(audit: Audit, entry: LearnerAudit, settings: VerdictSettings) -> QuestionVerdict:
    if entry.is_reference:
        return QuestionVerdict(CAUSES, "undefined", reason="it learns all tasks in one step, so there are no curves")
    if entry.measure != "accuracy":
        reason = f"CLAMP is fitted to accuracies, and these runs hold {entry.measure} values"
        return QuestionVerdict(CAUSES, "undefined", reason=reason)
    fits = [fit for fit in audit.clamp if fit.benchmark == entry.benchmark and entry.learner in fit.algorithms]
    if not fits:
        return _not_measured(audit, entry, CAUSES)
    fit = fits[0]
    index = fit.algorithms.index(entry.learner)
    low, high = (float(end) for end in fit.intervals["retention"][index])
    value = Interval(float(fit.estimates["retention"][index]), low, high, len(entry.runs), "bootstrap")
    verdict = _placed(_judged(CAUSES, value, settings.thresholds["causes"], "retention", "the curves of all learners"))
    if not fit.supported["retention"][index] and verdict.rating != "undefined":
        return replace(verdict, rating="undecided", reason="the curves do not determine it")
    return verdict


def _trust(audit: Audit, entry: LearnerAudit, settings: VerdictSettings) -> QuestionVerdict:
    measured = [findings for findings in _findings(audit, entry) if findings.bias is not None]
    results = [findings.bias for findings in measured if findings.bias is not None]
    if not results:
        return _not_measured(audit, entry, TRUST)
    if results[0].verdict is None:
        return _judged(TRUST, missing_interval("no explainer could be ranked"), None, "bias_relative", "")
    ranked = [explainer.method for explainer in results[0].explainers if explainer.ranked]
    method = explainer_of(_shapc_method(audit, entry), ranked, results[0].verdict.least)
    value = combined(
        [
            freedom_from_bias(result, method)
            for result in results
            if method in {explainer.method for explainer in result.explainers}
        ]
    )
    basis = runs_and_examples([findings.seed for findings in measured], value.n)
    verdict = _judged(TRUST, value, settings.thresholds["trust"], "bias_relative", basis)
    return _placed(replace(verdict, note=method))


def _retraining(audit: Audit, entry: LearnerAudit, settings: VerdictSettings) -> QuestionVerdict:
    measured = [findings for findings in _findings(audit, entry) if findings.retraining is not None]
    summaries = [findings.retraining for findings in measured if findings.retraining is not None]
    if not summaries:
        return _not_measured(audit, entry, RETRAINING)
    methods = summaries[0].explainers
    if not methods:
        return _judged(RETRAINING, missing_interval("no explainer was measured"), None, "mege_relative", "")
    method = explainer_of(_shapc_method(audit, entry), methods, methods[0])
    value = combined(
        [similarity_after_retraining(summary, method) for summary in summaries if method in summary.methods]
    )
    basis = runs_and_examples([findings.seed for findings in measured], value.n)
    verdict = _judged(RETRAINING, value, settings.thresholds["retraining"], "mege_relative", basis)
    return _placed(replace(verdict, note=method))


def runs_and_examples(seeds: Sequence[int | None], examples: int) -> str:
    """Return on what a number was measured: "one run (seed 0), 20 examples"."""
    known = [str(seed) for seed in seeds if seed is not None]
    listed = f" (seed{'s' if len(known) != 1 else ''} {', '.join(known)})" if known else ""
    runs = "one run" if len(seeds) == 1 else count_of(len(seeds), "run")
    return f"{runs}{listed}, {count_of(examples, 'example')}"


def _not_measured(audit: Audit, entry: LearnerAudit, question: Question) -> QuestionVerdict:
    is_possible = can_be_measured(audit, entry, question)
    command = measuring_command(audit, question, entry) if is_possible else question.command
    reason = NOT_MEASURED if is_possible else NUMBERS_ONLY
    return QuestionVerdict(question, "not measured", reason=reason, command=command)


def _findings(audit: Audit, entry: LearnerAudit) -> Sequence[TrustFindings]:
    return [findings for findings in audit.trust if findings.run in entry.runs]


def _shapc_method(audit: Audit, entry: LearnerAudit) -> str:
    """Return the explainer behind the score on reasons."""
    return next(
        (str(result.settings.get("method")) for result in audit.shapc if result.run in entry.runs), DEFAULT_METHOD
    )


def _judged(
    question: Question, value: Interval, thresholds: Thresholds | None, metric: str, basis: str
) -> QuestionVerdict:
    judgement = judge(value, thresholds)
    return QuestionVerdict(
        question, judgement.rating, value, metric, thresholds=thresholds, basis=basis, reason=judgement.reason
    )


def _placed(verdict: QuestionVerdict, scale: tuple[float, float] = (0.0, 1.0)) -> QuestionVerdict:
    """Return a verdict with the positions of its number and thresholds on a scale from the worst to the best value."""
    if verdict.value is None or math.isnan(verdict.value.mean):
        return verdict
    position = _position(scale)
    ends = sorted(position(end) for end in (verdict.value.low, verdict.value.high))
    marks = () if verdict.thresholds is None else (position(verdict.thresholds.bad), position(verdict.thresholds.good))
    return replace(verdict, positions=(ends[0], position(verdict.value.mean), ends[1]), marks=marks)


def _position(scale: tuple[float, float]) -> Callable[[float], float]:
    worst, best = scale
    return lambda value: math.nan if math.isnan(value) else min(1.0, max(0.0, (value - worst) / (best - worst)))


def uncertain_points(learners: Sequence[LearnerSummary]) -> tuple[tuple[str, str], ...]:
    """Return what is undecided, for each question and reason: the question with the learners, and the reason."""
    found: dict[tuple[str, str], list[str]] = {}
    for question in QUESTIONS:
        for learner in learners:
            verdict = learner[question.name]
            if verdict.rating == "undecided" and not learner.is_reference:
                found.setdefault((question.short, verdict.reason), []).append(learner.title)
    return tuple((f"{short} of {join_names(names)}", reason) for (short, reason), names in found.items())


def caveats(audit: Audit, learners: Sequence[LearnerSummary]) -> tuple[str, ...]:
    """Return what limits the sentence and decided verdicts: untested contrasts of reasons, and fits to single visits."""
    lines = [_contrast(audit, best, other) for best, other in contrasted_pairs(learners)]
    single = [fit for fit in audit.clamp if visits_each_task_once(fit)]
    if single:
        part = f" on {join_names([fit.benchmark for fit in single])}" if len(single) < len(audit.clamp) else ""
        lines.append(f"{CAUSES.short}{part}: {ONE_VISIT}.")
    return tuple(line for line in lines if line)


def _contrast(audit: Audit, best: LearnerSummary, other: LearnerSummary) -> str:
    """Return a sentence if the reasons of two learners do not differ significantly; empty if they do."""
    pairs = [pair for pair in audit.differences if pair.measure == "shapc_calibrated"]
    names = {best.learner, other.learner}
    tests = [pair for pair in pairs if {pair.first, pair.second} == names and pair.benchmark == best.benchmark]
    what = f"{REASONS.short} of {join_names([best.title, other.title])}"
    if not tests:
        return f"{what}: their verdicts differ, but the difference of their scores was not tested."
    if tests[0].p < LEVEL:
        return ""
    count = f", corrected for {len(pairs)} pairs of learners" if len(pairs) > 1 else ""
    p_value = f"{format_p(tests[0].p)}{count}"
    return f"{what}: their verdicts differ, but the difference of their scores is not significant ({p_value})."


def visits_each_task_once(fit: LatentProperties) -> bool:
    """Return whether no curriculum of a fit trains a task again."""
    return all(len(set(block.curriculum)) == len(block.curriculum) for block in fit.curves)


def shared_ranks(learners: Sequence[LearnerSummary]) -> tuple[str, ...]:
    """Return a sentence for each rank that several learners share, and why they share it."""
    lines = []
    groups = by_benchmark(learners)
    for benchmark, group in groups.items():
        ranks = dict.fromkeys(learner.rank for learner in group if learner.rank is not None)
        for rank in ranks:
            members = [learner for learner in group if learner.rank == rank]
            if len(members) > 1:
                where = f" on {plain(benchmark)}" if len(groups) > 1 else ""
                names = join_names([learner.title for learner in members])
                lines.append(f"Rank {rank}{where} is shared by {names}: {_why_shared(members)}.")
    return tuple(lines)


def _why_shared(members: Sequence[LearnerSummary]) -> str:
    """Return why learners share a rank: intervals that overlap with that of the best one, or values within intervals."""
    values = [_rank_value(learner) for learner in members]
    if all(math.isnan(value.mean) for value in values):
        return "they have no value"
    best = members[_best(members)]
    others = [learner for learner in members if learner is not best]
    if not _has_interval(best):
        including = [learner.title for learner in others if _has_interval(learner)]
        if not including:
            return "their values are equal"
        return f"{_without_interval([best])}; its value lies within {_intervals_of(including)}"
    overlapping = [learner.title for learner in others if _has_interval(learner)]
    parts = []
    if overlapping:
        parts.append("their intervals overlap" if len(members) == 2 else _overlap(overlapping, best, len(others)))
    single = [learner for learner in others if not _has_interval(learner)]
    if single:
        verb = "its value lies" if len(single) == 1 else "their values lie"
        parts.append(f"{_without_interval(single)}; {verb} within the interval of {plain(best.title)}")
    return "; ".join(parts)


def _overlap(names: Sequence[str], best: LearnerSummary, others: int) -> str:
    whose = "the other intervals" if len(names) == others else _intervals_of(names)
    return f"{whose} {'overlaps' if len(names) == 1 else 'overlap'} with that of {plain(best.title)}"


def _intervals_of(names: Sequence[str]) -> str:
    return f"the interval{'s' if len(names) != 1 else ''} of {join_names(names)}"


def ranked_without_interval(learners: Sequence[LearnerSummary]) -> tuple[str, ...]:
    """Return a sentence on the learners of a benchmark that are ranked by their values alone, if there are several."""
    lines = []
    for group in by_benchmark(learners).values():
        ranked = [
            learner for learner in group if not learner.is_reference and not math.isnan(_rank_value(learner).mean)
        ]
        without = [learner for learner in ranked if not _has_interval(learner)]
        if len(without) > 1:
            text = (
                f"{_without_interval(without)}, so they are ranked by value, and their order can change with more runs."
            )
            lines.append(capitalized(text))
    return tuple(lines)


def _without_interval(learners: Sequence[LearnerSummary]) -> str:
    names = join_names([learner.title for learner in learners])
    verb, each = ("has", "") if len(learners) == 1 else ("have", " each")
    runs = f"one run{each} and " if all(learner.runs == 1 for learner in learners) else ""
    return f"{names} {verb} {runs}no interval"


def _best(learners: Sequence[LearnerSummary]) -> int:
    """Return the position of the best value."""
    sign = 1.0 if learners[0].higher_is_better else -1.0
    means = [_rank_value(learner).mean for learner in learners]
    return max(range(len(learners)), key=lambda index: -math.inf if math.isnan(means[index]) else sign * means[index])


def _rank_value(learner: LearnerSummary) -> Interval:
    return learner.rank_value or Interval(math.nan, math.nan, math.nan, 0, "none")


def _has_interval(learner: LearnerSummary) -> bool:
    value = _rank_value(learner)
    return not (math.isnan(value.low) or math.isnan(value.high))
