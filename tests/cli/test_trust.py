"""What perdure trust says of its own choices and of a user's mistakes: baselines, evidence, networks and data of their own."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from perdure import learners, tasks
from perdure.audits import audit as audit_records
from perdure.audits import audit_shapc as shapc
from perdure.audits import measure_bias, record_bias
from perdure.audits.bias import measure as bias
from perdure.audits.bias import records as bias_records
from perdure.audits.bias.results import BiasResult
from perdure.base.errors import InputError
from tests.helpers.checkpoints import net, samples

X = torch.from_numpy(samples(0)[0][:6])
BACKGROUND = torch.from_numpy(samples(1)[0]) + 1.0


# The comparison


def test_integrated_gradients_start_where_masked_values_end():
    asked = {"background": BACKGROUND, "methods": "integrated_gradients", "permutations": 20}
    found = measure_bias(net(), X, 1, **asked)["integrated_gradients"].samples
    same = measure_bias(net(), X, 1, **asked, baseline=BACKGROUND.mean(dim=0))["integrated_gradients"].samples
    np.testing.assert_allclose(found, same, rtol=1e-4, atol=1e-6)
    zero = measure_bias(net(), X, 1, **asked, baseline="zero")
    assert zero.settings["baseline"] == "zero"
    assert not np.allclose(found, zero["integrated_gradients"].samples, atol=1e-3)


def test_a_printed_result_is_a_table_from_the_least_biased_on():
    found = measure_bias(
        net(), X, 1, background=BACKGROUND, methods=["grad", "deepshap", "integrated_gradients"], permutations=20
    )
    title, *rows, reading = str(found).splitlines()
    assert "6 samples" in title
    means = [float(row.split()[1]) for row in rows]
    assert means[:3] == sorted(means[:3])
    assert {row.split()[0] for row in rows[3:]} == {"constant", "random"}
    assert found.verdict is not None
    assert rows[0].split()[0] == found.verdict.least
    assert reading == found.verdict.reading


def test_a_network_that_does_not_look_at_its_inputs_is_refused():
    blind = nn.Sequential(nn.Flatten(), nn.Linear(36, 4))
    nn.init.zeros_(blind[1].weight)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="every Shapley value is 0; are the network's weights loaded"):
        measure_bias(blind, X, 1, background=BACKGROUND, methods="grad", permutations=20)


def test_inputs_that_do_not_fit_are_one_line():
    with pytest.raises(InputError, match=r"inputs of shape \(1, 4, 6\) do not go through the network") as raised:
        measure_bias(net(), X[:, :, :4], 1, background=BACKGROUND[:, :, :4], methods="grad", permutations=20)
    assert "\n" not in str(raised.value)


def test_the_result_says_how_often_the_explained_class_is_the_decision():
    with torch.no_grad():
        decided = net()(X).argmax(dim=1).numpy()
    labels = np.where(np.arange(6) < 3, decided, (decided + 1) % 4)
    found = measure_bias(net(), X, labels, background=BACKGROUND, methods="grad", permutations=20)
    assert found.settings["decided"] == 0.5


# The evidence in a record

OPTIONS = {"permutations": 20, "background": 10}


@pytest.fixture
def records(tmp_path):
    benchmark = tasks.load("split-digits", tasks=2, per_class=20)
    paths = []
    for seed in range(2):
        training = learners.Training(epochs=2, lr=0.1)
        run = learners.Run(benchmark, learners.get("naive"), network="small-conv", training=training, seed=seed)
        paths.append(learners.execute(run, tmp_path / f"seed-{seed}").path)
    return paths


def test_a_quick_trial_does_not_lose_what_was_measured_before(records, monkeypatch):
    careful = record_bias(records[0], samples=12, methods=["deepshap", "grad"], **OPTIONS)
    record_bias(records[0], samples=2, methods="grad", **OPTIONS)
    assert BiasResult.load(records[0] / "trust/bias.json").samples == 2

    def measured_again(*_, **__):
        raise AssertionError("it was kept")

    monkeypatch.setattr(bias_records, "measure_bias", measured_again)
    again = record_bias(records[0], samples=12, methods=["deepshap", "grad"], **OPTIONS)
    assert again.to_json() == careful.to_json()
    assert BiasResult.load(records[0] / "trust/bias.json").samples == 12


def test_an_explainer_that_is_no_better_than_a_control_is_not_chosen(records):
    found = record_bias(records[0], samples=2, methods="grad", **OPTIONS)
    assert found.verdict is not None
    assert set(found.verdict.tied) == {"constant", "random"}
    with pytest.raises(InputError, match="grad has the lowest bias but cannot be told from constant and random"):
        shapc(records[0], method="least-biased")


def test_runs_that_choose_different_explainers_are_not_compared(records):
    for path, method in zip(records, ("deepshap", "lrp"), strict=True):
        found = record_bias(path, samples=16, methods=method, **OPTIONS)
        assert found.verdict is not None
        assert not found.verdict.tied
    with pytest.raises(InputError, match=r"different explainers \(.*deepshap; .*lrp\).*name it"):
        audit_records(records, stability={"method": "least-biased", "per_task": 4})
    record_bias(records[1], samples=16, methods="deepshap", **OPTIONS)
    audit = audit_records(records, stability={"method": "least-biased", "per_task": 4, "samples": 10, "background": 10})
    assert {one.settings["method"] for one in audit.stability} == {"deepshap"}


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
ASK = ("trust", "--network", "own.py:make", "--samples", 4, "--out", "kept")


@pytest.fixture
def own(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    arrays = np.random.default_rng(0).normal(size=(20, 4)).astype("float32")
    np.savez(tmp_path / "own.npz", x=arrays, y=np.arange(20) % 2)
    np.savez(tmp_path / "half.npz", x=arrays)
    space: dict[str, Any] = {}
    exec(OWN, space)
    torch.save(space["make"]((4,), 3).state_dict(), tmp_path / "three.pt")
    torch.save(space["make"]((4,), 3), tmp_path / "whole.pt")
    (tmp_path / "people.csv").write_text("explainer,rater\ngrad,a\n")


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--data", "own.py:holes"), "data: NaN or infinity in the input of sample 18"),
        (("--data", "own.py:floats"), "data: labels of type float64"),
        (("--data", "own.py:short"), "data: 20 inputs and labels of shape (19,); expected one number for each input"),
        (("--data", "own.py:one"), "data: 1 samples, expected at least 2"),
        (("--data", "own.py:broken"), f"own.py:broken failed in line {LAST} (ZeroDivisionError: division by zero)"),
        (("--data", "own.py"), "own.py: no function is named; expected file.py:function"),
        (("--data", "half.npz"), "--data half.npz: it has x; expected x and y"),
        (("--data", "none.npz"), "--data none.npz: it cannot be read as arrays"),
        (("--data", "own.py:data", "--weights", "none.pt"), "none.pt: there is no such file"),
        (
            ("--data", "own.py:data", "--weights", "whole.pt"),
            "expected what torch.save(network.state_dict(), file) writes",
        ),
        (
            ("--data", "own.py:data", "--weights", "three.pt"),
            "for a network of 2 outputs (the largest label + 1; say --outputs",
        ),
        (("--data", "own.py:data", "--shapc"), "--shapc: it compares the checkpoints of a record"),
        (("--data", "own.py:data", "--ratings", "people.csv"), "people.csv"),
        ((), "--network own.py:make: give --data too"),
    ],
)
def test_mistakes_are_one_line_that_says_what_to_do(perdure, tmp_path, words, says, monkeypatch):
    def computed(*_, **__):
        raise AssertionError("a mistake was found too late")

    monkeypatch.setattr(bias, "measure_bias", computed)
    said = perdure(*ASK, *words, code=2).stderr
    assert says in said
    assert len(said.strip().splitlines()) == 1


@pytest.mark.usefixtures("own")
def test_a_maker_with_other_arguments_and_inputs_that_do_not_fit_are_one_line(perdure):
    words = ("trust", "--samples", 4, "--out", "kept", "--data")
    said = perdure(*words, "own.py:data", "--network", "own.py:narrow", code=2).stderr
    assert "own.py:narrow failed (TypeError: narrow() takes 0 positional arguments" in said
    (said,) = perdure(
        *words, "own.py:wide", *ASK[1:3], "--weights", "three.pt", "--outputs", 3, code=2
    ).stderr.splitlines()
    assert "does not fit the network" in said


@pytest.mark.usefixtures("own")
def test_arrays_in_a_file_do_as_well_as_a_function(perdure):
    words = (*ASK, "--weights", "three.pt", "--outputs", 3, "--method", "grad", "--data")
    from_file, from_function = (perdure(*words, place).stdout for place in ("own.npz", "own.py:data"))
    assert from_file.replace("own.npz", "own.py:data") == from_function
    assert "masked values take the background's mean" in from_file
    assert "the network gives it the highest score on" in from_file
    assert "masked values take zero" in perdure(*words, "own.npz", "--baseline", "zero").stdout


@pytest.mark.usefixtures("own")
def test_what_is_left_out_unasked_is_no_failure_and_the_controls_stand_together(perdure):
    done = perdure(*ASK, "--data", "own.py:data")
    assert "gradcam was left out" in done.stderr
    rows = [line.split()[0] if line.strip() else "" for line in done.stdout.splitlines()]
    first = min(rows.index("constant"), rows.index("random"))
    assert {rows[first], rows[first + 1]} == {"constant", "random"}
    assert rows[first - 1] == ""
    perdure(*ASK, "--data", "own.py:data", "--method", "grad", "--method", "gradcam", code=1)


def test_what_is_found_about_a_record_goes_nowhere_else(perdure, records):
    assert "kept in the record; leave it out" in perdure("trust", records[0], "--out", "there", code=2).stderr
