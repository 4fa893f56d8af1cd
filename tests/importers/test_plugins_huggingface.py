"""The callback for Hugging Face's Trainer: its record holds the accuracies and costs of a real Trainer."""

import numpy as np
import pytest

import perdure
from perdure import InputError
from tests.helpers.frameworks import require, run_example

PAGE = "docs/frameworks/huggingface.md"


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """The example of the documentation, after it ran, and its record."""
    require("transformers", "accelerate")
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("huggingface")
        patch.chdir(folder)
        patch.setenv("HF_HUB_OFFLINE", "1")
        variables = run_example(PAGE)
        yield variables, perdure.Record.open(folder / "runs/bert")


def trainer_of(example, callback, task, **options):
    return example["Trainer"](
        example["BertForSequenceClassification"](example["config"]),
        example["arguments"],
        train_dataset=example["make_data"](task, 8),
        eval_dataset=example["test"],
        callbacks=[callback],
        **{"compute_metrics": example["compute_metrics"], **options},
    )


def test_the_record_holds_the_accuracies_that_the_trainer_returns(example):
    variables, record = example
    assert record.complete
    assert record.manifest.tasks == ("news", "reviews", "mail")
    for step in range(3):
        variables["model"].load_state_dict(record.checkpoint(step))
        trainer = variables["Trainer"](
            variables["model"],
            variables["arguments"],
            eval_dataset=variables["test"],
            compute_metrics=variables["compute_metrics"],
        )
        returned = trainer.evaluate()
        theirs = [returned[f"eval_{task}_accuracy"] for task in variables["TASKS"]]
        np.testing.assert_array_equal(record.table[step], theirs)
    assert record.table[0, 0] > 0.5


def test_the_costs_are_those_of_the_trainer(example):
    variables, record = example
    assert record.cost is not None
    model = variables["model"]
    batch = {"input_ids": variables["make_data"](0, 1)[0]["input_ids"][None]}
    per_example = variables["trainer"].floating_point_ops(batch)
    assert record.cost.operations.tolist() == [2 * 40 * per_example / 2] * 3  # two epochs of 40 examples
    assert record.cost.passes.tolist() == [40 * per_example / 2] * 3
    assert record.cost.operations[2] == variables["trainer"].state.total_flos / 2
    assert record.cost.parameters.tolist() == [sum(p.numel() for p in model.parameters())] * 3


def test_the_audit_reads_the_record(example, perdure):
    variables, record = example
    (learner,) = variables["audit"].learners
    assert learner.measures["average_accuracy"].mean == pytest.approx(record.table[-1].mean())
    assert not np.isnan(learner.measures["CE"].mean)
    assert "fine-tuning" in perdure("audit", record.path).stdout


def test_the_untrained_model_and_a_missing_evaluation(example, tmp_path):
    from perdure.importers.plugins.huggingface import RecordCallback

    variables, _ = example
    callback = RecordCallback(tmp_path / "run", tasks=variables["TASKS"])
    trainer = trainer_of(variables, callback, 0)
    returned = trainer.evaluate()
    trainer.train()
    with pytest.raises(InputError, match=r"step 1: there is no accuracy on task 1 after training. Call trainer\.eval"):
        trainer.train()
    trainer.evaluate({"news": variables["test"]["news"]})
    assert callback.recorder.next_step == 0
    trainer.train()  # the other tasks are not trained yet, so the step is recorded now
    record = perdure.Record.open(tmp_path / "run")
    assert record.manifest.steps_done == 1
    assert record.initial is not None
    assert record.initial.tolist() == [returned[f"eval_{task}_accuracy"] for task in variables["TASKS"]]
    assert record.cost is not None
    assert np.isnan(record.cost.kept).all()


def test_another_metric_can_be_recorded(example, tmp_path):
    from perdure.importers.plugins.huggingface import RecordCallback

    variables, _ = example
    callback = RecordCallback(tmp_path / "run", tasks=variables["TASKS"], metric="share", learner="x")
    trainer = trainer_of(variables, callback, 0, compute_metrics=lambda _: {"share": 0.25})
    trainer.train()
    trainer.evaluate()
    record = perdure.Record.open(tmp_path / "run")
    assert record.table.tolist() == [[0.25, 0.25, 0.25]]
