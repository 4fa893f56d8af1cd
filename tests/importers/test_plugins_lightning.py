"""The Lightning callback: its record holds the accuracies and costs of a real Trainer."""

from importlib.util import find_spec

import numpy as np
import pytest
import torch

import perdure
from perdure import InputError
from tests.helpers.frameworks import require, run_example

PAGE = "docs/frameworks/lightning.md"
PACKAGE = "lightning.pytorch" if find_spec("lightning") else "pytorch_lightning"
PASS = (
    2 * (8 * 16 + 16 * 6) + 16 * 6
)  # forward and backward of Linear(8, 16) and Linear(16, 6), as in the avalanche test


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """The example of the documentation, after it ran, and its record."""
    require("lightning" if find_spec("lightning") else "pytorch_lightning")
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("lightning")
        patch.chdir(folder)
        variables = run_example(PAGE, {"from lightning.pytorch import": f"from {PACKAGE} import"})
        yield variables, perdure.Record.open(folder / "runs/fine-tuning")


def fit(example, callback, model, *tasks):
    trainer = None
    for task in tasks:
        trainer = example["Trainer"](max_epochs=1, accelerator="cpu", callbacks=[callback], **example["quiet"])
        trainer.fit(model, example["train_loaders"][task])
    return trainer


def test_the_record_holds_the_accuracies_that_lightning_logs(example):
    variables, record = example
    # The last trainer still has what it logged, and the model is that of the last checkpoint.
    logged = [float(variables["trainer"].callback_metrics[f"accuracy/dataloader_idx_{task}"]) for task in range(3)]
    assert record.complete
    np.testing.assert_array_equal(record.table[2], logged)
    for step in range(3):
        model = variables["Classifier"]()
        model.load_state_dict(record.checkpoint(step))
        trainer = variables["Trainer"](accelerator="cpu", **variables["quiet"])
        results = trainer.test(model, variables["test_loaders"], verbose=False)
        theirs = [results[task][f"accuracy/dataloader_idx_{task}"] for task in range(3)]
        np.testing.assert_array_equal(record.table[step], theirs)
    assert record.table[0, 0] != record.table[2, 0]


def test_the_costs_have_a_closed_form(example):
    _, record = example
    assert record.cost is not None
    assert record.cost.passes.tolist() == [40 * PASS] * 3
    assert record.cost.operations.tolist() == [2 * 40 * PASS] * 3  # two epochs
    assert record.cost.kept.tolist() == record.cost.memory_bits.tolist() == [0] * 3


def test_the_audit_reads_the_record(example, perdure):
    variables, record = example
    (learner,) = variables["audit"].learners
    assert learner.measures["average_accuracy"].mean == pytest.approx(record.table[-1].mean())
    assert learner.measures["MS"].mean == 1
    assert "fine-tuning" in perdure("audit", record.path).stdout


def test_the_untrained_network_and_unknown_costs(example, tmp_path):
    from perdure.importers.plugins.lightning import RecordCallback

    variables, _ = example
    callback = RecordCallback(tmp_path / "run", tasks=["a", "b", "c"], costs=False)
    model = variables["Classifier"]()
    trainer = variables["Trainer"](max_epochs=1, accelerator="cpu", callbacks=[callback], **variables["quiet"])
    results = trainer.test(model, variables["test_loaders"], verbose=False)
    trainer = fit(variables, callback, model, 0)
    trainer.test(model, variables["test_loaders"][:2], verbose=False)
    assert callback.recorder.next_step == 0  # the third task may still be evaluated
    trainer = fit(variables, callback, model, 1)
    assert callback.recorder.next_step == 1
    trainer.test(model, variables["test_loaders"], verbose=False)
    record = perdure.Record.open(tmp_path / "run")
    assert record.manifest.tasks == ("a", "b", "c")
    assert record.initial is not None
    assert record.initial.tolist() == [results[task][f"accuracy/dataloader_idx_{task}"] for task in range(3)]
    assert np.isnan(record.table).tolist() == [[False, False, True], [False, False, False]]
    assert record.cost is not None
    assert np.isnan(record.cost.operations).all()
    assert np.isnan(record.cost.kept).all()
    (learner,) = perdure.audit(tmp_path / "run").learners
    assert {"MS", "CE", "SSS"} <= set(learner.reasons())


def test_errors_say_what_to_do(example, tmp_path):
    from perdure.importers.plugins.lightning import RecordCallback

    variables, _ = example
    model = variables["Classifier"]()
    with pytest.raises(InputError, match=r"step 1: there is no accuracy on task 1 after training. Call trainer\.test"):
        fit(variables, RecordCallback(tmp_path / "a", tasks=3), model, 0, 1)
    callback = RecordCallback(tmp_path / "b", tasks=3, metric="acc")
    trainer = fit(variables, callback, model, 0)
    with pytest.raises(InputError, match=r"did not log 'acc/dataloader_idx_0'; it logged accuracy/dataloader_idx_0, "):
        trainer.test(model, variables["test_loaders"], verbose=False)


def test_training_that_fails_is_not_a_step(example, tmp_path):
    from perdure.importers.plugins.lightning import RecordCallback

    variables, _ = example

    def training_step(self, batch, batch_idx):
        raise RuntimeError("broken")

    broken = type("Broken", (variables["Classifier"],), {"training_step": training_step})
    callback = RecordCallback(tmp_path / "run", tasks=3)
    with pytest.raises(RuntimeError, match="broken"):
        fit(variables, callback, broken(), 0)
    assert callback.recorder.next_step == 0
    assert torch.utils._python_dispatch._get_current_dispatch_mode() is None  # the flop counter is off
