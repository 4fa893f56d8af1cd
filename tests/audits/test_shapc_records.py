"""SHAPC of records and of a user's checkpoints: loading, comparing learners, refusals, and the command line."""

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
from perdure.audits import Audit, ShapcSettings, audit_shapc, shapc_result_differences
from perdure.audits import audit as audit_records
from perdure.audits.shapc.results import ShapcResult
from perdure.audits.shapc.values import UNIT
from perdure.base.errors import InputError
from perdure.engine.local import LocalEngine
from perdure.record import Record
from perdure.runs.loaded_run import recorded_run_benchmark
from tests.helpers.checkpoints import DATA, SIDE, Net, audited, folder, net
from tests.helpers.crashes import contents

SETTINGS = ShapcSettings(samples=20, background=10)


def train_runs(folder_path: Path) -> list[Path]:
    """Train two learners with two seeds each; return the records."""
    benchmark = tasks.load("split-digits", tasks=2, per_class=20)
    training = learners.Training(epochs=2, lr=0.1)
    records = []
    for name in ("naive", "rehearsal"):
        for seed in (0, 1):
            run = learners.Run(benchmark, learners.get(name), network="small-conv", training=training, seed=seed)
            records.append(learners.execute(run, folder_path / name / f"seed-{seed}").path)
    return records


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return train_runs(tmp_path_factory.mktemp("runs"))


def test_learners_are_compared_over_common_seeds_and_seeds_form_the_reference(runs):
    audit = audit_records(
        [path.parent for path in (runs[0], runs[2])], shapc=SETTINGS, examples=8, retrain_reference=True
    )
    assert len(audit.shapc) == 4
    naive = next(entry for entry in audit.learners if entry.learner == "naive")
    means = [result.mean.mean for result in audit.shapc if result.learner == "naive"]
    assert naive.measures["shapc_mean"].mean == pytest.approx(np.mean(means))
    difference, calibrated = audit.differences
    assert (difference.measure, calibrated.measure) == ("shapc_mean", "shapc_calibrated")
    first = {result.seed: result for result in audit.shapc if result.learner == difference.first}
    second = {result.seed: result for result in audit.shapc if result.learner == difference.second}
    expected = np.mean([first[seed].mean.mean - second[seed].mean.mean for seed in (0, 1)])
    assert difference.difference.mean == pytest.approx(expected)
    assert difference.difference.runs == 2
    assert str(difference.first) in str(difference)
    expected = np.mean([first[seed].calibrated.mean - second[seed].calibrated.mean for seed in (0, 1)])
    assert calibrated.difference.mean == pytest.approx(expected)
    assert str(calibrated).startswith("Calibrated SHAPC of ")
    reference = audit.shapc[0].retraining
    assert reference is not None
    assert reference.steps == (0,)
    assert reference.runs == (audit.shapc[0].run, audit.shapc[1].run)
    assert Audit.from_json(audit.to_json()).to_json() == audit.to_json()


def test_the_augmentation_of_a_record_is_restored(tmp_path, runs):
    benchmark = replace(tasks.load("split-digits", tasks=2, per_class=10), augmentation="crop")
    run = learners.Run(benchmark, learners.get("naive"), "small-conv", training=learners.Training(epochs=1))
    record = learners.execute(run, tmp_path / "crop")
    assert recorded_run_benchmark(record).augmentation == "crop"
    assert recorded_run_benchmark(Record.open(runs[0])).augmentation == tasks.load("split-digits").augmentation


def test_a_single_record_is_retrained_for_its_reference(runs):
    retrained = audit_shapc(runs[0], settings=SETTINGS, examples=8, retrain_reference=True).retraining
    assert retrained is not None
    assert retrained.steps == (0,)
    assert Path(retrained.runs[1]).parts[-2:] == ("retrained", "seed-1000")
    # Two equal networks would score 1.
    assert retrained.mean.mean < 1
    # The retrained network is stored inside the record, and an audit does not count it as a run.
    assert len(audit_records(runs[0]).learners[0].runs) == 1
    other_seed = audit_shapc(runs[0], settings=SETTINGS, examples=8, retrain_reference=runs[1]).retraining
    assert other_seed is not None
    assert other_seed.runs[1] == str(runs[1])
    with pytest.raises(InputError, match="expected another seed"):
        audit_shapc(runs[0], settings=SETTINGS, examples=8, retrain_reference=runs[0])


def test_a_reference_with_more_examples_than_the_audit_computes_their_floor(runs):
    result = audit_shapc(runs[0], settings=SETTINGS, precision=0.9, retrain_reference=runs[1])
    assert len(result.examples[0]) == UNIT
    reference = result.retraining
    assert reference is not None
    assert reference.mean.n > UNIT
    assert math.isfinite(reference.calibrated.low)


def test_learners_with_the_same_networks_are_explained_on_an_engine(tmp_path):
    """One batch per task does not move away from the anchor of l2, so its networks are those of naive."""
    benchmark = tasks.load("split-digits", tasks=2, per_class=2)
    training = learners.Training(epochs=1)
    for name in ("naive", "l2"):
        run = learners.Run(benchmark, learners.get(name), "small-conv", training=training)
        learners.execute(run, tmp_path / name)
    with LocalEngine(1) as engine:
        audit = audit_records(tmp_path, shapc=SETTINGS, examples=2, engine=engine)
    l2, naive = audit.shapc
    assert (l2.learner, naive.learner) == ("l2", "naive")
    assert l2.folder != naive.folder
    np.testing.assert_array_equal(l2.table[0], naive.table[0])


def synthetic_result(learner: str, seed: int, values: np.ndarray) -> ShapcResult:
    interval = metrics.interval([float(values.mean())])
    return ShapcResult(
        run=f"{learner}/{seed}", learner=learner, benchmark="b", seed=seed, tasks=("1", "2"), curriculum=(0, 1), settings={},
        mean=interval, var=interval, calibrated=interval, floor=interval, ratio=interval, matrices={}, sensitivity={},
        outcomes={}, budget="", budget_is_enough=True, stopped="", table={0: values[:, None]},
        examples={0: np.arange(len(values))},
    )  # fmt: skip


def test_the_comparison_of_learners_is_corrected_for_the_number_of_pairs():
    rng = np.random.default_rng(0)
    results = []
    for seed in range(5):
        base = rng.uniform(0.3, 0.5, size=30)
        for learner, shift in (("a", 0.2), ("b", 0.0), ("c", 0.0)):
            results.append(synthetic_result(learner, seed, base + shift + rng.normal(scale=0.02, size=30)))
    differences = {(entry.first, entry.second): entry for entry in shapc_result_differences(results)}
    assert str(differences["a", "b"]).startswith("SHAPC-Mean of a is higher than that of b: +0.")
    assert "SHAPC-Mean of b and c does not differ significantly" in str(differences["b", "c"])
    raw = [entry.difference.p for entry in differences.values()]
    assert [entry.p for entry in differences.values()] == pytest.approx(metrics.holm(raw).tolist())
    single_seed = shapc_result_differences(results[:2])
    assert "this compares two networks, not two methods" in str(single_seed[0])
    # Runs without a common seed are not compared.
    assert shapc_result_differences([results[0], synthetic_result("z", 9, base)]) == ()


def network_with_nan() -> Net:
    broken = net(3)
    broken.last.weight.data[0, 0] = math.nan
    return broken


MISTAKES: dict[str, tuple[list[Net], dict[str, Any]]] = {
    "architecture": ([net(), net(hidden=10)], {}),
    "no data": ([net(), net(3)], {"data": DATA[:1]}),
    "class": ([net(), net(3)], {"data": [DATA[0], (DATA[1][0], DATA[1][1] + 9)]}),
    "nan": ([net(), network_with_nan()], {}),
    "one task": ([net()], {"data": DATA[:1]}),
    "shape": ([net(), net(3)], {"data": [DATA[0], (DATA[1][0][:5], DATA[1][1])]}),
    "labels": ([net(), net(3)], {"data": [DATA[0], (DATA[1][0], DATA[1][1] * 0.5)]}),
    "no network": ([net(), net(3)], {"network": None}),
    "method": ([net(), net(3)], {"method": "expected_gradient"}),
    "option": ([net(), net(3)], {"options": {"sample": 3}}),
    "precision": ([net(), net(3)], {"precision": 2}),
    "not a network": ([net(), net(3)], {"network": dict}),
}


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ("architecture", "does not fit the network"),
        ("no data", "2 checkpoints but data for 1 tasks"),
        ("class", "class 12, but the network has outputs 0 to 3"),
        ("nan", "NaN or infinite weights in 'last.weight'"),
        ("one task", "only one task"),
        ("shape", "data of task 2: 5 inputs and labels"),
        ("labels", "data of task 2: labels of type float64 .regression., but those of task 1 are classes; expected"),
        ("no network", "not a record"),
        ("method", "expected_gradients"),
        ("option", "sample"),
        ("precision", "precision: expected"),
        ("not a network", "torch.nn.Module"),
    ],
)
def test_invalid_input_is_refused_in_one_line(tmp_path, mistake, message):
    states, options = MISTAKES[mistake]
    path = folder(tmp_path / "bad", *states)
    with pytest.raises(InputError, match=message) as raised:
        audited(path, **options)
    assert "\n" not in str(raised.value)


def test_records_without_checkpoints_or_data_are_refused(tmp_path, runs):
    recorder = perdure.Recorder(tmp_path / "bare", tasks=2)
    for _ in range(2):
        recorder.after_task(accuracy=[0.9, 0.5])
    with pytest.raises(InputError, match="no checkpoint was saved"):
        audit_shapc(tmp_path / "bare", network=Net, data=DATA)
    recorder = perdure.Recorder(tmp_path / "own", tasks=2)
    for number in range(2):
        recorder.after_task(net(number), accuracy=[0.9, 0.5])
    with pytest.raises(InputError, match="does not name its network and its data"):
        audit_shapc(tmp_path / "own")
    with pytest.raises(InputError, match="no such directory"):
        audit_shapc(tmp_path / "nowhere")
    with pytest.raises(InputError, match="only a record of perdure run can be trained again"):
        audited(folder(tmp_path / "plain", net(), net(3)), retrain_reference=True)


def test_unknown_settings_are_refused(tmp_path):
    with pytest.raises(TypeError, match="sample"):
        audited(folder(tmp_path / "checkpoints", net(), net(3)), sample=3)


def test_two_simultaneous_audits_of_one_record_share_their_values(tmp_path):
    alone = audited(folder(tmp_path / "alone", net(), net(3)), examples=24)
    path = folder(tmp_path / "shared", net(), net(3))
    others: list[ShapcResult] = []

    def start_second(done, total, estimate):
        if done == 2 and not others:
            others.append(audited(path, examples=16))

    first = audited(path, examples=24, progress=start_second)
    assert first.mean == alone.mean
    assert [len(result.examples[0]) for result in others] == [16]
    assert contents(path / "cache") == contents(tmp_path / "alone" / "cache")


def test_a_revisited_task_is_compared_from_its_first_visit(tmp_path):
    recorder = perdure.Recorder(tmp_path / "again", tasks=2, curriculum=[0, 1, 0])
    for number in range(3):
        recorder.after_task(net(number), accuracy=[0.9, 0.5])
    result = audit_shapc(tmp_path / "again", network=Net, data=DATA, settings=SETTINGS, examples=8)
    assert np.argwhere(~np.isnan(result.matrices["shapc"])).tolist() == [[0, 1], [0, 2], [1, 2]]


def test_the_command_prints_shapc_and_writes_audit_json(perdure, tmp_path, runs):
    printed = perdure(
        "audit",
        runs[0],
        "--shapc",
        "--samples",
        20,
        "--examples",
        8,
        "--background",
        10,
        "--out",
        tmp_path / "a.json",
        "--details",
    ).stdout
    for text in (
        "SHAPC-Mean",
        "calibrated",
        "still correct",
        "share of important values: 10%",
        "the logit of the true class",
    ):
        assert text in printed
    assert Audit.load(tmp_path / "a.json").shapc[0].settings["samples"] == 20


def test_the_command_audits_a_folder_of_checkpoints(perdure, tmp_path):
    path = folder(tmp_path / "mine", net(), net(3))
    (tmp_path / "own.py").write_text(
        "import numpy as np\nfrom torch import nn\n"
        "def make():\n"
        f"    return nn.Sequential(nn.Flatten(), nn.Linear({SIDE * SIDE}, 24), nn.ReLU(), nn.Linear(24, 4))\n"
        "def sets():\n"
        "    rng = np.random.default_rng(0)\n"
        f"    return [(rng.normal(size=(16, 1, {SIDE}, {SIDE})), np.arange(16) % 2 + 2 * task) for task in range(2)]\n"
    )
    files = sorted(path.iterdir())
    assert len(files) == 2
    for file in files:
        state = load_file(file)
        indices = {"first": "1", "last": "3"}
        save_file({f"{indices[n.split('.')[0]]}.{n.split('.')[1]}": v for n, v in state.items()}, file)
    options = ["--shapc", "--samples", 20, "--examples", 8, "--network", "own.py:make", "--data", "own.py:sets"]
    printed = perdure("audit", path, *options)
    assert "SHAPC-Mean" in printed.stdout
    as_json = json.loads(perdure("audit", path, *options, "--json").stdout)
    assert as_json["learner"] == "mine"
    assert as_json["mean"]["mean"] < 1
    assert "not a record" in perdure("audit", path, "--shapc", code=2).stderr
    assert "need --shapc" in perdure("audit", path, "--network", "own.py:make", code=2).stderr


def test_the_explained_score_of_a_learner_that_decides_by_distance_is_described(tmp_path):
    benchmark = tasks.load("split-digits", tasks=2, per_class=20)
    training = learners.Training(epochs=2, lr=0.1)
    run = learners.Run(benchmark, learners.get("icarl"), "small-conv", training=training, settings={"buffer": 40})
    record = learners.execute(run, tmp_path / "icarl")
    settings = ShapcSettings(method="gradient_x_input", background=10)
    logits = audit_shapc(record.path, settings=settings, examples=10_000)
    decision = audit_shapc(record.path, settings=replace(settings, score="decision"), examples=8)
    assert logits.mean != decision.mean
    assert logits.settings["explained"] == (
        "the network's logit of the true class; the learner decides by nearest class mean"
    )
    assert "by which the learner decides (nearest class mean)" in decision.settings["explained"]
    # Outcomes are the learner's own decisions: over all test examples they equal the accuracy in the record.
    correct_before = logits.outcomes["forgotten"].n + logits.outcomes["still correct"].n
    assert correct_before == round(record.table[0, 0] * len(benchmark.tasks[0].test))
