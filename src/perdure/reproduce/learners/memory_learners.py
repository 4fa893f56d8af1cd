"""The nine methods of the SHAPC paper's Table 1, compared with its numbers."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

from perdure.audits import Audit, Interval, LearnerAudit
from perdure.learners import Training
from perdure.reproduce.learners.study import (
    Study,
    learner_study_cell,
    learner_study_operations,
    learner_study_protocol,
    learner_study_records,
    learner_study_step_seconds,
    tuned_learner_study_settings,
    write_learner_study_page,
)

PAPER = {
    "lwf": (19.61, 96.16),
    "si": (19.45, 93.03),
    "agem": (20.64, 94.16),
    "icarl": (63.24, 26.71),
    "der": (71.54, 27.93),
    "der++": (73.36, 23.42),
    "co2l": (73.93, 25.13),
    "xder": (67.02, 15.93),
    "bfp": (77.14, 12.66),
}
"""Average accuracy and average forgetting on Split CIFAR-10 in the paper's Table 1, in percent."""

# Published for Split CIFAR-10, except settings that depend on the smaller batch; learning rates come from the study.
_SETTINGS: dict[str, dict[str, Any]] = {
    "lwf": {"alpha": 3.0, "weight_decay": 5e-4},
    "si": {"c": 0.5, "xi": 1.0},
    "agem": {"buffer": 500, "reference": 16},
    "icarl": {"weight_decay": 1e-5, "buffer": 500},
    "der": {"alpha": 0.3, "buffer": 500},
    "der++": {"alpha": 0.2, "beta": 0.5, "buffer": 500},
    "co2l": {"weight_decay": 1e-4, "buffer": 500},
    "xder": {"alpha": 0.3, "beta": 1.0, "eta": 0.01, "margin": 0.5, "views": 2, "buffer": 500},
    "bfp": {"alpha": 0.2, "beta": 0.5, "alpha_bfp": 1.0, "buffer": 500},
}
_SMALL = Study(
    name="memory-small-conv",
    title="Split CIFAR-10 (small), class-incremental, small-conv",
    benchmark="cifar10-small.npz",
    scenario="class",
    learners=("naive", "joint", *PAPER),
    per_class=200,
    network="small-conv",
    width=16,
    training=Training(epochs=6, batch_size=16, lr=0.01, momentum=0.9, milestones=(5,), decay=0.2),
    trials=0,
    seeds=3,
    settings={**_SETTINGS, "lwf": {**_SETTINGS["lwf"], "lr": 0.003}, "icarl": {**_SETTINGS["icarl"], "lr": 0.1}},
    augmentation="crop-flip",
)
# All learners start from their published settings for Split CIFAR-10 (learning rate .03 where the published one does not
# suit this batch size) and have the same number of trials. Trials use a narrower network and fewer epochs, since they
# would otherwise cost more than the study.
_RESNET = replace(
    _SMALL,
    name="memory-resnet18",
    title="Split CIFAR-10 (small), class-incremental, ResNet-18",
    network="resnet18",
    width=16,
    training=replace(_SMALL.training, epochs=7, batch_size=10, lr=0.03, milestones=(5,)),
    trials=4,
    tuning_width=8,
    tuning_epochs=4,
    settings={
        **_SETTINGS,
        "lwf": {**_SETTINGS["lwf"], "lr": 0.01},
        "agem": {**_SETTINGS["agem"], "reference": 10},
        "icarl": {**_SETTINGS["icarl"], "lr": 0.1},
    },
)
STUDIES = {study.name: study for study in (_SMALL, _RESNET)}


def memory_learners_table(study: Study, audit: Audit, out: Path) -> str:
    """Return the study in Markdown: accuracy and forgetting with the paper's numbers, cost, and differences in ranking."""
    records = learner_study_records(study, out)
    lines = [f"## {study.title}", "", f"Study `{study.name}`. {learner_study_protocol(study, records[0])}", ""]
    header = ["learner", "runs", "average accuracy", "forgetting", "paper: accuracy", "paper: forgetting"]
    header += ["multiply-adds per run / naive", "CPU time per training step / naive"]
    lines += ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    spent, seconds = learner_study_operations(records, "naive"), learner_study_step_seconds(study, out, "naive")
    for entry in audit.learners:
        name = entry.learner
        paper = [f"{value / 100:.3f}" for value in PAPER[name]] if name in PAPER else ["", ""]
        pace = learner_study_step_seconds(study, out, name) / seconds
        cells = [
            str(sum(record.manifest.learner == name for record in records)),
            learner_study_cell(entry.measures["average_accuracy"]),
            learner_study_cell(entry.measures["forgetting"]),
            *paper,
            f"{learner_study_operations(records, name) / spent:.2f}",
            "–" if math.isnan(pace) else f"{pace:.2f}",
        ]
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *memory_learner_ranking(audit), "", describe_memory_learner_settings(study, out), ""])


def describe_memory_learner_settings(study: Study, out: Path) -> str:
    """Return the shared training settings and each learner's own; tuned settings replace the initial ones."""
    training = study.training
    decay = f"learning rate x {training.decay:g} after epoch {training.milestones[0]}"
    rate = "" if study.trials else f"learning rate {training.lr:g}, "
    by_learner = {
        name: {**study.settings.get(name, {}), **tuned_learner_study_settings(study, out, name)}
        for name in study.learners
    }
    listing = [
        f"`{name}` " + ", ".join(f"{setting} {value:.3g}" for setting, value in settings.items())
        for name, settings in by_learner.items()
        if settings
    ]
    return f"Settings: {rate}momentum {training.momentum:g}, {decay}; " + "; ".join(listing) + "."


def memory_learner_ranking(audit: Audit) -> list[str]:
    """Return our and the paper's ranking by average accuracy, and each pair whose order is reversed."""
    entries = {entry.learner: entry for entry in audit.learners if entry.learner in PAPER}
    ours = sorted(entries, key=lambda name: -accuracy(entries[name]).mean)
    theirs = sorted(entries, key=lambda name: -PAPER[name][0])
    reversed_pairs = [
        (low, high)
        for high, low in combinations(theirs, 2)
        if accuracy(entries[low]).mean > accuracy(entries[high]).mean
    ]
    lines = [
        "Ranking by average accuracy: " + " > ".join(f"`{name}`" for name in ours) + ".",
        "",
        "Ranking in the paper: " + " > ".join(f"`{name}`" for name in theirs) + ".",
        "",
        f"{len(reversed_pairs)} of {len(theirs) * (len(theirs) - 1) // 2} pairs are in the reverse order"
        + (":" if reversed_pairs else "."),
        "",
    ]
    for higher, lower in reversed_pairs:
        separate = accuracy(entries[higher]).low > accuracy(entries[lower]).high
        lines.append(f"- `{higher}` above `{lower}`; the intervals {'do not overlap' if separate else 'overlap'}")
    return lines


def accuracy(entry: LearnerAudit) -> Interval:
    """Return a learner's average accuracy."""
    return entry.measures["average_accuracy"]


def write_memory_learners(sections: list[str], path: Path) -> None:
    """Write the page; sections of other studies on an existing page are kept."""
    intro = [
        "# The nine methods of the SHAPC paper's Table 1",
        "",
        "Created by `perdure reproduce memory-learners --data-dir DATA` (DATA holds `cifar10-small.npz`); `--only NAME` runs",
        "one study and keeps the section of the other. Means over seeds with 95 % Student t intervals (half-widths after ±),",
        "on 100 test images per class. With ResNet-18, every learner has the same small number of trials, evaluated on",
        "validation images only (a fifth of the training images); the first trial uses the published settings, the others",
        "vary the learning rate and the method's main coefficients. The small network uses the published coefficients,",
        "without trials. Momentum is added because there are few training steps. The paper's numbers are for the full data,",
        "a full-width network and 50 epochs per task, so only the ranking is comparable.",
        "[What agrees, what does not, and which rows are older](../learners.md#the-nine-methods-of-the-shapc-paper).",
        "",
    ]
    write_learner_study_page(intro, sections, [study.title for study in STUDIES.values()], path)
