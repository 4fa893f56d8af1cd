"""Automatic mixed precision of training: resumed to the same bits, recorded, and not used for anything else."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from perdure import explain, learners, tasks
from perdure.base.errors import InputError
from perdure.learners.evaluation import accuracies
from perdure.learners.precision import MixedPrecision
from perdure.learners.training import Training
from perdure.runs.loaded_run import load_run
from tests.helpers.crashes import Crash, contents, crash_at_write

DIGITS = tasks.load("split-digits", per_class=20)
TRAINING = Training(epochs=2, batch_size=16, lr=0.05)


def make_run(learner="naive", amp="bfloat16", **options) -> learners.Run:
    kind = learners.get(learner)
    settings = {"buffer": 40} if "buffer" in kind.Settings.__dataclass_fields__ else {}
    training = replace(options.pop("training", TRAINING), amp=amp)
    return learners.Run(DIGITS, kind, width=4, training=training, settings=settings, **options)


@pytest.mark.parametrize("amp", ["bfloat16", "float16"])
@pytest.mark.parametrize("learner", learners.names())
def test_every_learner_trains_with_parameters_in_single_precision(tmp_path, learner, amp):
    record = learners.execute(make_run(learner, amp), tmp_path)
    assert {tensor.dtype for tensor in record.checkpoint(len(record.table) - 1).values()} == {torch.float32}
    assert record.manifest.settings["amp"] == amp


def test_losses_are_computed_in_the_smaller_type(tmp_path, monkeypatch):
    types = []
    forward = learners.get("naive").loss

    def loss(self, batch):
        types.append(self.net(batch.x).dtype)
        return forward(self, batch)

    monkeypatch.setattr(learners.get("naive"), "loss", loss)
    learners.execute(make_run(amp="bfloat16"), tmp_path / "bfloat16")
    assert {*types} == {torch.bfloat16}
    types.clear()
    learners.execute(make_run(amp="off"), tmp_path / "off")
    assert {*types} == {torch.float32}


def test_evaluation_and_explanation_stay_in_single_precision(tmp_path, monkeypatch):
    types = []

    def measured(learner, seen, **options):
        types.append(learner.logits(torch.zeros(2, *DIGITS.input_shape)).dtype)
        return accuracies(learner, seen, **options)

    monkeypatch.setattr("perdure.learners.loop.accuracies", measured)
    learners.execute(make_run(), tmp_path)
    assert {*types} == {torch.float32}
    network = load_run(tmp_path).network(4)
    x = torch.rand(2, *DIGITS.input_shape)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        maps = explain.attribute(network, x, [0, 1], "grad")
    assert maps.dtype == torch.float32
    assert torch.equal(maps, explain.attribute(network, x, [0, 1], "grad"))


@pytest.mark.parametrize("amp", ["bfloat16", "float16"])
@pytest.mark.parametrize("learner", ["naive", "der++", "bfp"])
def test_resuming_after_a_crash_gives_the_same_bits(tmp_path, monkeypatch, learner, amp):
    run = make_run(learner, amp)
    expected = contents(learners.execute(run, tmp_path / "uninterrupted", save_seconds=0).path)
    for number in (9, 24, 41, 60):
        folder = tmp_path / f"crash-{number}"
        with monkeypatch.context() as patch:
            crash_at_write(patch, number, after=False)
            with pytest.raises(Crash):
                learners.execute(run, folder, save_seconds=0)
        learners.execute(run, folder, save_seconds=0)
        assert contents(folder) == expected


def test_the_scale_of_the_loss_is_part_of_the_saved_state():
    precision = MixedPrecision("float16", torch.device("cpu"))
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    assert not precision.backward((parameter * 1e38 * 1e38).sum(), [optimizer])  # infinite: the scale decreases
    state = json.loads(json.dumps(precision.state()))
    assert state["scale"] == 2.0**15
    restored = MixedPrecision("float16", torch.device("cpu"))
    restored.load_state(state)
    assert restored.state() == precision.state()


def test_gradients_do_not_depend_on_the_scale_of_the_loss():
    precision = MixedPrecision("float16", torch.device("cpu"))
    first, second = (torch.nn.Parameter(torch.full((3,), 2.0)) for _ in range(2))
    optimizers = [torch.optim.SGD([parameter], lr=0.1) for parameter in (first, second)]
    assert precision.backward((first**2).sum() + 3 * second.sum(), optimizers)
    assert first.grad is not None
    assert second.grad is not None
    assert first.grad.tolist() == [4.0, 4.0, 4.0]
    assert second.grad.tolist() == [3.0, 3.0, 3.0]


def test_without_mixed_precision_settings_and_results_are_those_of_earlier_versions(tmp_path):
    assert "amp" not in TRAINING.to_json()
    record = learners.execute(make_run(amp="off"), tmp_path / "off")
    assert "amp" not in record.manifest.settings
    other = learners.execute(make_run(amp="bfloat16"), tmp_path / "bfloat16")
    assert not np.array_equal(record.checkpoint(4)["head.weight"], other.checkpoint(4)["head.weight"])


def test_another_precision_cannot_resume_a_record(tmp_path):
    learners.execute(make_run(amp="off"), tmp_path)
    with pytest.raises(InputError, match="the record has amp None, the call 'bfloat16'"):
        learners.execute(make_run(amp="bfloat16"), tmp_path)


def test_an_unknown_type_is_refused():
    with pytest.raises(InputError, match="amp: unknown name 'float8'"):
        Training(amp="float8")  # type: ignore[arg-type]
