"""Device placement, with a stand-in for a GPU: every tensor of training and of explanations is on the device of the run."""

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from perdure import explain, learners, nets, tasks
from perdure.audits.shapc.runner import audit_shapc
from perdure.audits.shapc.values import ShapcSettings
from perdure.learners import evaluation
from perdure.learners.training import Training
from tests.helpers.crashes import Crash, crash_at_write
from tests.helpers.stand_in_device import stand_in_device

DIGITS = replace(tasks.load("split-digits", per_class=12, curriculum=[0, 1, 2]), augmentation="crop-flip")
QUICK = Training(epochs=1, batch_size=8, lr=0.01, momentum=0.9)


def make_run(learner, **options) -> learners.Run:
    kind = learners.get(learner)
    settings = {"buffer": 40} if "buffer" in kind.Settings.__dataclass_fields__ else {}
    return learners.Run(DIGITS, kind, width=4, training=QUICK, settings=settings, **options)


@pytest.fixture(autouse=True)
def _what_the_stand_in_does_not_support(monkeypatch):
    """Create the linear layer of iCaRL in the usual way (``skip_init`` needs ``meta``), and evaluate without inference mode."""

    def make(kind: type[nn.Module], *sizes: int, device: torch.device) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            return kind(*sizes).to(device)

    monkeypatch.setattr("perdure.learners.parts.nearest_mean.skip_init", make)
    monkeypatch.setattr(evaluation, "_accuracy", torch.no_grad()(evaluation._accuracy.__wrapped__))  # type: ignore[attr-defined]


def test_the_stand_in_refuses_what_a_gpu_refuses():
    with stand_in_device() as device:
        x = torch.ones(3, device=device)
        assert x.device == device
        assert (x + 1).cpu().tolist() == [2.0, 2.0, 2.0]
        assert x[torch.tensor([0, 2])].cpu().tolist() == [1.0, 1.0]
        for wrong in (
            lambda: x + torch.ones(3),
            lambda: torch.ones(3)[torch.tensor([0], device=device)],
            lambda: torch.rand(3, device=device, generator=torch.Generator()),
            x.numpy,
        ):
            with pytest.raises((RuntimeError, TypeError)):
                wrong()


@pytest.mark.parametrize("learner", learners.names())
def test_training_on_the_device_gives_the_results_of_the_cpu(tmp_path, learner):
    expected = learners.execute(make_run(learner), tmp_path / "cpu")
    with stand_in_device() as device:
        record = learners.execute(make_run(learner, device=str(device)), tmp_path / "device")
    assert np.array_equal(record.table, expected.table)
    assert record.cost is not None
    assert expected.cost is not None
    assert np.array_equal(record.cost.operations, expected.cost.operations)
    last = len(record.table) - 1
    weights = expected.checkpoint(last)
    assert all(torch.equal(tensor, weights[name]) for name, tensor in record.checkpoint(last).items())


@pytest.mark.parametrize("learner", ["der++", "ewc", "gem", "icarl", "co2l", "bfp", "xder"])
def test_resuming_restores_all_tensors_to_the_device(tmp_path, monkeypatch, learner):
    expected = learners.execute(make_run(learner), tmp_path / "cpu")
    with stand_in_device() as device:
        run = make_run(learner, device=str(device))
        with monkeypatch.context() as patch:
            crash_at_write(patch, 30, after=False)
            with pytest.raises(Crash):
                learners.execute(run, tmp_path / "device", save_seconds=0)
        record = learners.execute(run, tmp_path / "device", save_seconds=0)
    assert np.array_equal(record.table, expected.table)


@pytest.mark.parametrize("method", [name for name in explain.method_names() if name != "exact_shapley"])
def test_explanations_are_computed_on_the_device(method):
    generator = torch.Generator().manual_seed(0)
    network = nets.build("small-conv", input_shape=(1, 8, 8), outputs=4, seed=0, width=4).eval()
    x, background = (torch.rand(count, 1, 8, 8, generator=generator) for count in (3, 6))
    options: dict[str, Any] = {"samples": 8, "seed": 1}
    expected = explain.attribute(network, x, [0, 1, 2], method, background=background, **options)
    with stand_in_device() as device:
        moved = copy.deepcopy(network).to(device)
        maps = explain.attribute(moved, x.to(device), [0, 1, 2], method, background=background.to(device), **options)
        assert maps.device == device
        assert torch.allclose(maps.cpu(), expected, atol=1e-6)


def test_a_shapc_audit_on_the_device_gives_the_results_of_the_cpu(tmp_path):
    path = learners.execute(make_run("naive"), tmp_path / "run").path
    settings = ShapcSettings(samples=4, untrained=2)
    expected = audit_shapc(path, settings=settings, examples=8, out=tmp_path / "cpu")
    with stand_in_device() as device:
        result = audit_shapc(path, settings=settings, examples=8, out=tmp_path / "device", device=str(device))
    assert result.mean.mean == pytest.approx(expected.mean.mean, abs=1e-6)
    assert result.calibrated.mean == pytest.approx(expected.calibrated.mean, abs=1e-5)
