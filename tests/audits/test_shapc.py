"""The SHAPC audit of checkpoints: its references, what it must see, and resuming."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import perdure
from perdure import metrics
from perdure.audits import Audit
from perdure.audits.shapc.pair_values import pair_values
from perdure.audits.shapc.results import ShapcResult, scores
from perdure.audits.shapc.runner import Flight
from perdure.audits.shapc.settings import Settings
from perdure.audits.shapc.values import UNIT, TaskValues
from perdure.base.errors import InputError
from perdure.runs.data import balanced_order
from tests.helpers.checkpoints import DATA, SIDE, Net, audited, folder, moved, net, samples
from tests.helpers.crashes import Crash, contents, crash_at_write


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
    monkeypatch.setattr("perdure.audits.shapc.runner.SAVE_SECONDS", 0.0)
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
    found = perdure.audit(tmp_path / "mine", network=Net, data=DATA)
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
