"""Known behavior of the learners, on Split Digits with three seeds.

A small MLP is trained with Adam, as in Hsu et al. (2018) for Split MNIST. The regularization methods are compared at
a learning rate that is so high that the naive learner forgets clearly even in the task-incremental scenario. Their
strengths were chosen from the values in the comments by the mean final accuracy on validation data (a fifth of the
training data) over seeds 10, 11 and 12, which are not used here. Test data were not used. The validation accuracy of
naive was 0.886.
"""

from functools import cache

import numpy as np
import pytest
from torch import nn

from perdure import learners, tasks
from perdure.learners.training import Training

SEEDS = (0, 1, 2)
LONG = Training(epochs=10, lr=0.003, optimizer="adam")
HIGH_RATE = Training(epochs=5, lr=0.01, optimizer="adam")
SETTINGS: dict[str, dict[str, float]] = {
    "l2": {"strength": 0.03},  # of 0.03, 0.3, 3: validation 0.907
    "ewc": {"strength": 1000, "fisher_samples": 50},  # of 10, 100, 1000: 0.957
    "online-ewc": {"strength": 1000, "fisher_samples": 50},  # of 10, 100, 1000: 0.943
    "si": {"c": 10},  # of 10, 100, 1000: 0.946
    "mas": {"strength": 0.1, "samples": 50},  # of 0.1, 1, 10: 0.883
    "lwf": {"alpha": 0.3},  # of 0.3, 1, 3: 0.974
    "rehearsal": {"buffer": 100},
    "gem": {"buffer": 100},
    "agem": {"buffer": 100},
    "icarl": {"buffer": 100},
    "der": {"buffer": 100},
    "der++": {"buffer": 100},
    "co2l": {"buffer": 100},
    "xder": {"buffer": 100, "views": 2},
    "bfp": {"buffer": 100},
}
REGULARIZERS = ["l2", "ewc", "online-ewc", "si", "mas", "lwf"]
MEMORY = ["icarl", "der", "der++", "co2l", "xder", "bfp"]
LEARNERS = [*REGULARIZERS, "naive", "cumulative", "joint", "rehearsal", "gem", "agem", *MEMORY]


def network(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, outputs)
    )


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Return a function that gives the accuracy table of a learner; each learner is trained once for all tests."""

    @cache
    def trained(name: str, scenario: tasks.Scenario, seed: int, training: Training):
        benchmark = tasks.load("split-digits", scenario=scenario, validation=0.2, order_seed=2)
        run = learners.Run(
            benchmark,
            learners.get(name),
            network=network,
            training=training,
            settings=SETTINGS.get(name, {}),
            seed=seed,
        )
        return learners.execute(run, tmp_path_factory.mktemp("run")).table

    return trained


@pytest.fixture(scope="module")
def final(table):
    """Return a function that gives the final average accuracy for each seed."""
    return lambda name, scenario, training: np.array(
        [table(name, scenario, seed, training)[-1].mean() for seed in SEEDS]
    )


def test_class_incremental_order_is_cumulative_rehearsal_naive(final):
    cumulative, rehearsal, naive = (final(name, "class", LONG) for name in ("cumulative", "rehearsal", "naive"))
    assert (cumulative > rehearsal).all()
    assert (rehearsal > naive + 0.3).all()


@pytest.mark.parametrize("name", MEMORY)
def test_class_incremental_memory_learners_are_far_above_naive(name, table, final):
    assert table(name, "class", 0, HIGH_RATE)[-1].mean() > final("naive", "class", HIGH_RATE).max() + 0.3


def test_class_incremental_naive_forgets_all_but_the_last_task(table):
    for seed in SEEDS:
        accuracy = table("naive", "class", seed, LONG)
        assert np.diag(accuracy).mean() > 0.85
        assert accuracy[-1, :-1].max() < 0.1


def test_task_incremental_naive_forgets_too(table, final):
    assert all(np.diag(table("naive", "task", seed, HIGH_RATE)).min() > 0.9 for seed in SEEDS)
    assert 0.7 < final("naive", "task", HIGH_RATE).mean() < 0.9


@pytest.mark.parametrize("name", REGULARIZERS)
def test_task_incremental_regularization_is_above_naive(name, final, table):
    assert final(name, "task", HIGH_RATE).mean() > final("naive", "task", HIGH_RATE).mean() + 0.04
    assert all(
        np.diag(table(name, "task", seed, HIGH_RATE)).min() > 0.6 for seed in SEEDS
    )  # new tasks are still learned


@pytest.mark.parametrize("name", LEARNERS)
def test_task_incremental_is_at_least_as_accurate_as_class_incremental(name, table):
    assert table(name, "task", 0, HIGH_RATE)[-1].mean() >= table(name, "class", 0, HIGH_RATE)[-1].mean()


@pytest.mark.parametrize("name", [name for name in LEARNERS if name != "xder"])
def test_every_learner_learns_in_the_domain_incremental_scenario(name, table):
    accuracy = table(name, "domain", 0, HIGH_RATE)
    assert accuracy[0, 0] > 0.9
    assert accuracy[-1].mean() > 0.6  # of two classes
