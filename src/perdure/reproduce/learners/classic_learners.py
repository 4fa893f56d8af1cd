"""The twelve classic learners in the form of the table of more-than-forgetting."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from perdure.audits import Audit, LearnerAudit
from perdure.learners import Training
from perdure.reproduce.learners.study import (
    Study,
    learner_study_cell,
    learner_study_inactive_features,
    learner_study_operations,
    learner_study_protocol,
    learner_study_records,
    tuned_learner_study_settings,
    write_learner_study_page,
)

CLASSIC = ("naive", "cumulative", "joint", "l2", "ewc", "online-ewc", "si", "mas", "lwf", "rehearsal", "gem", "agem")
PAPER = ("naive", "cumulative", "ewc", "lwf", "si")
CRITERIA = ("average_accuracy", "forgetting", "A", "REM", "BWT+", "FWT", "MS", "SSS", "CE")


_MNIST = Study(
    name="split-mnist",
    title="Split MNIST, class-incremental",
    benchmark="split-mnist",
    scenario="class",
    learners=CLASSIC,
    per_class=1000,
    network="mlp400",
    width=None,
    training=Training(epochs=4, batch_size=128, lr=0.001, optimizer="adam"),
    trials=8,
    seeds=5,
)
_CIFAR = Study(
    name="cifar10-small",
    title="Split CIFAR-10 (small), class-incremental",
    benchmark="cifar10-small.npz",
    scenario="class",
    learners=CLASSIC,
    per_class=200,
    network="small-conv",
    width=16,
    training=Training(epochs=8, batch_size=32, lr=0.002, optimizer="adam"),
    trials=3,
    seeds=3,
)
_CIFAR_TASK = replace(
    _CIFAR,
    name="cifar10-small-task",
    title="Split CIFAR-10 (small), task-incremental: the paper's five strategies",
    scenario="task",
    learners=PAPER,
)
# Rehearsal as in the code of Hsu et al.: the cross-entropy runs over the classes seen so far.
_CIFAR_SEEN = replace(
    _CIFAR,
    name="cifar10-small-seen",
    title="Split CIFAR-10 (small), class-incremental: rehearsal over the classes seen so far",
    learners=("naive", "rehearsal"),
    settings={"rehearsal": {"outputs": "seen"}},
)
STUDIES = {study.name: study for study in (_MNIST, _CIFAR, _CIFAR_SEEN, _CIFAR_TASK)}


def classic_learners_table(study: Study, audit: Audit, out: Path) -> str:
    """Return the study in Markdown: accuracy, forgetting, the seven criteria, CL_scores, cost and settings."""
    records = learner_study_records(study, out)
    lines = [f"## {study.title}", "", learner_study_protocol(study, records[0]), ""]
    header = ["learner", "average accuracy", "forgetting", *CRITERIA[2:], "W1", "W2", "W3"]
    header += ["inactive features", "multiply-adds / naive"]
    lines += ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    spent = {entry.learner: learner_study_operations(records, entry.learner) for entry in audit.learners}
    for entry in audit.learners:
        cells = [learner_study_cell(entry.measures[name]) for name in CRITERIA] + [
            learner_study_cell(score) for score in entry.scores.values()
        ]
        cells.append(f"{learner_study_inactive_features(study, out, entry.learner):.2f}")
        cells.append(f"{spent[entry.learner] / spent['naive']:.2f}")
        lines.append(f"| `{entry.learner}` | " + " | ".join(cells) + " |")
    shares = sorted(audit.first_places.items(), key=lambda pair: -pair[1])
    lines += [
        "",
        "Share of all weightings under which a learner ranks first: "
        + ", ".join(f"`{name}` {share:.0%}" for name, share in shares if share >= 0.005)
        + ".",
        "",
    ]
    lines += [
        "Settings chosen on validation data: "
        + "; ".join(_chosen_settings(out, study, entry) for entry in audit.learners)
        + ".",
        "",
    ]
    return "\n".join(lines)


def write_classic_learners(sections: list[str], path: Path) -> None:
    """Write the page; sections of other studies on an existing page are kept."""
    intro = [
        "# The twelve classic learners",
        "",
        "Created by `perdure reproduce classic-learners --data-dir DATA` (DATA holds `mnist.npz` and `cifar10-small.npz`);",
        "`--only NAME` runs one study and keeps the sections of the others. Means over seeds with 95 % Student t intervals",
        "(half-widths after ±). Every learner has the same number of tuning trials, evaluated on validation data only (a fifth",
        "of the training data). W1 to W3: CL_score with these weights. Inactive features: share of the penultimate features",
        "that are 0 for every test image after the last task. A dash means that the metric is not defined for the learner.",
        "",
    ]
    write_learner_study_page(intro, sections, [study.title for study in STUDIES.values()], path)


def _chosen_settings(out: Path, study: Study, entry: LearnerAudit) -> str:
    chosen = tuned_learner_study_settings(study, out, entry.learner)
    return f"`{entry.learner}` " + ", ".join(f"{name} {value:.3g}" for name, value in chosen.items())
