"""The page of the experiment of more-than-forgetting: criteria, scores, their correlation, accuracy surfaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np

from perdure.audits import Audit, LearnerAudit
from perdure.figures import accuracy_differences_to, accuracy_lines, save
from perdure.metrics import CRITERIA, score_criteria_correlation, score_first_places
from perdure.reproduce.formatting import format_markdown_table
from perdure.reproduce.learners.run_rows import (
    FinishedStudy,
    RowsTarget,
    audit_of_rows,
    chosen_settings_sentence,
    study_provenance,
)
from perdure.reproduce.learners.study import (
    learner_study_cell,
    study_protocol_sentence,
    write_learner_study_page,
)
from perdure.reproduce.more_than_forgetting.studies import STUDIES, paper_scale

WEIGHTINGS = ("W1", "W2", "W3")
PAPER: Mapping[str, tuple[float, ...]] = {
    "naive": (0.3825, 1.0, 1.0, 0.4492, 0.0, 0.6664, 0.1),
    "cumulative": (0.7225, 1.0, 0.55, 0.1496, 0.0673, 1.0, 0.1),
    "ewc": (0.5940, 0.4, 1.0, 0.3495, 0.0, 0.9821, 0.1),
    "lwf": (0.5278, 1.0, 1.0, 0.4429, 0.0, 0.9667, 0.1),
    "si": (0.5795, 0.4, 1.0, 0.3613, 0.0, 0.9620, 0.1),
}
"""The criteria that the paper prints for ten tasks of CIFAR-100, in the order of `CRITERIA`."""
PAPER_SCORES: Mapping[str, tuple[float, ...]] = {
    "naive": (0.5140, 0.5529, 0.5312),
    "cumulative": (0.5128, 0.6223, 0.5373),
    "ewc": (0.4894, 0.6449, 0.5816),
    "lwf": (0.5768, 0.6554, 0.6030),
    "si": (0.4861, 0.6372, 0.5772),
}
"""The printed CL_scores under W1 to W3."""
PAPER_STABILITY: Mapping[str, tuple[float, ...]] = {
    "naive": (0.9986, 0.9969, 0.9973),
    "cumulative": (0.9979, 0.9976, 0.9964),
    "ewc": (0.9972, 0.9976, 0.9940),
    "lwf": (0.9986, 0.9990, 0.9972),
    "si": (0.9970, 0.9945, 0.9927),
}
"""The printed CL_stability under W1 to W3."""
INTRODUCTION = """\
# The experiment of more-than-forgetting

Five strategies learn one task after another; seven criteria and their weighted sum, CL_score, compare them.
Created by `perdure reproduce more-than-forgetting --data-dir DATA`; `--only cifar10` (the default) trains five tasks of
CIFAR-10, `--only cifar100` the ten tasks of CIFAR-100 that the paper uses, and `--scale paper` takes all training images.
Numbers are means over seeds with 95 % Student t intervals (half-widths after ±). All criteria are in [0, 1], and higher is
better. The paper's numbers are for ten tasks of CIFAR-100, so compare the order of the strategies, not the values.
[What the criteria mean](../scoring.md).
"""


def write_more_than_forgetting_page(
    finished: Sequence[FinishedStudy],
    page: Path,
    data_dir: Path | None = None,  # noqa: ARG001
) -> None:
    """Write the page from some studies; sections of other studies on an existing page are kept."""
    sections = [more_than_forgetting_section(entry, page.parent) for entry in finished]
    titles = [study.title for known in STUDIES.values() for study in (known, paper_scale(known))]
    write_learner_study_page(INTRODUCTION.split("\n"), sections, titles, page)


def more_than_forgetting_section(finished: FinishedStudy, pictures: Path) -> str:
    """Return a study's section in Markdown, and save its figures."""
    study, audit = finished.study, audit_of_rows(finished.rows)
    entries = {entry.learner: entry for entry in audit.learners}
    surfaces, lines = (f"more-than-forgetting-{study.name}-{kind}.png" for kind in ("surfaces", "lines"))
    parts = [
        f"## {study.title}",
        study_provenance(finished.rows),
        study_protocol_sentence(study),
        " ".join(_answer(audit)),
        _criteria_table(entries),
        "Rows marked *paper* are printed in the paper.",
        _scores_table(entries),
        _first_places_text(audit),
        _correlation_text(entries),
    ]
    if "cumulative" in entries:
        save(accuracy_differences_to(audit), pictures / surfaces)
        parts.append(
            f"![Accuracy of each strategy minus that of cumulative]({surfaces})\n\nAccuracy of cumulative after each step, and "
            "that of the other strategies minus it. Below the diagonal a task was trained before; red cells show what was "
            "forgotten."
        )
    save(accuracy_lines(audit), pictures / lines)
    parts.append(
        f"![Accuracy on each task after each step]({lines})\n\nAccuracy on each task after each step, mean over seeds."
    )
    parts.append(chosen_settings_sentence(finished.rows))
    return "\n\n".join(parts) + "\n"


def _answer(audit: Audit) -> list[str]:
    """Return sentences that say which strategy ranks first under each weighting, and whether the paper's order holds."""
    scores = {entry.learner: entry.scores for entry in audit.learners}
    best = {name: max(scores, key=lambda learner: scores[learner][name].mean) for name in WEIGHTINGS}
    theirs = {
        name: max(PAPER_SCORES, key=lambda learner: PAPER_SCORES[learner][i]) for i, name in enumerate(WEIGHTINGS)
    }
    sentences = [
        f"Under {name}, `{best[name]}` has the highest CL_score ({scores[best[name]][name].mean:.3f}); in the paper it is "
        f"`{theirs[name]}`."
        for name in WEIGHTINGS
    ]
    common = [learner for learner in scores if learner in PAPER_SCORES]
    agreeing = [
        sum(
            (scores[a][name].mean > scores[b][name].mean) == (PAPER_SCORES[a][i] > PAPER_SCORES[b][i])
            for a, b in combinations(common, 2)
        )
        for i, name in enumerate(WEIGHTINGS)
    ]
    pairs = len(common) * (len(common) - 1) // 2
    counts = ", ".join(f"{count} ({name})" for count, name in zip(agreeing, WEIGHTINGS, strict=True))
    sentences.append(f"Of the {pairs} pairs of strategies, the order of CL_score is that of the paper in {counts}.")
    return sentences


def _criteria_table(entries: Mapping[str, LearnerAudit]) -> str:
    rows = []
    for name, entry in entries.items():
        cells = [learner_study_cell(entry.measures[criterion]) for criterion in CRITERIA]
        rows.append([f"`{name}`", learner_study_cell(entry.measures["average_accuracy"]), *cells])
        if name in PAPER:
            rows.append(["*paper*", "", *(f"*{value:.4f}*" for value in PAPER[name])])
    return format_markdown_table(["strategy", "final accuracy", *CRITERIA], rows)


def _scores_table(entries: Mapping[str, LearnerAudit]) -> str:
    header = [
        "strategy",
        *(f"CL_score {name}" for name in WEIGHTINGS),
        *(f"CL_stability {name}" for name in WEIGHTINGS),
    ]
    rows = []
    for name, entry in entries.items():
        cells = [learner_study_cell(entry.scores[weights]) for weights in WEIGHTINGS]
        cells += [f"{entry.cl_stability[weights].mean:.4f}" for weights in WEIGHTINGS]
        rows.append([f"`{name}`", *cells])
        if name in PAPER_SCORES:
            printed = (*PAPER_SCORES[name], *PAPER_STABILITY[name])
            rows.append(["*paper*", *(f"*{value:.4f}*" for value in printed)])
    return format_markdown_table(header, rows)


def _first_places_text(audit: Audit) -> str:
    printed = score_first_places({name: dict(zip(CRITERIA, values, strict=True)) for name, values in PAPER.items()})
    ours, theirs = (
        ", ".join(
            f"`{name}` {share:.0%}"
            for name, share in sorted(shares.items(), key=lambda pair: -pair[1])
            if share >= 0.005
        )
        for shares in (audit.first_places, printed.share)
    )
    return (
        f"Share of all weightings under which a strategy ranks first: {ours}. With the criteria that the paper prints: "
        f"{theirs}."
    )


def _correlation_text(entries: Mapping[str, LearnerAudit]) -> str:
    """Return the rank correlation of the criteria over strategies, ours and from the printed criteria."""
    ours = {name: {c: float(entry.measures[c].mean) for c in CRITERIA} for name, entry in entries.items()}
    printed = {name: dict(zip(CRITERIA, values, strict=True)) for name, values in PAPER.items()}
    if len(ours) < 3:
        return ""
    tables = [score_criteria_correlation(values) for values in (ours, printed)]
    rows = []
    for first in CRITERIA:
        cells = []
        for second in CRITERIA:
            pair = [_cell(table.criteria, table.matrix, first, second) for table in tables]
            cells.append("" if first == second else " / ".join(pair))
        rows.append([first, *cells])
    return (
        f"Spearman's correlation of the criteria over the {len(ours)} strategies: ours / from the criteria that the paper "
        "prints. A dash: the criterion is the same for all strategies. With so few strategies, the numbers describe this table "
        f"and do not generalize to other strategies.\n\n{format_markdown_table(['', *CRITERIA], rows)}"
    )


def _cell(
    names: Sequence[str], matrix: np.ndarray[tuple[int, ...], np.dtype[np.float64]], first: str, second: str
) -> str:
    if first not in names or second not in names:
        return "–"
    value = float(matrix[names.index(first), names.index(second)])
    return "–" if np.isnan(value) else f"{value:+.2f}"


TARGET = RowsTarget(
    studies=STUDIES,
    default=("cifar10",),
    write_page=write_more_than_forgetting_page,
    page=Path("docs/results/more-than-forgetting.md"),
    paper_scale=paper_scale,
)
