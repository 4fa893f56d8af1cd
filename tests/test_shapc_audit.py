"""The SHAPC audit of checkpoints: its references, what it must see, resuming, and refusals."""

import json
import math
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import perdure
from perdure import learners, metrics, tasks
from perdure.audit import Audit, audit_records, compare, shapc
from perdure.audit.consistency import pair_values
from perdure.audit.samples import balanced_order
from perdure.audit.stability import Flight
from perdure.audit.stability_results import ShapcResult, scores
from perdure.audit.stability_settings import Settings
from perdure.audit.stability_store import UNIT, TaskValues
from perdure.audit.subject import rebuilt_benchmark
from perdure.errors import InputError
from perdure.record import Record
from tests.crashes import Crash, contents, crash_at_write

SIDE = 6


class Net(nn.Module):
    """Two layers with a bend between them, for images of one channel."""

    def __init__(self, outputs: int = 4, hidden: int = 24) -> None:
        super().__init__()
        self.flat, self.first, self.bend = nn.Flatten(), nn.Linear(SIDE * SIDE, hidden), nn.ReLU()
        self.last = nn.Linear(hidden, outputs)

    def forward(self, x):
        return self.last(self.bend(self.first(self.flat(x))))


def net(seed: int = 0, **sizes) -> Net:
    torch.manual_seed(seed)
    return Net(**sizes)


def moved(network: nn.Module, by: float, seed: int = 9) -> dict[str, torch.Tensor]:
    """The network's weights with noise of a share of their own spread on top."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: value + by * value.std() * torch.randn(value.shape, generator=generator)
        for name, value in network.state_dict().items()
    }


def samples(task: int, count: int = 24, seed: int = 0):
    rng = np.random.default_rng([seed, task])
    return rng.normal(size=(count, 1, SIDE, SIDE)).astype(np.float32), np.arange(count) % 2 + 2 * task


DATA = [samples(0), samples(1)]


def folder(path: Path, *states) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    for number, state in enumerate(states):
        plain = state if isinstance(state, dict) else state.state_dict()
        save_file(dict(plain), path / f"after-{number}.safetensors")
    return path


def audited(path, **options):
    given = {"network": Net, "data": DATA, "per_task": 16, "samples": 40, "background": 20}
    return shapc(path, **{**given, **options})


def test_equal_checkpoints_are_perfectly_stable(tmp_path):
    found = audited(folder(tmp_path / "same", net(), net()))
    assert found.mean.mean == 1
    assert found.calibrated.mean == pytest.approx(1, abs=1e-12)
    assert found.var.mean == 0
    # Independent halves of the same network do not reach 1: that is the noise the ceiling measures.
    assert found.matrices["independent"][0, 1] == found.matrices["ceiling"][0, 1] < 0.999
    assert found.matrices["floor"][0, 1] < 0.35


def test_shuffled_reasons_are_at_the_floor():
    rng = np.random.default_rng(0)
    settings, count = Settings(samples=40), 60
    reasons = rng.normal(size=(count, 3, 8, 8))
    order = rng.permuted(np.tile(np.arange(64), (count, 1)), axis=1)[:, None]
    elsewhere = np.take_along_axis(
        reasons.reshape(count, 3, 64), np.broadcast_to(order, (count, 3, 64)), axis=-1
    ).reshape(reasons.shape)
    noise = rng.normal(scale=0.4, size=(4, *reasons.shape))
    before, after = (reasons + noise[0], reasons + noise[1]), (elsewhere + noise[2], elsewhere + noise[3])
    values = pair_values(before, after, np.arange(count), settings)
    task = TaskValues(
        np.arange(count), np.zeros(count, int), np.zeros((count, 2), int), {k: v[:, None] for k, v in values.items()}
    )
    found = scores({0: task}, 2, settings.shares, "paper", 0)
    assert found.calibrated.low <= 0 <= found.calibrated.high
    assert found.calibrated.high - found.calibrated.low < 0.1
    # The positions of both channels and halves move together, and nothing but the positions moves.
    assert values["floor"].mean() == pytest.approx(values["independent"].mean(), abs=0.02)
    assert values["ceiling"].mean() > 0.5


def test_more_noise_in_the_weights_is_less_stable(tmp_path):
    base = net()
    means = [audited(folder(tmp_path / str(by), base, moved(base, by))) for by in (0.0, 0.1, 0.3, 1.0, 4.0)]
    headline, calibrated = [one.mean.mean for one in means], [one.calibrated.mean for one in means]
    assert headline == sorted(headline, reverse=True)
    assert calibrated == sorted(calibrated, reverse=True)
    assert headline[0] - headline[-1] > 0.3


class Patch(nn.Module):
    """Decides by the brightness of the left half, the right half, or both."""

    def __init__(self) -> None:
        super().__init__()
        self.flat, self.last = nn.Flatten(), nn.Linear(SIDE * SIDE, 4)

    def forward(self, x):
        return self.last(self.flat(x))


def looking_at(columns: slice) -> dict[str, torch.Tensor]:
    mask = torch.zeros(SIDE, SIDE)
    mask[:, columns] = 1
    rows = torch.stack([-mask.flatten(), mask.flatten()] * 2)
    return {"last.weight": rows, "last.bias": torch.zeros(4)}


def test_a_reason_that_moved_is_caught_while_accuracy_stays(tmp_path):
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    x = (rng.normal(scale=0.3, size=(40, 1, SIDE, SIDE)) + (2 * y - 1)[:, None, None, None]).astype(np.float32)
    data = [(x, y), (x, y)]
    left, right = looking_at(slice(0, 3)), looking_at(slice(3, 6))
    both = {"network": Patch, "data": data}
    kept, swapped = (
        audited(folder(tmp_path / name, left, last), **both) for name, last in (("kept", left), ("swapped", right))
    )
    for found in (kept, swapped):
        assert found.outcomes["still correct"].n == 16
        assert found.outcomes["forgotten"].n == 0
    assert kept.calibrated.mean == pytest.approx(1)
    assert swapped.calibrated.high < 0.1


def test_split_by_outcome_counts_and_averages_the_right_samples(tmp_path):
    base, later = net(), net(3)
    found = audited(folder(tmp_path / "split", base, later), keep_maps=True)
    x, y = DATA[0]
    taken = found.samples[0]
    with torch.no_grad():
        before = base(torch.tensor(x[taken])).argmax(1).numpy() == y[taken]
        after = later(torch.tensor(x[taken])).argmax(1).numpy() == y[taken]
    kept, lost = before & after, before & ~after
    assert found.outcomes["still correct"].n == kept.sum()
    assert found.outcomes["forgotten"].n == lost.sum() > 0
    assert found.outcomes["forgotten"].mean == pytest.approx(found.table[0][lost, 0].mean())


def test_values_are_the_metric_on_the_kept_maps(tmp_path):
    found = audited(folder(tmp_path / "maps", net(), net(3)), keep_maps=True)
    units = [load_file(file) for file in sorted(Path(found.folder, "maps").glob("*.safetensors"))]
    maps = {name: torch.cat([unit[name] for unit in units]) for name in units[0]}
    assert np.array_equal(maps["sample"], found.samples[0])
    same = [metrics.shapc(maps[f"after-01.{half}"], maps[f"after-02.{half}"]) for half in "AB"]
    assert found.table[0][:, 0] == pytest.approx((same[0] + same[1]) / 2, abs=1e-4)
    crossed = [metrics.shapc(maps[f"after-01.{a}"], maps[f"after-02.{b}"]) for a, b in ("AB", "BA")]
    assert found.matrices["independent"][0, 1] == pytest.approx(np.mean(crossed), abs=1e-4)
    own = [metrics.shapc(maps[f"after-0{step}.A"], maps[f"after-0{step}.B"]) for step in (1, 2)]
    assert found.matrices["ceiling"][0, 1] == pytest.approx(np.mean(own), abs=1e-4)
    span = found.matrices["ceiling"] - found.matrices["floor"]
    expected = (found.matrices["independent"] - found.matrices["floor"])[0, 1] / span[0, 1]
    assert found.calibrated.mean == pytest.approx(expected)
    assert [found.sensitivity[share][0].mean for share in (0.1, 0.3, 0.5)] == pytest.approx(
        [
            np.mean([metrics.shapc(maps[f"after-01.{h}"], maps[f"after-02.{h}"], share) for h in "AB"])
            for share in (0.1, 0.3, 0.5)
        ],
        abs=1e-4,
    )
    assert tuple(maps["pictures"].shape) == (16, 1, SIDE, SIDE)


def test_authors_variant(tmp_path):
    path = folder(tmp_path / "authors", net(), net(3))
    found = audited(path, keep_maps=True, variant="authors")
    unit = [load_file(file) for file in sorted(Path(found.folder, "maps").glob("*.safetensors"))]
    maps = {name: torch.cat([part[name] for part in unit]) for name in unit[0]}
    same = [
        metrics.shapc(maps[f"after-01.{half}"], maps[f"after-02.{half}"], channels="sum", normalise="range")
        for half in "AB"
    ]
    values = (same[0] + same[1]) / 2
    assert found.table[0][:, 0] == pytest.approx(values, abs=1e-4)
    expected = metrics.summarise_shapc({(0, 1): values}, "authors", {0: maps["label"].numpy()})
    assert found.var.mean == pytest.approx(expected.var, abs=1e-4)


def test_samples_are_balanced_over_classes_at_every_moment():
    labels = np.array([0] * 30 + [5] * 30 + [7] * 4)
    order = balanced_order(labels, 1, 2)
    assert sorted(order) == list(range(64))
    first = labels[order[:12]]
    assert [(first == unit).sum() for unit in (0, 5, 7)] == [4, 4, 4]
    assert np.array_equal(order, balanced_order(labels, 1, 2))
    assert not np.array_equal(order, balanced_order(labels, 1, 3))


def values_of(found: ShapcResult) -> bytes:
    return Path(found.folder, "values.csv").read_bytes()


def test_an_interrupted_audit_goes_on_to_the_same_bits(tmp_path):
    states = net(), net(3), net(4)
    data = [samples(0), samples(1), samples(0, seed=5)]
    whole = audited(folder(tmp_path / "whole", *states), data=data, per_task=24)
    path = folder(tmp_path / "cut", *states)

    def stop(done, total, estimate):
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        audited(path, data=data, per_task=24, progress=stop)
    cut = next((path / "shapc").iterdir()) / "values.csv"
    assert 0 < len(cut.read_text().splitlines()) < len(values_of(whole).splitlines())
    again = audited(path, data=data, per_task=24)
    assert values_of(again) == values_of(whole)
    assert again.mean == whole.mean


@pytest.mark.parametrize("after", [False, True])
def test_a_killed_audit_goes_on_to_the_same_bits(tmp_path, monkeypatch, after):
    states = net(), net(3)
    monkeypatch.setattr("perdure.audit.stability.SAVE_SECONDS", 0.0)
    whole = audited(folder(tmp_path / "whole", *states))
    path = folder(tmp_path / "killed", *states)
    for number in range(1, 4):
        with monkeypatch.context() as patched:
            crash_at_write(patched, number, after)
            try:
                audited(path)
            except Crash:
                continue
    audited(path)
    assert contents(path / "shapc") == contents(tmp_path / "whole" / "shapc")
    assert values_of(whole)


def test_more_samples_build_on_those_already_taken(tmp_path, monkeypatch):
    states = net(), net(3)
    direct = audited(folder(tmp_path / "direct", *states), per_task=20)
    path = folder(tmp_path / "steps", *states)
    first = audited(path, per_task=5)
    assert len(first.samples[0]) == 5
    assert audited(path, per_task=20).mean == direct.mean
    # Asked again for fewer, it answers as it did then, without any work.
    monkeypatch.setattr(Flight, "_unit", None)
    assert audited(path, per_task=5).mean == first.mean


def test_precision_stops_when_the_interval_is_narrow_enough(tmp_path):
    path = folder(tmp_path / "precise", net(), net(3))
    data = [samples(0, 200), samples(1, 200)]
    estimates = []
    found = audited(
        path, data=data, per_task=None, precision=0.02,
        progress=lambda done, total, estimate: estimates.append(estimate) if estimate else None,
    )  # fmt: skip
    widths = [(one.high - one.low) / 2 for one in estimates]
    assert widths[-1] <= 0.02 < min(widths[:-1])
    assert len(found.samples[0]) == UNIT * len(estimates) < 200
    last = estimates[-1]
    assert (last.mean, last.low, last.high) == pytest.approx((found.mean.mean, found.mean.low, found.mean.high))
    assert "0.02" in found.stopped
    loose = audited(path, data=data, per_task=None, precision=1e-6)
    assert loose.stopped == "all test samples are taken"
    assert len(loose.samples[0]) == 200


def test_the_budget_check_says_whether_it_was_enough(tmp_path):
    base = net()
    path = folder(tmp_path / "budget", base, moved(base, 1.0))
    data = [samples(0, 64), samples(1, 64)]
    poor, rich = (audited(path, data=data, per_task=64, samples=count) for count in (20, 800))
    assert not poor.budget_is_enough
    assert "raise the budget" in poor.budget
    assert rich.budget_is_enough
    assert "from 400 to 800" in rich.budget
    # What the check is for: with little budget the calibrated score is off, and its announced limit is nearer.
    assert abs(poor.limit.mean - rich.calibrated.mean) < abs(poor.calibrated.mean - rich.calibrated.mean) / 2


@pytest.mark.parametrize("method", ["grad", "integrated_gradients", "deepshap", "lime", "shapley"])
def test_any_explainer_may_be_chosen(tmp_path, method):
    found = audited(folder(tmp_path / method, net(), net()), method=method, per_task=8, samples=8)
    assert found.mean.mean == 1
    if method in ("lime", "shapley"):
        assert found.matrices["ceiling"][0, 1] < 1
    else:
        assert found.matrices["ceiling"][0, 1] == 1
        assert "draws nothing" in found.budget


def test_target_is_chosen_and_recorded(tmp_path):
    path = folder(tmp_path / "target", net(), net(3))
    label, predicted = (audited(path, target=target) for target in ("label", "predicted"))
    assert label.mean != predicted.mean
    assert "true class" in label.settings["explained"]
    assert "decides for" in predicted.settings["explained"]


def test_torch_files_and_nested_states_are_read_without_unpickling_code(tmp_path):
    states = net(), net(3)
    expected = audited(folder(tmp_path / "plain", *states))
    path = tmp_path / "torch"
    path.mkdir()
    torch.save(states[0].state_dict(), path / "a.pt")
    torch.save({"epoch": 3, "state_dict": states[1].state_dict()}, path / "b.pth")
    assert audited(path).mean == expected.mean
    torch.save(states[0], path / "a.pt")
    with pytest.raises(InputError, match="cannot be read as weights alone"):
        audited(path)


def test_own_loop_is_audited_in_three_lines(tmp_path):
    recorder = perdure.Recorder(tmp_path / "mine", tasks=2)
    for number in range(2):
        recorder.after_task(net(number), accuracy=[0.9, 0.5])
    found = perdure.audit(tmp_path / "mine", network=Net, data=DATA)  # type: ignore[operator]
    assert len(found.stability) == 1
    assert found.learners[0].measures["shapc_mean"] == found.stability[0].mean
    assert Audit.from_json(found.to_json()).to_json() == found.to_json()


def test_memory_does_not_grow_with_samples(tmp_path):
    path = folder(tmp_path / "memory", net(), net(3))
    data = [samples(0, 160), samples(1, 160)]
    audited(path, data=data, per_task=8)
    peaks = []
    for count in (24, 160):
        tracemalloc.start()
        audited(path, data=data, per_task=count, samples=4, background=4)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # What is kept is some fifteen numbers a sample; the maps of two networks and two halves would be 144.
    assert peaks[1] - peaks[0] < 136 * 4 * SIDE * SIDE * 8


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
        ("shape", "task 2 has 5 inputs and labels"),
        ("labels", "must be output units"),
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


class Headed(nn.Module):
    """An encoder and a head, as our networks have them."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, 24), nn.ReLU()), nn.Linear(24, 4)

    def forward(self, x):
        return self.head(self.body(x))


def test_one_head_for_all_checkpoints_shows_the_encoder_alone(tmp_path):
    torch.manual_seed(0)
    first, other = Headed(), Headed()
    new_head = {**first.state_dict(), **{name: value for name, value in other.state_dict().items() if "head" in name}}
    path = folder(tmp_path / "heads", first, new_head)
    own, shared = (audited(path, network=Headed, head=head) for head in ("own", "first"))
    assert own.mean.mean < 0.9
    assert shared.mean.mean == 1
    # Outcomes stay the learner's own.
    assert shared.outcomes["forgotten"].n == own.outcomes["forgotten"].n
    assert "head of the sample's own step" in shared.settings["explained"]
    with pytest.raises(InputError, match="no part named 'head'"):
        audited(folder(tmp_path / "none", net(), net(3)), head="first")
