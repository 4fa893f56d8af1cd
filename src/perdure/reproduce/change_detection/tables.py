"""Tables and paragraphs of the page, in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.metrics import Interval
from perdure.reproduce.change_detection.data_sets import EXAMPLES, DataSet
from perdure.reproduce.change_detection.planted_changes import CHANGES, HARMLESS
from perdure.reproduce.change_detection.rates import FALSE_ALARMS
from perdure.reproduce.change_detection.results import DataSetResult, MethodResult
from perdure.reproduce.change_detection.study import OURS
from perdure.reproduce.change_detection.summary import (
    FEWEST_TRIALS,
    LARGEST_FALSE_ALARM_RATE,
    UNCHANGED,
    Contest,
    compared_methods,
    contests,
    default_power,
    fair_power,
    false_alarms,
    method_label,
    stronger_alternatives,
)
from perdure.reproduce.change_detection.trials import OTHER_REFERENCES, REFERENCES
from perdure.reproduce.formatting import format_markdown_table, format_paragraph

_CUES = {
    "brightness": "the brightness of a corner pixel (A: upper left, B: lower left)",
    "position": "the position of a white square in a black strip (A: along the upper edge, B: along the lower edge)",
    "column": "the value of an additional column (A and B)",
}


def rate_cell(value: Interval) -> str:
    """Return a rate with its interval."""
    return f"{value.mean:.3f} [{value.low:.2f}, {value.high:.2f}]"


def false_alarm_table(results: Sequence[DataSetResult]) -> str:
    """Return the false-alarm rates of all methods at their default thresholds: overall and for each data set."""
    labels = dict.fromkeys(method_label(method) for result in results for method in compared_methods(result))
    rows = []
    for label in labels:
        by_data_set = {result.title: _labelled(result, label) for result in results}
        run = [method for method in by_data_set.values() if method is not None]
        trials = sum(method.harmless.alarms.size for method in run)
        cells = ["–" if method is None else rate_cell(false_alarms([method])) for method in by_data_set.values()]
        rows.append([label, f"{trials:,}", rate_cell(false_alarms(run)), *cells])
    return format_markdown_table(["method", "pairs", "false alarms", *(result.title for result in results)], rows)


def false_alarm_verdict(results: Sequence[DataSetResult]) -> str:
    """Return whether our test meets the target for false alarms."""
    ours = [method for result in results if (method := result.method(OURS, EXAMPLES, REFERENCES)) is not None]
    trials = sum(method.harmless.alarms.size for method in ours)
    models = sum(len(result.accuracy[HARMLESS]) for result in results)
    rate = false_alarms(ours)
    met = rate.mean <= LARGEST_FALSE_ALARM_RATE and trials >= FEWEST_TRIALS
    return format_paragraph(
        f"**False alarms.** At the nominal level of 5 %, our test raises {100 * rate.mean:.1f} % false alarms",
        f"[{100 * rate.low:.1f}, {100 * rate.high:.1f}] over {trials:,} harmless pairs, which are made of {models} models.",
        f"Target: at most {100 * LARGEST_FALSE_ALARM_RATE:.0f} % over at least {FEWEST_TRIALS} pairs:",
        f"{'met' if met else 'missed'}.",
        *(
            ["The interval lies above the nominal 5 %: the test raises too many false alarms."]
            if rate.low > FALSE_ALARMS
            else []
        ),
        *_exceeding(results),
    )


def _exceeding(results: Sequence[DataSetResult]) -> list[str]:
    """Return a sentence that lists the data sets on which our test exceeds the target by itself."""
    rates = {
        result.title: float(method.harmless.alarms.mean())
        for result in results
        if (method := result.method(OURS, EXAMPLES, REFERENCES)) is not None
    }
    above = [f"{title} ({100 * rate:.1f} %)" for title, rate in rates.items() if rate > LARGEST_FALSE_ALARM_RATE]
    limit = f"{100 * LARGEST_FALSE_ALARM_RATE:.0f} %"
    return [f"Above {limit} on single data sets: {', '.join(above)}."] if above else []


def contest_table(results: Sequence[DataSetResult]) -> str:
    """Return our test against the best alternative for every change, with the accuracies."""
    header = ["data set", "change", "accuracy OLD", "NEW", "unchanged", "examples", "our power at p < .05"]
    header += ["best alternative, default", "our power, equal rate", "best alternative, equal rate", "which", "target"]
    return format_markdown_table(header, [_contest_row(row) for result in results for row in contests(result)])


def _contest_row(row: Contest) -> list[str]:
    target = ("met" if row.meets_target else "**missed**") if row.accuracy_unchanged else "–"
    return [
        row.data_set,
        row.kind,
        f"{row.old_accuracy:.3f}",
        f"{row.new_accuracy:.3f}",
        "yes" if row.accuracy_unchanged else "no",
        str(row.examples),
        rate_cell(row.ours_default),
        f"{row.best_default:.3f}",
        rate_cell(row.ours),
        rate_cell(row.best),
        row.best_method.split(",")[0],
        target,
    ]


def power_verdict(results: Sequence[DataSetResult]) -> str:
    """Return how many changes at unchanged accuracy meet the target, and which miss it."""
    rows = [row for result in results for row in contests(result) if row.accuracy_unchanged]
    sizes = sorted({row.examples for row in rows})
    sentences = [_targets_met([row for row in rows if row.examples == size]) for size in sizes]
    return format_paragraph(
        f"**Power.** Changes that leave the accuracy unchanged (mean difference below {UNCHANGED:g}) should be detected with a",
        "power of at least .95, or at least .2 above the best alternative, all at a false-alarm rate of 5 %.",
        *sentences,
        *_undetected(results),
    )


def _undetected(results: Sequence[DataSetResult]) -> list[str]:
    """Return a sentence for each data set on which no method detects half of the changes of any kind."""
    return [
        f"On {result.title}, no method detects half of the changes of any kind, so it does not separate the methods."
        for result in results
        if max(fair_power(method, kind).mean for method in compared_methods(result) for kind in CHANGES) < 0.5
    ]


def _targets_met(rows: Sequence[Contest]) -> str:
    """Return how many changes meet the target, those that do not, and the comparison at default thresholds."""
    missed = [
        f"{row.data_set}, {row.kind} ({row.ours.mean:.2f} against {row.best.mean:.2f})"
        for row in rows
        if not row.meets_target
    ]
    met = f"{len(rows) - len(missed)} of {len(rows)} such changes meet the target"
    any_size = sum(row.meets_target_with_any_size for row in rows)
    usable = [row for row in rows if row.ours_usable]
    default = sum(row.ours_default.mean > row.best_default for row in usable)
    return format_paragraph(
        f"With {rows[0].examples} examples for every method, {met}"
        + (f"; missed: {'; '.join(missed)}." if missed else "."),
        f"Against the best alternative with any number of examples, {any_size} of {len(rows)} do.",
        "At default thresholds, on data sets where our test has at most 7 % false alarms, it detects more than every",
        f"alternative with at most 7 % in {default} of {len(usable)}.",
    )


def reference_table(results: Sequence[DataSetResult]) -> str:
    """Return our test with other numbers of references, at p < .05."""
    rows = []
    for count in sorted((REFERENCES, *OTHER_REFERENCES)):
        for result in results:
            method = result.method(OURS, EXAMPLES, count)
            if method is not None:
                powers = [rate_cell(default_power(method, kind)) for kind in CHANGES]
                rows.append([str(count), result.title, rate_cell(false_alarms([method])), *powers])
    return format_markdown_table(["references", "data set", "false alarms", *CHANGES], rows)


def data_set_section(data_set: DataSet, result: DataSetResult) -> str:
    """Return a data set's section without its heading."""
    kinds = (HARMLESS, *CHANGES)
    accuracy = [
        [
            kind,
            len(result.accuracy[kind]),
            f"{result.accuracy[kind].mean():.4f}",
            f"{result.accuracy[kind].std(ddof=1):.4f}",
        ]
        for kind in kinds
    ]
    methods = compared_methods(result)
    default = [
        [method_label(method), *(rate_cell(default_power(method, kind)) for kind in CHANGES)] for method in methods
    ]
    fair = [[method_label(method), *(rate_cell(fair_power(method, kind)) for kind in CHANGES)] for method in methods]
    parts = [
        str(result.provenance),
        describe_data_set(data_set),
        format_markdown_table(["models", "number", "mean accuracy", "standard deviation"], accuracy),
        "Changes detected at each method's default threshold. High values mean little where the false-alarm rate is high:",
        format_markdown_table(["method", *CHANGES], default),
        f"Changes detected at a false-alarm rate of {100 * FALSE_ALARMS:.0f} % on this data set, for every method:",
        format_markdown_table(["method", *CHANGES], fair),
        *([_not_run(result)] if result.not_run else []),
    ]
    return "\n\n".join(parts)


def describe_data_set(data_set: DataSet) -> str:
    """Return the data, the network, its training and the sizes of the planted changes."""
    plan, cues = data_set.plan, data_set.plan.cues
    amount = (
        "all training examples" if data_set.per_class is None else f"{data_set.per_class} training examples per class"
    )
    return format_paragraph(
        f"{amount.capitalize()}, {data_set.test_examples:,} test examples; `{data_set.network}` of width {data_set.width},",
        f"Adam, {data_set.epochs} epochs, batch size {data_set.batch_size}, learning rate {data_set.lr:g}.",
        f"Cues: {_CUES[cues.style]}. An informative cue shows the class in {100 * cues.share:.0f} % of the training examples",
        f"and a random class in the others; in the test set both cues show it in {100 * cues.test_share:.0f} %.",
        f"Dropped feature: {plan.dropped_text}. Mixed-up classes: {100 * plan.mixed_share:.0f} % of the labels of the classes",
        f"{plan.mixed[0]} and {plan.mixed[1]} (numbered from 0) are swapped.",
    )


def _not_run(result: DataSetResult) -> str:
    return " ".join(f"Not run: {title} ({reason})." for title, reason in result.not_run.items())


def alternatives_paragraph(results: Sequence[DataSetResult]) -> str:
    """Return where an alternative has a higher power than our test with its default settings."""
    lines = []
    for result in results:
        by_kind: dict[str, list[str]] = {}
        for kind, label, power, own in stronger_alternatives(result):
            by_kind.setdefault(f"{kind} (ours {own.mean:.2f})", []).append(f"{label} {power.mean:.2f}")
        lines += [f"- {result.title}, {kind}: {', '.join(methods)}." for kind, methods in by_kind.items()]
    if not lines:
        return "No alternative has a higher power than our test on any data set and kind of change."
    intro = format_paragraph(
        f"Power at a false-alarm rate of {100 * FALSE_ALARMS:.0f} %, where an alternative exceeds our test with its default",
        f"settings ({EXAMPLES} examples, {REFERENCES} references). This rate requires a threshold from many retrained models,",
        "which the alternatives do not provide; at their default thresholds see the table of false alarms.",
    )
    return "\n".join([intro, "", *lines])


def _labelled(result: DataSetResult, label: str) -> MethodResult | None:
    return next((method for method in compared_methods(result) if method_label(method) == label), None)
