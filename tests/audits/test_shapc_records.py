"""The SHAPC audit of records and of a user's own checkpoints: rebuilding, comparing, refusing, and the command line."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

import perdure
from perdure import learners, metrics, tasks
from perdure.audits import Audit, compare
from perdure.audits import audit as audit_records
from perdure.audits import audit_shapc as shapc
from perdure.audits.shapc.results import ShapcResult
from perdure.base.errors import InputError
from perdure.record import Record
from perdure.runs.loaded_run import rebuilt_benchmark
from tests.helpers.checkpoints import DATA, SIDE, Net, audited, folder, net


def runs_of(tmp_path, **kwargs):
    benchmark = tasks.load("split-digits", tasks=2, per_class=20)
    training = learners.Training(epochs=2, lr=0.1)
    made = []
    for name in ("naive", "rehearsal"):
        for seed in (0, 1):
            run = learners.Run(benchmark, learners.get(name), network="small-conv", training=training, seed=seed)
            learners.execute(run, tmp_path / name / f"seed-{seed}")
            made.append(tmp_path / name / f"seed-{seed}")
    return made


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return runs_of(tmp_path_factory.mktemp("runs"))


def test_records_are_rebuilt_and_compared_by_pairs(runs):
    options = {"samples": 20, "per_task": 8, "background": 10}
    found = audit_records([path.parent for path in (runs[0], runs[2])], stability=options, retrain_reference=True)
    assert len(found.stability) == 4
    naive = next(entry for entry in found.learners if entry.learner == "naive")
    own = [one.mean.mean for one in found.stability if one.learner == "naive"]
    assert naive.measures["shapc_mean"].mean == pytest.approx(np.mean(own))
    (difference,) = found.differences
    one = {r.seed: r for r in found.stability if r.learner == difference.first}
    other = {r.seed: r for r in found.stability if r.learner == difference.second}
    expected = np.mean([one[seed].mean.mean - other[seed].mean.mean for seed in (0, 1)])
    assert difference.difference.mean == pytest.approx(expected)
    assert difference.difference.runs == 2
    assert str(difference.first) in str(difference)
    reference = found.stability[0].retraining
    assert reference is not None
    assert reference.steps == (0,)
    assert reference.runs == (found.stability[0].run, found.stability[1].run)
    assert Audit.from_json(found.to_json()).to_json() == found.to_json()


def test_a_record_trained_with_another_augmentation_is_rebuilt_with_it(tmp_path, runs):
    benchmark = replace(tasks.load("split-digits", tasks=2, per_class=10), augmentation="crop")
    run = learners.Run(benchmark, learners.get("naive"), "small-conv", training=learners.Training(epochs=1))
    record = learners.execute(run, tmp_path / "crop")
    assert rebuilt_benchmark(record).augmentation == "crop"
    assert rebuilt_benchmark(Record.open(runs[0])).augmentation == tasks.load("split-digits").augmentation


def test_a_single_record_is_trained_again_for_its_reference(runs):
    options = {"samples": 20, "per_task": 8, "background": 10}
    found = shapc(runs[0], retrain_reference=True, **options)
    assert found.retraining is not None
    assert found.retraining.steps == (0,)
    assert Path(found.retraining.runs[1]).name == "retrained-seed-1000"
    assert found.retraining.mean.mean < 1
    # The same samples under the same network would be a reference of 1; a record inside a record is no run.
    assert len(audit_records(runs[0]).learners[0].runs) == 1
    again = shapc(runs[0], retrain_reference=runs[1], **options)
    assert again.retraining is not None
    assert again.retraining.runs[1] == str(runs[1])
    with pytest.raises(InputError, match="expected another seed"):
        shapc(runs[0], retrain_reference=runs[0], **options)


def planted(learner: str, seed: int, values: np.ndarray) -> ShapcResult:
    interval = metrics.interval([float(values.mean())])
    return ShapcResult(
        run=f"{learner}/{seed}", learner=learner, benchmark="b", seed=seed, tasks=("1", "2"), curriculum=(0, 1), settings={},
        mean=interval, var=interval, calibrated=interval, limit=interval, matrices={}, sensitivity={}, outcomes={}, budget="",
        budget_is_enough=True, stopped="", table={0: values[:, None]}, samples={0: np.arange(len(values))},
    )  # fmt: skip


def test_comparison_corrects_for_the_number_of_pairs_and_says_it_in_words():
    rng = np.random.default_rng(0)
    results = []
    for seed in range(5):
        base = rng.uniform(0.3, 0.5, size=30)
        for learner, shift in (("a", 0.2), ("b", 0.0), ("c", 0.0)):
            results.append(planted(learner, seed, base + shift + rng.normal(scale=0.02, size=30)))
    found = {(one.first, one.second): one for one in compare(results)}
    assert str(found["a", "b"]).startswith("a is more stable than b: +0.")
    assert "not told apart" in str(found["b", "c"])
    raw = [one.difference.p for one in found.values()]
    assert [one.p for one in found.values()] == pytest.approx(metrics.holm(raw).tolist())
    alone = compare(results[:2])
    assert "not of the methods" in str(alone[0])
    # Audits made differently, or of different benchmarks, are not compared.
    assert compare([results[0], planted("z", 9, base)]) == ()


def with_nan() -> Net:
    broken = net(3)
    broken.last.weight.data[0, 0] = math.nan
    return broken


BAD: dict[str, tuple[list[Net], dict[str, Any]]] = {
    "architecture": ([net(), net(hidden=10)], {}),
    "no data": ([net(), net(3)], {"data": DATA[:1]}),
    "class": ([net(), net(3)], {"data": [DATA[0], (DATA[1][0], DATA[1][1] + 9)]}),
    "nan": ([net(), with_nan()], {}),
    "one task": ([net()], {"data": DATA[:1]}),
    "shape": ([net(), net(3)], {"data": [DATA[0], (DATA[1][0][:5], DATA[1][1])]}),
    "labels": ([net(), net(3)], {"data": [DATA[0], (DATA[1][0], DATA[1][1] * 0.5)]}),
    "no network": ([net(), net(3)], {"network": None}),
    "method": ([net(), net(3)], {"method": "expected_gradient"}),
    "setting": ([net(), net(3)], {"sample": 3}),
    "precision": ([net(), net(3)], {"precision": 2}),
    "not a network": ([net(), net(3)], {"network": dict}),
}


@pytest.mark.parametrize(
    ("number", "words"),
    [
        ("architecture", "does not fit the network"),
        ("no data", "2 checkpoints but data for 1 tasks"),
        ("class", "class 12, but the network has outputs 0 to 3"),
        ("nan", "NaN or infinite weights in 'last.weight'"),
        ("one task", "only one task"),
        ("shape", "data of task 2: 5 inputs and labels"),
        ("labels", "labels of type float64, the smallest 1.0; expected output units"),
        ("no network", "this is no record"),
        ("method", "expected_gradients"),
        ("setting", "no setting 'sample'"),
        ("precision", "precision: expected"),
        ("not a network", "torch.nn.Module"),
    ],
)
def test_bad_input_is_one_clear_line(tmp_path, number, words):
    states, options = BAD[number]
    path = folder(tmp_path / "bad", *states)
    with pytest.raises(InputError, match=words) as raised:
        audited(path, **options)
    assert "\n" not in str(raised.value)


def test_records_that_cannot_be_compared_say_why(tmp_path, runs):
    recorder = perdure.Recorder(tmp_path / "bare", tasks=2)
    for _ in range(2):
        recorder.after_task(accuracy=[0.9, 0.5])
    with pytest.raises(InputError, match="no checkpoint was kept"):
        shapc(tmp_path / "bare", network=Net, data=DATA)
    recorder = perdure.Recorder(tmp_path / "own", tasks=2)
    for number in range(2):
        recorder.after_task(net(number), accuracy=[0.9, 0.5])
    with pytest.raises(InputError, match="does not say where its data came from"):
        shapc(tmp_path / "own")
    with pytest.raises(InputError, match="there is no such directory"):
        shapc(tmp_path / "nowhere")
    with pytest.raises(InputError, match="only a record of perdure run can be trained again"):
        audited(folder(tmp_path / "plain", net(), net(3)), retrain_reference=True)


def test_two_audits_of_one_record_do_not_meet(tmp_path):
    path = folder(tmp_path / "locked", net(), net(3))

    def second(done, total, estimate):
        with pytest.raises(InputError, match="another process"):
            audited(path)

    audited(path, per_task=8, progress=second)


def test_a_revisited_task_is_compared_from_its_first_visit(tmp_path):
    recorder = perdure.Recorder(tmp_path / "again", tasks=2, curriculum=[0, 1, 0])
    for number in range(3):
        recorder.after_task(net(number), accuracy=[0.9, 0.5])
    found = shapc(tmp_path / "again", network=Net, data=DATA, per_task=8, samples=20, background=10)
    assert np.argwhere(~np.isnan(found.matrices["shapc"])).tolist() == [[0, 1], [0, 2], [1, 2]]


def test_command_line(perdure, tmp_path, runs):
    printed = perdure(
        "audit", runs[0], "--shapc", "--samples", 20, "--per-task", 8, "--background", 10, "--out", tmp_path / "a.json"
    ).stdout
    for words in ("SHAPC-Mean", "calibrated", "still correct", "important share 10%", "the logit of the true class"):
        assert words in printed
    assert Audit.load(tmp_path / "a.json").stability[0].settings["samples"] == 20


def test_command_line_with_checkpoints_of_your_own(perdure, tmp_path):
    path = folder(tmp_path / "mine", net(), net(3))
    (tmp_path / "own.py").write_text(
        "import numpy as np\nfrom torch import nn\n"
        "def make():\n"
        f"    return nn.Sequential(nn.Flatten(), nn.Linear({SIDE * SIDE}, 24), nn.ReLU(), nn.Linear(24, 4))\n"
        "def sets():\n"
        "    rng = np.random.default_rng(0)\n"
        f"    return [(rng.normal(size=(16, 1, {SIDE}, {SIDE})), np.arange(16) % 2 + 2 * task) for task in range(2)]\n"
    )
    for number, file in enumerate(sorted(path.iterdir())):
        state = load_file(file)
        places = {"first": "1", "last": "3"}
        save_file({f"{places[n.split('.')[0]]}.{n.split('.')[1]}": v for n, v in state.items()}, file)
        assert number < 2
    options = ["--shapc", "--samples", 20, "--per-task", 8, "--network", "own.py:make", "--data", "own.py:sets"]
    printed = perdure("audit", path, *options)
    assert "SHAPC-Mean" in printed.stdout
    as_json = json.loads(perdure("audit", path, *options, "--json").stdout)
    assert as_json["learner"] == "mine"
    assert as_json["mean"]["mean"] < 1
    assert "no record" in perdure("audit", path, "--shapc", code=2).stderr
    assert "are for --shapc" in perdure("audit", path, "--network", "own.py:make", code=2).stderr


def test_a_learner_that_decides_by_distance_says_which_score_was_explained(tmp_path):
    benchmark = tasks.load("split-digits", tasks=2, per_class=20)
    training = learners.Training(epochs=2, lr=0.1)
    run = learners.Run(benchmark, learners.get("icarl"), "small-conv", training=training, settings={"buffer": 40})
    record = learners.execute(run, tmp_path / "icarl")
    options = {"method": "gradient_x_input", "background": 10}
    logits = shapc(record.path, per_task=10_000, **options)
    decision = shapc(record.path, score="decision", per_task=8, **options)
    assert logits.mean != decision.mean
    assert logits.settings["explained"] == (
        "the network's logit of the true class; the learner decides by nearest class mean"
    )
    assert "by which the learner decides (nearest class mean)" in decision.settings["explained"]
    # Outcomes are the learner's own decisions: over all test samples, the accuracies of the record.
    lost = logits.outcomes["forgotten"].n + logits.outcomes["still correct"].n
    assert lost == round(record.table[0, 0] * len(benchmark.tasks[0].test))
