"""Each learner, killed within tasks and between tasks, gives the same bits as an uninterrupted run."""

import pytest
from torch import nn

from perdure import learners, tasks
from perdure.learners.training import Training
from tests.helpers.crashes import Crash, contents, crash_at_write

# A task is revisited, so that memories and importances of a known task are updated.
DIGITS = tasks.load("split-digits", per_class=8, scenario="task", curriculum=[0, 1, 0])
TRAINING = Training(epochs=2, batch_size=8, lr=0.02, momentum=0.9, evaluate_every=3)
SETTINGS: dict[str, dict[str, float]] = {
    "ewc": {"fisher_samples": 4},
    "online-ewc": {"fisher_samples": 4, "gamma": 0.5},
    "mas": {"samples": 4},
    "rehearsal": {"buffer": 10},
    "gem": {"buffer": 10},
    "agem": {"buffer": 10, "reference": 4},
    "icarl": {"buffer": 10},
    "der": {"buffer": 10},
    "der++": {"buffer": 10},
    "bfp": {"buffer": 10},
    "co2l": {"buffer": 10, "head_epochs": 3},
    "xder": {"buffer": 10, "eta": 0.5, "views": 2},
}


def with_batch_norm(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.2), nn.Linear(6, outputs)
    )


@pytest.mark.parametrize("name", learners.names())
def test_resuming_after_crashes_gives_the_same_bits(tmp_path, monkeypatch, name):
    run = learners.Run(
        DIGITS, learners.get(name), network=with_batch_norm, training=TRAINING, settings=SETTINGS.get(name, {}), seed=2
    )
    expected = contents(learners.execute(run, tmp_path / "uninterrupted", save_seconds=0).path)
    folder = tmp_path / "killed"
    crashes = 0
    # One run is killed repeatedly, each time after a different number of writes, so that every phase of a task is covered.
    for number in range(3, 40):
        with monkeypatch.context() as patch:
            crash_at_write(patch, 3 * (number % 7) + 7 + number % 3, after=number % 2 == 0)
            try:
                learners.execute(run, folder, save_seconds=0)
            except Crash:
                crashes += 1
            else:
                break
    assert contents(folder) == expected
    assert crashes >= (5 if name != "joint" else 3)
