"""perdure trust bias: baselines, the stored evidence, user networks and data, and messages about mistakes."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from perdure import explain, learners, tasks
from perdure.audits import BiasSettings, ShapcSettings, measure_bias, record_bias
from perdure.audits import audit as audit_records
from perdure.audits.bias import record_bias as bias_records
from perdure.audits.bias.results import BiasResult
from perdure.base.errors import InputError
from tests.helpers.checkpoints import examples, net

X = torch.from_numpy(examples(0)[0][:6])
BACKGROUND = torch.from_numpy(examples(1)[0]) + 1.0
QUICK = BiasSettings(methods="grad", permutations=20)
LEAST_BIASED = ShapcSettings(method="least-biased", samples=10, background=10)


# The comparison


def test_integrated_gradients_start_at_the_baseline_of_masked_inputs():
    def measured(**options):
        settings = BiasSettings(methods="integrated_gradients", permutations=20, **options)
        return measure_bias(net(), X, 1, background=BACKGROUND, settings=settings)

    default = measured()["integrated_gradients"].per_example
    mean = measured(baseline=BACKGROUND.mean(dim=0))["integrated_gradients"].per_example
    np.testing.assert_allclose(default, mean, rtol=1e-4, atol=1e-6)
    zero = measured(baseline="zero")
    assert zero.settings["baseline"] == "zero"
    assert not np.allclose(default, zero["integrated_gradients"].per_example, atol=1e-3)


def test_a_printed_result_is_sorted_by_bias_with_the_controls_last():
    settings = BiasSettings(methods=["grad", "deepshap", "integrated_gradients"], permutations=20)
    found = measure_bias(net(), X, 1, background=BACKGROUND, settings=settings)
    title, *rows, reading = str(found).splitlines()
    assert "6 examples" in title
    means = [float(row.split()[1]) for row in rows]
    assert means[:3] == sorted(means[:3])
    assert {row.split()[0] for row in rows[3:]} == {"constant", "random"}
    assert found.verdict is not None
    assert rows[0].split()[0] == found.verdict.least
    assert reading == found.verdict.reading


def test_a_network_that_ignores_its_inputs_is_refused():
    constant = nn.Sequential(nn.Flatten(), nn.Linear(36, 4))
    nn.init.zeros_(constant[1].weight)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"every Shapley value is 0\. Check that the weights are loaded"):
        measure_bias(constant, X, 1, background=BACKGROUND, settings=QUICK)


def test_inputs_of_the_wrong_shape_are_refused_in_one_line():
    with pytest.raises(InputError, match=r"the network does not accept inputs of shape \(1, 4, 6\)") as raised:
        measure_bias(net(), X[:, :, :4], 1, background=BACKGROUND[:, :, :4], settings=QUICK)
    assert "\n" not in str(raised.value)


def test_the_result_reports_how_often_the_explained_class_is_predicted():
    with torch.no_grad():
        predicted = net()(X).argmax(dim=1).numpy()
    labels = np.where(np.arange(6) < 3, predicted, (predicted + 1) % 4)
    found = measure_bias(net(), X, labels, background=BACKGROUND, settings=QUICK)
    assert found.settings["predicted"] == 0.5


# The evidence in a record


def compared(record, examples, methods):
    """Return the comparison of some explainers on a record."""
    settings = BiasSettings(methods=methods, permutations=20)
    return record_bias(record, examples=examples, background=10, settings=settings)


@pytest.fixture
def records(tmp_path):
    benchmark = tasks.load("split-digits", tasks=2, per_class=20)
    paths = []
    for seed in range(2):
        training = learners.Training(epochs=2, lr=0.1)
        run = learners.Run(benchmark, learners.get("naive"), network="small-conv", training=training, seed=seed)
        paths.append(learners.execute(run, tmp_path / f"seed-{seed}").path)
    return paths


def test_a_smaller_comparison_does_not_discard_an_earlier_one(records, monkeypatch):
    first = compared(records[0], 12, ["deepshap", "grad"])
    compared(records[0], 2, "grad")
    assert BiasResult.load(records[0] / "trust/bias.json").examples == 2

    def computed_again(*_, **__):
        raise AssertionError("the stored result was not used")

    monkeypatch.setattr(bias_records, "measure_bias", computed_again)
    again = compared(records[0], 12, ["deepshap", "grad"])
    assert again.to_json() == first.to_json()
    assert BiasResult.load(records[0] / "trust/bias.json").examples == 12


def test_an_explainer_that_is_not_better_than_a_control_is_not_chosen(records):
    found = compared(records[0], 2, "grad")
    assert found.verdict is not None
    assert set(found.verdict.tied) == {"constant", "random"}
    with pytest.raises(
        InputError, match="grad has the lowest bias, but not significantly lower than the control constant and random"
    ):
        audit_records(records[0], shapc=LEAST_BIASED)


def test_records_that_recommend_different_explainers_are_refused(records):
    for path, method in zip(records, ("deepshap", "lrp"), strict=True):
        found = compared(path, 16, method)
        assert found.verdict is not None
        assert not found.verdict.tied
    with pytest.raises(InputError, match=r"different explainers \(.*deepshap; .*lrp\).*--method"):
        audit_records(records, shapc=LEAST_BIASED, examples=4)
    compared(records[1], 16, "deepshap")
    audit = audit_records(records, shapc=LEAST_BIASED, examples=4)
    assert {result.settings["method"] for result in audit.shapc} == {"deepshap"}


# The command line

OWN = """
import numpy as np, torch
from torch import nn
def make(shape, outputs):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(shape[0], 5), nn.ReLU(), nn.Linear(5, outputs))
def narrow():
    return nn.Linear(4, 2)
def inputs():
    return np.random.default_rng(0).normal(size=(20, 4)).astype("float32")
def data():
    return inputs(), np.arange(20) % 2
def holes():
    x = inputs()
    x[17, 2] = np.nan
    return x, np.arange(20) % 2
def floats():
    return inputs(), np.arange(20) % 2.0
def short():
    return inputs(), np.arange(19) % 2
def one():
    return inputs()[:1], np.arange(1)
def wide():
    return np.repeat(inputs(), 2, axis=1), np.arange(20) % 2
def broken():
    return 1 / 0
"""
LAST = len(OWN.splitlines())
COMMAND = ("trust", "bias", "--network", "own.py:make", "--examples", 4, "--out", "stored")


@pytest.fixture
def own(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    arrays = np.random.default_rng(0).normal(size=(20, 4)).astype("float32")
    np.savez(tmp_path / "own.npz", x=arrays, y=np.arange(20) % 2)
    np.savez(tmp_path / "half.npz", x=arrays)
    module: dict[str, Any] = {}
    exec(OWN, module)
    torch.save(module["make"]((4,), 3).state_dict(), tmp_path / "three.pt")
    torch.save(module["make"]((4,), 3), tmp_path / "whole.pt")
    (tmp_path / "people.csv").write_text("explainer,rater\ngrad,a\n")


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--data", "own.py:holes"), "data: the input of example 18 contains NaN or infinity"),
        (("--data", "own.py:floats"), "data: labels of type float64"),
        (("--data", "own.py:short"), "data: 20 inputs and labels of shape (19,); expected one label per input"),
        (("--data", "own.py:one"), "data: 1 examples, expected at least 2"),
        (("--data", "own.py:broken"), f"own.py:broken failed in line {LAST} (ZeroDivisionError: division by zero)"),
        (("--data", "own.py"), "own.py: no function is named; expected file.py:function"),
        (("--data", "half.npz"), "--data half.npz: expected arrays x and y, got x"),
        (
            ("--data", "none.npz"),
            "--data none.npz: no such file; expected file.py:function",
        ),
        (("--data", "own.py:data", "--weights", "none.pt"), "none.pt: no such file"),
        (
            ("--data", "own.py:data", "--weights", "whole.pt"),
            "expected a file written by torch.save(network.state_dict(), file)",
        ),
        (("--data", "own.py:data", "--shapc"), "--shapc compares the checkpoints of a record"),
        (("--data", "own.py:data", "--ratings", "people.csv"), "people.csv"),
        ((), "--network own.py:make: pass --data too"),
    ],
)
def test_mistakes_are_reported_in_one_line_before_any_computation(perdure, options, message, monkeypatch):
    def computed(*_, **__):
        raise AssertionError("the mistake was found too late")

    monkeypatch.setattr(bias_records, "measure_bias", computed)
    printed = perdure(*COMMAND, *options, code=2).stderr
    assert message in printed
    assert len(printed.strip().splitlines()) == 1


@pytest.mark.usefixtures("own")
def test_a_function_with_wrong_arguments_and_weights_that_do_not_fit_are_reported_in_one_line(perdure):
    command = ("trust", "bias", "--examples", 4, "--out", "stored", "--data")
    Path("needy.py").write_text("def make(shape, outputs, width):\n    return None\n")
    (printed,) = perdure(*command, "own.py:data", "--network", "needy.py:make", code=2).stderr.splitlines()
    assert "needy.py:make failed (TypeError: make() missing 3 required positional arguments" in printed
    assert "own.py:narrow on own.py:data" in perdure(*command, "own.py:data", "--network", "own.py:narrow").stdout
    (printed,) = perdure(
        *command, "own.py:wide", *COMMAND[2:4], "--weights", "three.pt", "--outputs", 3, code=2
    ).stderr.splitlines()
    assert "does not fit the network" in printed


@pytest.mark.usefixtures("own")
def test_arrays_in_a_file_give_the_same_result_as_a_function(perdure):
    command = (*COMMAND, "--weights", "three.pt", "--outputs", 3, "--method", "grad", "--data")
    from_file, from_function = (perdure(*command, source).stdout for source in ("own.npz", "own.py:data"))
    assert from_file.replace("own.npz", "own.py:data") == from_function
    assert "masked inputs are replaced by the mean of the background" in from_file
    assert "The true class is explained; the network predicts it for" in from_file
    assert "masked inputs are replaced by zero" in perdure(*command, "own.npz", "--baseline", "zero").stdout


@pytest.mark.usefixtures("own")
def test_a_refused_default_explainer_is_no_failure_and_the_controls_are_listed_together(perdure):
    done = perdure(*COMMAND, "--data", "own.py:data")
    assert "gradcam was refused" in done.stderr
    rows = [line.split()[0] if line.strip() else "" for line in done.stdout.splitlines()]
    first = min(rows.index("constant"), rows.index("random"))
    assert {rows[first], rows[first + 1]} == {"constant", "random"}
    assert rows[first - 1] == ""
    perdure(*COMMAND, "--data", "own.py:data", "--method", "grad", "--method", "gradcam", code=1)


def test_results_of_a_record_are_stored_only_in_the_record(perdure, records):
    assert "stored in the record; remove --out" in perdure("trust", "bias", records[0], "--out", "there", code=2).stderr


# Engines


def test_shards_of_the_bias_are_collected_without_shard(perdure, records, tmp_path):
    shutil.copytree(records[0], tmp_path / "plain")
    options = ("--examples", 4, "--background", 6, "--permutations", 20, "--method", "grad", "--json")
    expected = json.loads(perdure("trust", "bias", "plain", *options).stdout)
    shards = ("trust", "bias", records[0], *options)
    done = perdure(*shards, "--shard", "1/2")
    assert "Shard 1/2 is done; 2 of 4 parts are left to other shards." in done.stderr
    assert "Run the command without --shard to collect the results." in done.stderr
    assert not (records[0] / "trust").exists()
    assert json.loads(perdure(*shards, "--shard", "2/2").stdout) == expected
    assert json.loads(perdure(*shards).stdout) == expected


def test_failed_parts_are_listed_and_the_others_are_stored(perdure, records, monkeypatch):
    real = explain.shapley_table
    failing: list[Any] = []

    def fails_for_one_example(model, x, *arguments, **options):
        failing[:] = failing or [x.sum()]
        if x.sum() == failing[0]:
            raise RuntimeError("no memory left on the device")
        return real(model, x, *arguments, **options)

    monkeypatch.setattr(explain, "shapley_table", fails_for_one_example)
    options = ("--examples", 4, "--background", 6, "--permutations", 20, "--method", "grad")
    done = perdure("trust", "bias", records[0], *options, code=1)
    assert "1 of 4 parts failed:" in done.stderr
    assert "Shapley values of example 1: no memory left on the device (tried 3 times)" in done.stderr
    assert len(list((records[0] / "cache/shapley").rglob("values.safetensors"))) == 3
    assert not (records[0] / "trust").exists()
    monkeypatch.setattr(explain, "shapley_table", real)
    perdure("trust", "bias", records[0], *options)


def test_shards_of_retraining_are_collected_without_shard(perdure, records):
    """Both the folds and the pairs of checkpoints are divided between the shards."""
    maps = ("--method", "grad", "--samples", 4, "--background", 4, "--examples", 4, "--noise", "", "--folds", 2)
    options = ("trust", "retraining", *maps, "--epochs", 1, "--per-class", 10, "--json")
    expected = json.loads(perdure(*options, records[0], "--out", "plain").stdout)
    shutil.rmtree(records[0] / "cache")
    shutil.rmtree(records[0] / "trust")
    done = perdure(*options, records[0], "--out", "shards", "--shard", "1/2")
    assert "Shard 1/2 is done; 4 of 9 parts are left to other shards." in done.stderr
    assert not (records[0] / "trust").exists()
    assert json.loads(perdure(*options, records[0], "--out", "shards", "--shard", "2/2").stdout) == expected
