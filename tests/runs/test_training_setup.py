"""The setup of a recorded run, with which its network can be trained again."""

import pytest
import torch

from perdure import Recorder, learners, tasks
from perdure.base.errors import InputError
from perdure.runs.training_setup import TrainingSetup
from tests.helpers.checkpoints import net


def test_a_network_trained_again_with_the_setup_of_a_record_has_the_same_weights(tmp_path):
    training = learners.Training(epochs=2, lr=0.05, milestones=(1,))
    run = learners.Run(
        tasks.load("split-digits", tasks=2, per_class=10),
        learners.get("ewc"),
        "small-conv",
        width=4,
        training=training,
        settings={"strength": 7.0, "fisher_samples": 20},
        seed=3,
        tuning_trials=5,
    )
    record = learners.execute(run, tmp_path / "first")
    setup = TrainingSetup.of_record(record.path)
    assert setup.training == training
    assert setup.settings == {"strength": 7.0, "fisher_samples": 20}  # without the number of tuning trials
    again = learners.Run(
        setup.benchmark,
        learners.get(setup.learner),
        setup.network,
        width=setup.width,
        training=setup.training,
        settings=setup.settings,
        seed=setup.seed,
    )
    repeated = learners.execute(again, tmp_path / "again")
    for name, value in record.checkpoint(1).items():
        assert torch.equal(value, repeated.checkpoint(1)[name])


def test_other_records_cannot_be_trained_again(tmp_path):
    Recorder(tmp_path / "own", tasks=1).after_task(net(0), accuracy=[0.9])
    with pytest.raises(InputError, match="its network or learner is not built in"):
        TrainingSetup.of_record(tmp_path / "own")
    with pytest.raises(InputError, match="only a record of perdure run can be trained again"):
        TrainingSetup.of_record(tmp_path)
