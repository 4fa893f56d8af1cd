"""SHAPC of checkpoints: its references, the changes it must detect, and resuming."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import perdure
from perdure import explain, metrics
from perdure.audits import Audit
from perdure.audits.shapc.results import ShapcResult
from perdure.audits.shapc.runner import ShapcRunner
from perdure.audits.shapc.values import UNIT
from perdure.base.errors import InputError
from perdure.runs.data import balanced_data_order
from tests.helpers.checkpoints import DATA, SIDE, Net, audited, examples, folder, net, perturbed
from tests.helpers.crashes import Crash, contents, crash_at_write


def test_equal_checkpoints_are_perfectly_stable(tmp_path):
    result = audited(folder(tmp_path / "same", net(), net()))
    assert result.mean.mean == 1
    assert (result.calibrated.mean, result.calibrated.low, result.calibrated.high) == (1, 1, 1)
    assert result.var.mean == 0
    # Independent halves of the same network do not reach 1: that is the noise the ceiling measures.
    assert result.matrices["independent"][0, 1] == result.matrices["ceiling"][0, 1] < 0.999
    assert result.matrices["floor"][0, 1] < 0.35


def test_more_weight_noise_lowers_shapc(tmp_path):
    base = net()
    results = [
        audited(folder(tmp_path / str(share), base, perturbed(base, share))) for share in (0.0, 0.1, 0.3, 1.0, 4.0)
    ]
    means, calibrated = [result.mean.mean for result in results], [result.calibrated.mean for result in results]
    assert means == sorted(means, reverse=True)
    assert calibrated == sorted(calibrated, reverse=True)
    assert means[0] - means[-1] > 0.3


class LinearNet(nn.Module):
    """A linear network whose weights select a region of the image."""

    def __init__(self) -> None:
        super().__init__()
        self.flat, self.last = nn.Flatten(), nn.Linear(SIDE * SIDE, 4)

    def forward(self, x):
        return self.last(self.flat(x))


def weights_on(columns: slice) -> dict[str, torch.Tensor]:
    mask = torch.zeros(SIDE, SIDE)
    mask[:, columns] = 1
    rows = torch.stack([-mask.flatten(), mask.flatten()] * 2)
    return {"last.weight": rows, "last.bias": torch.zeros(4)}


def test_a_changed_reason_is_detected_although_accuracy_stays(tmp_path):
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    x = (rng.normal(scale=0.3, size=(40, 1, SIDE, SIDE)) + (2 * y - 1)[:, None, None, None]).astype(np.float32)
    data = [(x, y), (x, y)]
    left, right = weights_on(slice(0, 3)), weights_on(slice(3, 6))
    options = {"network": LinearNet, "data": data}
    unchanged, swapped = (
        audited(folder(tmp_path / name, left, last), **options)
        for name, last in (("unchanged", left), ("swapped", right))
    )
    for result in (unchanged, swapped):
        assert result.outcomes["still correct"].n == 16
        assert result.outcomes["forgotten"].n == 0
    assert unchanged.calibrated.mean == pytest.approx(1)
    assert swapped.calibrated.high < 0.1


def test_outcomes_count_and_average_the_examples_that_stay_correct_or_are_forgotten(tmp_path):
    base, later = net(), net(3)
    result = audited(folder(tmp_path / "split", base, later), keep_maps=True)
    x, y = DATA[0]
    rows = result.examples[0]
    with torch.no_grad():
        before = base(torch.tensor(x[rows])).argmax(1).numpy() == y[rows]
        after = later(torch.tensor(x[rows])).argmax(1).numpy() == y[rows]
    still_correct, forgotten = before & after, before & ~after
    assert result.outcomes["still correct"].n == still_correct.sum()
    assert result.outcomes["forgotten"].n == forgotten.sum() > 0
    assert result.outcomes["forgotten"].mean == pytest.approx(result.table[0][forgotten, 0].mean())


def test_values_equal_the_metric_on_the_stored_maps(tmp_path):
    result = audited(folder(tmp_path / "maps", net(), net(3)), keep_maps=True)
    units = [load_file(file) for file in sorted(Path(result.folder, "maps").glob("*.safetensors"))]
    maps = {name: torch.cat([unit[name] for unit in units]) for name in units[0]}
    assert np.array_equal(maps["sample"], result.examples[0])
    same = [metrics.shapc(maps[f"after-01.{half}"], maps[f"after-02.{half}"]) for half in "AB"]
    assert result.table[0][:, 0] == pytest.approx((same[0] + same[1]) / 2, abs=1e-4)
    crossed = [metrics.shapc(maps[f"after-01.{a}"], maps[f"after-02.{b}"]) for a, b in ("AB", "BA")]
    assert result.matrices["independent"][0, 1] == pytest.approx(np.mean(crossed), abs=1e-4)
    own = [metrics.shapc(maps[f"after-0{step}.A"], maps[f"after-0{step}.B"]) for step in (1, 2)]
    assert result.matrices["ceiling"][0, 1] == pytest.approx(np.mean(own), abs=1e-4)
    floor = result.matrices["floor"][0, 1]
    ratio = (result.matrices["independent"][0, 1] - floor) / (result.matrices["ceiling"][0, 1] - floor)
    assert result.ratio.mean == pytest.approx(ratio)
    before, after = ((maps[f"after-0{step}.A"] + maps[f"after-0{step}.B"]) / 2 for step in (1, 2))
    limit = np.mean(2 * metrics.shapc(before, after) - (same[0] + same[1]) / 2)
    assert result.calibrated.mean == pytest.approx((limit - floor) / (1 - floor), abs=1e-4)
    assert result.calibrated_table[0].mean() == pytest.approx(result.calibrated.mean)
    assert [result.sensitivity[share][0].mean for share in (0.1, 0.3, 0.5)] == pytest.approx(
        [
            np.mean([metrics.shapc(maps[f"after-01.{h}"], maps[f"after-02.{h}"], share) for h in "AB"])
            for share in (0.1, 0.3, 0.5)
        ],
        abs=1e-4,
    )
    assert tuple(maps["pictures"].shape) == (16, 1, SIDE, SIDE)


def test_authors_variant_equals_the_metric_of_the_authors(tmp_path):
    path = folder(tmp_path / "authors", net(), net(3))
    result = audited(path, keep_maps=True, variant="authors")
    units = [load_file(file) for file in sorted(Path(result.folder, "maps").glob("*.safetensors"))]
    maps = {name: torch.cat([unit[name] for unit in units]) for name in units[0]}
    same = [
        metrics.shapc(maps[f"after-01.{half}"], maps[f"after-02.{half}"], channels="sum", normalise="range")
        for half in "AB"
    ]
    values = (same[0] + same[1]) / 2
    assert result.table[0][:, 0] == pytest.approx(values, abs=1e-4)
    expected = metrics.summarise_shapc({(0, 1): values}, "authors", {0: maps["label"].numpy()})
    assert result.var.mean == pytest.approx(expected.var, abs=1e-4)


def test_every_prefix_of_the_example_order_is_balanced_over_classes():
    labels = np.array([0] * 30 + [5] * 30 + [7] * 4)
    order = balanced_data_order(labels, 1, 2)
    assert sorted(order) == list(range(64))
    first = labels[order[:12]]
    assert [(first == unit).sum() for unit in (0, 5, 7)] == [4, 4, 4]
    assert np.array_equal(order, balanced_data_order(labels, 1, 2))
    assert not np.array_equal(order, balanced_data_order(labels, 1, 3))


def values_file(result: ShapcResult) -> bytes:
    return Path(result.folder, "values.csv").read_bytes()


def test_an_interrupted_audit_resumes_with_bit_identical_values(tmp_path):
    states = net(), net(3), net(4)
    data = [examples(0), examples(1), examples(0, seed=5)]
    complete = audited(folder(tmp_path / "complete", *states), data=data, examples=24)
    path = folder(tmp_path / "interrupted", *states)

    def stop(done, total, estimate):
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        audited(path, data=data, examples=24, progress=stop)
    partial = next((path / "cache/shapc").iterdir()) / "values.csv"
    assert 0 < len(partial.read_text().splitlines()) < len(values_file(complete).splitlines())
    resumed = audited(path, data=data, examples=24)
    assert values_file(resumed) == values_file(complete)
    assert resumed.mean == complete.mean


@pytest.mark.parametrize("after", [False, True])
def test_a_killed_audit_resumes_with_bit_identical_files(tmp_path, monkeypatch, after):
    states = net(), net(3)
    complete = audited(folder(tmp_path / "complete", *states))
    path = folder(tmp_path / "killed", *states)
    for number in range(1, 4):
        with monkeypatch.context() as patched:
            crash_at_write(patched, number, after)
            try:
                audited(path)
            except Crash:
                continue
    audited(path)
    assert contents(path / "cache") == contents(tmp_path / "complete" / "cache")
    assert values_file(complete)


def test_more_examples_reuse_the_stored_ones(tmp_path, monkeypatch):
    states = net(), net(3)
    direct = audited(folder(tmp_path / "direct", *states), examples=20)
    path = folder(tmp_path / "steps", *states)
    first = audited(path, examples=5)
    assert len(first.examples[0]) == 5
    assert audited(path, examples=20).mean == direct.mean
    # Fewer examples give the earlier result without explaining anything.
    monkeypatch.setattr(ShapcRunner, "_unit", None)
    assert audited(path, examples=5).mean == first.mean


def test_precision_stops_when_the_interval_is_narrow_enough(tmp_path):
    path = folder(tmp_path / "precise", net(), net(3))
    data = [examples(0, 200), examples(1, 200)]
    result = audited(path, data=data, examples=None, precision=0.08)
    assert (result.calibrated.high - result.calibrated.low) / 2 <= 0.08
    assert UNIT <= len(result.examples[0]) < 200
    assert "0.08" in result.stopped
    fewer = audited(path, data=data, examples=len(result.examples[0]) - UNIT // 2)
    assert (fewer.calibrated.high - fewer.calibrated.low) / 2 > 0.04
    unreachable = audited(path, data=data, examples=None, precision=1e-6)
    assert "cannot be reached" in unreachable.stopped or unreachable.stopped == "all test examples"


def test_without_untrained_networks_the_precision_is_that_of_shapc_mean(tmp_path):
    path = folder(tmp_path / "precise", net(), net(3))
    data = [examples(0, 200), examples(1, 200)]
    estimates = []
    result = audited(
        path, data=data, examples=None, precision=0.02, untrained=0,
        progress=lambda done, total, estimate: estimates.append(estimate) if estimate else None,
    )  # fmt: skip
    widths = [(estimate.high - estimate.low) / 2 for estimate in estimates]
    assert widths[-1] <= 0.02 < min(widths[:-1])
    assert len(result.examples[0]) == UNIT * len(estimates) < 200
    last = estimates[-1]
    assert (last.mean, last.low, last.high) == pytest.approx((result.mean.mean, result.mean.low, result.mean.high))
    assert "0.02" in result.stopped
    all_examples = audited(path, data=data, examples=None, precision=1e-6, untrained=0)
    assert all_examples.stopped == "all test examples"
    assert len(all_examples.examples[0]) == 200


def test_the_budget_check_reports_whether_the_samples_suffice(tmp_path):
    base = net()
    path = folder(tmp_path / "budget", base, perturbed(base, 1.0))
    data = [examples(0, 64), examples(1, 64)]
    few, many = (audited(path, data=data, examples=64, samples=count) for count in (20, 800))
    assert not few.budget_is_enough
    assert "not sufficient, use more samples" in few.budget
    assert many.budget_is_enough
    assert "from 400 to 800" in many.budget
    # With few samples the ratio is an upper bound; the calibrated score is close to its value with many samples.
    assert abs(few.calibrated.mean - many.calibrated.mean) < abs(few.ratio.mean - many.calibrated.mean) / 2
    assert few.calibrated.low <= many.calibrated.mean <= few.calibrated.high


@pytest.mark.parametrize("method", ["grad", "integrated_gradients", "deepshap", "lime", "shapley"])
def test_every_explainer_can_be_used(tmp_path, method):
    result = audited(folder(tmp_path / method, net(), net()), method=method, examples=8, samples=8)
    assert result.mean.mean == 1
    if method in ("lime", "shapley"):
        assert result.matrices["ceiling"][0, 1] < 1
    else:
        assert result.matrices["ceiling"][0, 1] == 1
        assert "deterministic" in result.budget


def register_explainers(monkeypatch) -> None:
    """Register a stochastic and a deterministic explainer as a user's package would, for one test."""
    monkeypatch.setattr(explain.EXPLAINERS, "_entries", explain.EXPLAINERS.entries())
    monkeypatch.setattr(explain.EXPLAINERS, "_summaries", explain.EXPLAINERS.summaries())

    @explain.explainer("user_noise", needs=explain.Outputs(), stochastic=True)
    def user_noise(request: explain.Request) -> torch.Tensor:
        """Noise of the seed around the input."""
        generator = torch.Generator().manual_seed(request.seed)
        noise = torch.randn(request.x.shape, generator=generator)
        maps: torch.Tensor = request.x + noise / request.samples**0.5
        return maps

    @explain.explainer("user_input", needs=explain.Outputs(), stochastic=False)
    def user_input(request: explain.Request, power: float = 1.0) -> torch.Tensor:
        """The input itself."""
        maps: torch.Tensor = request.x.abs() ** power + request.samples
        return maps


def stored_halves(result: ShapcResult) -> list[torch.Tensor]:
    """Return the stored maps of both halves of the first network."""
    units = [load_file(file) for file in sorted(Path(result.folder, "maps").glob("*.safetensors"))]
    return [torch.cat([unit[f"after-01.{half}"] for unit in units]) for half in "AB"]


def test_a_user_stochastic_explainer_is_measured_in_two_independent_halves(tmp_path, monkeypatch):
    register_explainers(monkeypatch)
    path = folder(tmp_path / "noise", net(), net())
    result = audited(path, method="user_noise", samples=8, examples=8, keep_maps=True)
    first, second = stored_halves(result)
    assert not torch.allclose(first, second, atol=0.1)
    # Each half has half of the samples: noise of standard deviation 1 / sqrt(4).
    assert float((first - torch.from_numpy(DATA[0][0][result.examples[0]])).std()) == pytest.approx(0.5, rel=0.15)
    assert result.matrices["ceiling"][0, 1] < 0.95
    assert "deterministic" not in result.budget
    with pytest.raises(InputError, match="samples: expected at least 2, one for each half"):
        audited(path, method="user_noise", samples=1)


def test_a_user_deterministic_explainer_has_no_noise(tmp_path, monkeypatch):
    register_explainers(monkeypatch)
    path = folder(tmp_path / "input", net(), net(3))
    result = audited(path, method="user_input", samples=3, examples=8, keep_maps=True)
    first, second = stored_halves(result)
    assert torch.equal(first, second)
    # All samples are spent on one map.
    np.testing.assert_allclose(first, np.abs(DATA[0][0][result.examples[0]]) + 3, rtol=1e-6)
    assert result.matrices["ceiling"][0, 1] == 1
    assert result.matrices["independent"][0, 1] == result.matrices["shapc"][0, 1]
    assert "deterministic" in result.budget
    assert result.budget_is_enough
    audited(path, method="user_input", samples=1, examples=8)


def test_options_of_a_method_are_checked_recorded_and_part_of_the_cache_key(tmp_path, monkeypatch):
    register_explainers(monkeypatch)
    path = folder(tmp_path / "options", net(), net(3))
    plain, squared = (
        audited(path, method="user_input", examples=8, options=options, keep_maps=True)
        for options in ({}, {"power": "2"})
    )
    assert plain.folder != squared.folder
    assert squared.settings["options"] == {"power": 2.0}
    assert not torch.equal(stored_halves(plain)[0], stored_halves(squared)[0])
    with pytest.raises(InputError, match="no option 'powr'; did you mean 'power'"):
        audited(path, method="user_input", options={"powr": 2})


def test_the_explained_class_is_an_option_and_is_recorded(tmp_path):
    path = folder(tmp_path / "target", net(), net(3))
    label, predicted = (audited(path, target=target) for target in ("label", "predicted"))
    assert label.mean != predicted.mean
    assert "true class" in label.settings["explained"]
    assert "the class each network predicts" in predicted.settings["explained"]


def test_torch_files_are_read_without_executing_code(tmp_path):
    states = net(), net(3)
    expected = audited(folder(tmp_path / "plain", *states))
    path = tmp_path / "torch"
    path.mkdir()
    torch.save(states[0].state_dict(), path / "a.pt")
    torch.save({"epoch": 3, "state_dict": states[1].state_dict()}, path / "b.pth")
    assert audited(path).mean == expected.mean
    torch.save(states[0], path / "a.pt")
    with pytest.raises(InputError, match="cannot be read as weights"):
        audited(path)


def test_a_user_loop_is_audited_in_three_lines(tmp_path):
    recorder = perdure.Recorder(tmp_path / "mine", tasks=2)
    for number in range(2):
        recorder.after_task(net(number), accuracy=[0.9, 0.5])
    result = perdure.audit(tmp_path / "mine", network=Net, data=DATA)
    assert len(result.shapc) == 1
    assert result.learners[0].measures["shapc_mean"] == result.shapc[0].mean
    assert Audit.from_json(result.to_json()).to_json() == result.to_json()


def test_memory_does_not_grow_with_the_number_of_examples(tmp_path):
    path = folder(tmp_path / "memory", net(), net(3))
    data = [examples(0, 160), examples(1, 160)]
    audited(path, data=data, examples=8)
    peaks = []
    for count in (24, 160):
        tracemalloc.start()
        audited(path, data=data, examples=count, samples=4, background=4)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # About twenty numbers per example are kept; the maps of seven networks (five untrained) and two halves would be 504.
    assert peaks[1] - peaks[0] < 136 * 14 * SIDE * SIDE * 8


class Headed(nn.Module):
    """An encoder and a head, like the built-in networks."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, 24), nn.ReLU()), nn.Linear(24, 4)

    def forward(self, x):
        return self.head(self.body(x))


def test_the_first_head_on_all_checkpoints_isolates_the_encoder(tmp_path):
    torch.manual_seed(0)
    first, other = Headed(), Headed()
    new_head = {**first.state_dict(), **{name: value for name, value in other.state_dict().items() if "head" in name}}
    path = folder(tmp_path / "heads", first, new_head)
    own, shared = (audited(path, network=Headed, head=head) for head in ("own", "first"))
    assert own.mean.mean < 0.9
    assert shared.mean.mean == 1
    # Outcomes are still the learner's own predictions.
    assert shared.outcomes["forgotten"].n == own.outcomes["forgotten"].n
    assert "head of the step that trained the task" in shared.settings["explained"]
    with pytest.raises(InputError, match="no module named 'head'"):
        audited(folder(tmp_path / "none", net(), net(3)), head="first")
