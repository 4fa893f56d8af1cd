"""The experiment of more-than-forgetting: five strategies on ten tasks of CIFAR-100, and on five tasks of CIFAR-10."""

from __future__ import annotations

from dataclasses import replace

from perdure.learners import Training
from perdure.reproduce.learners.study import Study

STRATEGIES = ("naive", "cumulative", "ewc", "lwf", "si")

# CE is min(1, mean of 10 * passes / operations), so with ten epochs or fewer it is 1 for a strategy that does nothing else.
_CIFAR10 = Study(
    name="cifar10",
    title="CIFAR-10, five tasks",
    benchmark="split-cifar10",
    scenario="task",
    learners=STRATEGIES,
    per_class=400,
    network="zenke-conv",
    width=None,
    training=Training(epochs=15, batch_size=32, lr=0.001, optimizer="adam"),
    trials=4,
    seeds=3,
    tuning_epochs=4,
)
STUDIES = {
    study.name: study
    for study in (
        _CIFAR10,
        replace(
            _CIFAR10,
            name="cifar100",
            title="CIFAR-100, ten tasks",
            benchmark="split-cifar100",
            tasks=10,
            per_class=100,
        ),
    )
}


def paper_scale(study: Study) -> Study:
    """Return a study with all training images and more epochs."""
    return replace(
        study,
        name=f"{study.name}-paper",
        title=f"{study.title}, the paper's scale",
        per_class=None,
        training=replace(study.training, epochs=20),
    )
