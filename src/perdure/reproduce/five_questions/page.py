"""The page of the five-question study."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from perdure.audits import LatentProperties, fit_clamp
from perdure.figures import save
from perdure.metrics import Interval, SpearmanCorrelation
from perdure.reproduce.five_questions.analysis import ANSWERS, FiveAnswers, LearnerAnswers, RankGap, analyze
from perdure.reproduce.five_questions.figure import five_questions_figure
from perdure.reproduce.five_questions.studies import EXPLAINED_PER_TASK, STUDIES, examine_five_questions
from perdure.reproduce.formatting import format_markdown_table
from perdure.reproduce.learners.run_rows import (
    FinishedStudy,
    RowsTarget,
    audit_of_rows,
    chosen_settings_sentence,
    measurements_of_rows,
    study_provenance,
)
from perdure.reproduce.learners.study import learner_study_cell, study_protocol_sentence, write_learner_study_page

INTRODUCTION = """\
# Do the five questions have the same answer?

Seventeen sequential learners, and joint training as a reference, are compared by every question that perdure asks:
accuracy and forgetting, whether the reasons for decisions stay the same (calibrated SHAPC), what the learner retains
(CLAMP), which explainer is least biased, and whether explanations are the same for networks trained from other seeds (MeGe
and ReCo). Created by `perdure reproduce five-questions --data-dir DATA`, which continues from finished runs.

All learners have the same number of tuning trials on validation data. Numbers are means over seeds with 95 % Student t
intervals (half-widths after ±); those of MeGe and ReCo are over examples, that of retention is of the CLAMP fit. In
correlations, forgetting, cost and bias count negatively, so that a positive correlation always means that two answers
agree. Intervals of correlations treat the learners as a sample, and there are only seventeen: correlations below about .5
cannot be distinguished from none. They are not corrected for the number of pairs: about one in twenty excludes 0 by
chance. Cost is the number of multiply-adds of training, *least bias* the bias of the explainer
that has the lowest. Cumulative trains a new network for every task, so its reasons change as those of two networks from
other seeds do. [How the numbers are read](../report.md).
"""
SMALLEST_GAP = 2
"""Difference of ranks from which a learner is named."""
WORDS = {"SHAPC": "calibrated SHAPC", "accuracy": "accuracy", "forgetting so far": "forgetting so far"}


def write_five_questions_page(
    finished: Sequence[FinishedStudy],
    page: Path,
    data_dir: Path | None = None,  # noqa: ARG001
) -> None:
    """Write the page from some studies; sections of other studies on an existing page are kept."""
    sections = [five_questions_section(entry, page.parent) for entry in finished]
    earlier = page.read_text(encoding="utf-8") if page.exists() else ""
    text = earlier + "".join(sections)
    missing = [study.title for study in STUDIES.values() if f"## {study.title}\n" not in text]
    intro = INTRODUCTION.split("\n")
    if missing:
        intro = [*intro[:-1], "", f"Not finished yet: {', '.join(missing)}.", ""]
    write_learner_study_page(intro, sections, [study.title for study in STUDIES.values()], page)


def five_questions_section(finished: FinishedStudy, pictures: Path) -> str:
    """Return a study's section in Markdown, and save its figure."""
    study = finished.study
    clamp = _clamp_fit(finished)
    results = analyze(finished.rows, clamp)
    picture = f"five-questions-{study.name}.png"
    save(five_questions_figure(results), pictures / picture)
    absent = [name for name in study.learners if name not in {entry.learner for entry in results.audit.learners}]
    parts = [
        f"## {study.title}",
        study_provenance(finished.rows),
        f"{study_protocol_sentence(study)} {EXPLAINED_PER_TASK} examples of each task are explained for SHAPC.",
        *([f"Not finished: {', '.join(f'`{name}`' for name in absent)}."] if absent else []),
        "\n".join(f"- **{question}** {answer}" for question, answer in _findings(results)),
        f"![Correlation of the answers, SHAPC against accuracy, prediction of forgetting]({picture})",
        "Every answer of every learner, the most accurate first:",
        _answers_table(results),
        _retention_note(results),
        _constant_networks_note(results),
        _correlation_table(results),
        _budget_sentence(results),
        chosen_settings_sentence(finished.rows),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _clamp_fit(finished: FinishedStudy) -> LatentProperties | None:
    """Return the CLAMP fit of the sequential learners; None if fewer than two are finished."""
    audit = audit_of_rows(finished.rows)
    sequential = {entry.learner for entry in audit.learners if not entry.is_reference}
    if len(sequential) < 2:
        return None
    runs = [run for run in measurements_of_rows(finished.rows) if run.learner in sequential]
    return fit_clamp(runs)[0]


def _findings(results: FiveAnswers) -> list[tuple[str, str]]:
    """Return the questions of the study with their answers in sentences."""
    findings = [
        ("Which answers agree?", _agreeing(results)),
        ("Which agree beyond what accuracy explains?", _agreeing_given_accuracy(results)),
        ("Who keeps its accuracy but changes its reasons?", _gap_sentence(results.gaps, kept=True)),
        ("Who keeps its reasons better than its accuracy?", _gap_sentence(results.gaps, kept=False)),
        ("Does SHAPC after the third task predict forgetting after the last?", _prediction_sentence(results)),
        ("Which explainer is least biased?", _explainer_sentence(results)),
    ]
    return [(question, answer) for question, answer in findings if answer]


def _pair(first: str, second: str) -> str:
    labels = {answer.name: answer.label for answer in ANSWERS}
    return f"{labels[first]} and {labels[second]}"


def _agreeing(results: FiveAnswers) -> str:
    if not results.correlation:
        return ""
    known = sorted(results.correlation.items(), key=lambda item: -item[1].rho)
    agree = [(pair, value) for pair, value in known if value.low > 0]
    oppose = [(pair, value) for pair, value in known if value.high < 0]
    text = f"{len(agree)} of {len(known)} pairs are positively correlated"
    text += f", most of all {_list(agree[:3])}" if agree else ""
    text += f"; {len(oppose)} negatively: {_list(oppose[::-1][:3])}" if oppose else "; none negatively"
    return f"{text}. The interval of the other {len(known) - len(agree) - len(oppose)} includes 0."


def _list(pairs: Sequence[tuple[tuple[str, str], SpearmanCorrelation]]) -> str:
    return ", ".join(f"{_pair(*pair)} {value}" for pair, value in pairs)


def _agreeing_given_accuracy(results: FiveAnswers) -> str:
    if not results.partial:
        return ""
    known = sorted(results.partial.items(), key=lambda item: -abs(item[1].rho))
    sure = [(pair, value) for pair, value in known if value.low > 0 or value.high < 0]
    if not sure:
        return f"None of {len(known)} pairs: given accuracy, every interval includes 0."
    return f"{len(sure)} of {len(known)} pairs have a partial correlation whose interval excludes 0: {_list(sure)}."


def _gap_sentence(gaps: Sequence[RankGap], *, kept: bool) -> str:
    """Return the learners whose ranks differ by at least two; accuracy is kept by the more accurate half only."""
    if not gaps:
        return ""
    if kept:
        accurate = (len(gaps) + 1) / 2
        sure = [gap for gap in gaps if gap.high < 0 and gap.gap <= -SMALLEST_GAP and gap.by_accuracy <= accurate]
    else:
        sure = [gap for gap in gaps if gap.low > 0 and gap.gap >= SMALLEST_GAP]
    if not sure:
        return (
            f"No learner: no difference of the two ranks is at least {SMALLEST_GAP} with an interval that excludes 0."
        )
    ordered = sure if kept else sure[::-1]
    listing = "; ".join(
        f"`{gap.learner}`, rank {gap.by_accuracy:g} by accuracy and {gap.by_shapc:g} by calibrated SHAPC (difference "
        f"{gap.gap:+g} [{gap.low:+g}, {gap.high:+g}])"
        for gap in ordered
    )
    return f"{listing}."


def _prediction_sentence(results: FiveAnswers) -> str:
    prediction = results.prediction
    if prediction is None:
        return ""
    listing = ", ".join(
        f"{WORDS[name]} {prediction.over_learners[name]} (over single runs {prediction.over_runs[name]:+.3f})"
        for name in prediction.predictors
    )
    advantage = prediction.advantage
    verdict = (
        "better than"
        if advantage.low > 0
        else "worse than"
        if advantage.high < 0
        else "not distinguishably better than"
    )
    return (
        f"It predicts it {verdict} accuracy after the third task. Rank correlation over learners with the final forgetting: "
        f"{listing}. The difference of the magnitudes for SHAPC and accuracy is {advantage.mean:+.3f} "
        f"[{advantage.low:+.3f}, {advantage.high:+.3f}]."
    )


def _explainer_sentence(results: FiveAnswers) -> str:
    counts: dict[str, int] = {}
    for entry in results.learners:
        for method, count in entry.least_biased:
            counts[method] = counts.get(method, 0) + count
    total = sum(counts.values())
    ordered = sorted(counts.items(), key=lambda pair: -pair[1])
    return (
        f"{', '.join(f'`{method}` on {count}' for method, count in ordered)} of {total} final networks."
        if total
        else ""
    )


def _answers_table(results: FiveAnswers) -> str:
    ordered = sorted(results.learners, key=lambda entry: -entry.values["accuracy"].mean)
    spent = next(
        (e.values["cost"].mean for e in results.learners if e.learner == "naive"), ordered[0].values["cost"].mean
    )
    entries = [*ordered, *([results.reference] if results.reference is not None else [])]
    header = ["learner", *(answer.label for answer in ANSWERS if answer.name != "cost"), "least biased", "cost / naive"]
    return format_markdown_table(header, [_answers_row(entry, spent) for entry in entries])


def _answers_row(entry: LearnerAnswers, spent: float) -> list[str]:
    cells = []
    for answer in ANSWERS:
        if answer.name == "cost":
            continue
        value = entry.values.get(answer.name)
        mark = "*" if answer.name == "retention" and value is not None and not entry.retention_is_supported else ""
        cells.append("–" if value is None else _cell(value) + mark)
    methods = ", ".join(f"`{method}` {count}" for method, count in entry.least_biased[:2])
    return [f"`{entry.learner}`", *cells, methods, f"{entry.values['cost'].mean / spent:.2f}"]


def _cell(value: Interval) -> str:
    return learner_study_cell(value) if value.mean == value.mean else "–"


def _constant_networks_note(results: FiveAnswers) -> str:
    """Return which runs ended with a network that ignores its input, and what is missing for them."""
    counts = [
        f"{entry.runs_without_bias} of {len(entry.runs['accuracy'])} runs of `{entry.learner}`"
        for entry in results.learners
        if entry.runs_without_bias
    ]
    if not counts:
        return ""
    return (
        f"In {', '.join(counts)}, the gradients of the final network are 0 at all explained inputs, because its features are "
        "inactive. These runs have no bias, and their SHAPC leaves out the pairs with such a network."
    )


def _retention_note(results: FiveAnswers) -> str:
    if all(entry.retention_is_supported for entry in results.learners if "retention" in entry.values):
        return ""
    return "A * marks a retention that the data alone do not determine. A dash: not defined for this learner."


def _correlation_table(results: FiveAnswers) -> str:
    rows = []
    for (first, second), value in sorted(results.correlation.items(), key=lambda item: -item[1].rho):
        partial = results.partial.get((first, second))
        rows.append(
            [_pair(first, second), str(value), "–" if partial is None or partial.rho != partial.rho else str(partial)]
        )
    if not rows:
        return ""
    reasons = sorted(set(results.undefined.values()))
    note = f"\n\n{len(results.undefined)} correlations are undefined ({'; '.join(reasons)})." if reasons else ""
    table = format_markdown_table(["answers", "Spearman's correlation", "given accuracy"], rows)
    return (
        f"Rank correlations over the {len(results.learners)} sequential learners, with 95 % intervals:\n\n{table}{note}"
    )


def _budget_sentence(results: FiveAnswers) -> str:
    runs = results.audit.shapc
    enough = sum(result.budget_is_enough for result in runs)
    return (
        f"By the audit's own check, the number of samples per map was sufficient in {enough} of {len(runs)} runs."
        if runs
        else ""
    )


TARGET = RowsTarget(
    studies=STUDIES,
    default=tuple(STUDIES),
    write_page=write_five_questions_page,
    page=Path("docs/results/five-questions.md"),
    examine=examine_five_questions,
)
