"""The twelve classic learners side by side, in the form of the table of more-than-forgetting."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from perdure import learners, tasks
from perdure.audit import Audit, Interval, LearnerAudit, audit_records
from perdure.learners import Progress, Run, Training
from perdure.record import Record, find_records
from perdure.record.files import read_json, write_atomically

CLASSIC = ("naive", "cumulative", "joint", "l2", "ewc", "online-ewc", "si", "mas", "lwf", "rehearsal", "gem", "agem")
PAPER = ("naive", "cumulative", "ewc", "lwf", "si")
CRITERIA = ("average_accuracy", "forgetting", "A", "REM", "BWT+", "FWT", "MS", "SSS", "CE")


@dataclass(frozen=True)
class Study:
    """One benchmark and how every learner is trained on it; the tuning budget is the same for all."""

    name: str
    title: str
    benchmark: str
    scenario: tasks.Scenario
    learners: tuple[str, ...]
    per_class: int
    network: str
    width: int | None
    training: Training
    trials: int
    seeds: int


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
STUDIES = {study.name: study for study in (_MNIST, _CIFAR, _CIFAR_TASK)}

Watcher = Callable[[str], AbstractContextManager[Progress]]


def run_study(study: Study, data_dir: Path | None, out: Path, watch: Watcher) -> Audit:
    """Tune and train every learner; what is finished is left alone, so that the command can be stopped and repeated."""
    where = study.benchmark if study.benchmark in tasks.names() else (data_dir or Path()) / study.benchmark
    benchmark = tasks.load(
        where, scenario=study.scenario, per_class=study.per_class, validation=0.2, tasks=5, data_dir=data_dir
    )
    for name in study.learners:
        folder = out / study.name / name
        run = Run(benchmark, learners.get(name), network=study.network, width=study.width, training=study.training)
        with watch(f"{name} tuning") as progress:
            run = learners.tune(run, study.trials, folder / "tuning.json", progress)
        for seed in range(study.seeds):
            with watch(f"{name} seed {seed}") as progress:
                learners.execute(replace(run, seed=seed), folder / f"seed-{seed}", progress)
    audit = audit_records(out / study.name)
    return replace(audit, learners=tuple(sorted(audit.learners, key=lambda entry: study.learners.index(entry.learner))))


def table(study: Study, audit: Audit, out: Path) -> str:
    """Return the study as Markdown: accuracy, forgetting, the seven criteria, the scores, cost, and the settings used."""
    records = [Record.open(path) for path in find_records([out / study.name])]
    lines = [f"## {study.title}", "", _protocol(study, records[0]), ""]
    header = ["learner", "average accuracy", "forgetting", *CRITERIA[2:], "W1", "W2", "W3", "multiply-adds / naive"]
    lines += ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    spent = {entry.learner: _operations(records, entry.learner) for entry in audit.learners}
    for entry in audit.learners:
        cells = [_cell(entry.measures[name]) for name in CRITERIA] + [_cell(score) for score in entry.scores.values()]
        lines.append(
            f"| `{entry.learner}` | " + " | ".join([*cells, f"{spent[entry.learner] / spent['naive']:.2f}"]) + " |"
        )
    shares = sorted(audit.first_places.items(), key=lambda pair: -pair[1])
    lines += [
        "",
        "First place over all weightings: " + ", ".join(f"`{n}` {s:.0%}" for n, s in shares if s >= 0.005) + ".",
        "",
    ]
    lines += [
        "Settings chosen on validation data: " + "; ".join(_settings(out, study, e) for e in audit.learners) + ".",
        "",
    ]
    return "\n".join(lines)


def write_results(sections: list[str], path: Path) -> None:
    """Write the page of all studies."""
    intro = [
        "# The twelve classic learners",
        "",
        "Made by `perdure reproduce classic-learners --data-dir DATA` (DATA holds `mnist.npz` and `cifar10-small.npz`).",
        "Means over seeds with 95 % Student t intervals (half-widths after ±). Every learner had the same number of tuning",
        "trials, judged on validation data only (a fifth of the training data). W1 to W3: CL_score. A dash: not defined for",
        "that learner.",
        "",
    ]
    write_atomically(path, "\n".join([*intro, *sections]).encode())


def _protocol(study: Study, record: Record) -> str:
    training = study.training
    network = study.network if study.width is None else f"{study.network} width {study.width}"
    return (
        f"Five tasks of two classes, {study.per_class} training images of each class, {network}, {training.optimizer}, "
        f"{training.epochs} epochs a task, batch {training.batch_size}, {study.trials} trials, {study.seeds} seeds; "
        f"torch {record.manifest.software['torch']}."
    )


def _cell(value: Interval) -> str:
    if value.mean != value.mean:
        return "–"
    margin = max(value.high - value.mean, value.mean - value.low)
    return f"{value.mean:.3f} ± {margin:.3f}" if margin >= 0.0005 else f"{value.mean:.3f}"


def _operations(records: list[Record], learner: str) -> float:
    """Return the mean multiply-adds of a whole run."""
    spent = [float(r.cost.operations.sum()) for r in records if r.cost is not None and r.manifest.learner == learner]
    return sum(spent) / len(spent)


def _settings(out: Path, study: Study, entry: LearnerAudit) -> str:
    trials = read_json(out / study.name / entry.learner / "tuning.json")["trials"][: study.trials]
    best = max(trials, key=lambda trial: float(trial["validation_accuracy"]))
    return f"`{entry.learner}` " + ", ".join(f"{name} {value:.3g}" for name, value in best["settings"].items())
