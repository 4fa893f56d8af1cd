"""Attribution bias: the comparison of explainers, its verdict, the stored results, and the command line."""

import copy
import json
import math
import shutil
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from captum.attr import LayerGradCam
from scipy import stats
from torch import nn

from perdure import Recorder, explain, learners, metrics, tasks
from perdure.audits import BiasSettings, ShapcSettings, audit, audit_shapc, measure_bias, network_bias, record_bias
from perdure.audits.bias import record_bias as bias_records
from perdure.audits.bias.ratings import HumanAgreement
from perdure.audits.bias.results import BiasResult, bias_result_verdict, explainer_bias_result
from perdure.audits.bias.shapley_cache import CachedShapley
from perdure.base.errors import InputError
from perdure.engine import Shard, ShardEngine, StatusFolder
from perdure.engine.completion import NotDistributedWarning
from perdure.engine.local import LocalEngine
from perdure.engine.study import IncompleteStudyError
from perdure.runs.cache import Cache
from perdure.runs.data import BenchmarkData, balanced_data_order
from tests.helpers.checkpoints import SIDE, Net, examples, net

HEAD = nn.Linear(27, 4)
CONV = nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), HEAD)
X = torch.from_numpy(examples(0)[0][:6])
BACKGROUND = torch.from_numpy(examples(1)[0])


def linear_network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, 4))


def test_shapley_values_are_the_mean_of_their_parts():
    table = explain.shapley_table(net(), X, 1, background=BACKGROUND, samples=40, parts=5)
    assert table.parts is not None
    assert table.parts.shape == (5, 6, 36)
    assert table.values == pytest.approx(table.parts.mean(axis=0))
    assert table.stderr == pytest.approx(table.parts.std(axis=0, ddof=1) / math.sqrt(5))
    assert table.permutations == 40
    with torch.no_grad():
        total = net()(X)[:, 1] - net()(BACKGROUND.mean(0, keepdim=True))[:, 1]
    assert table.parts.sum(axis=2) == pytest.approx(np.tile(total.numpy(), (5, 1)), abs=1e-4)
    noise = np.square(table.stderr).sum(1) / np.square(table.values).sum(1)
    assert table.noise_share == pytest.approx(noise.mean())


def test_shapley_values_of_an_example_do_not_depend_on_the_other_examples():
    together = explain.shapley_table(net(), X, 1, background=BACKGROUND, samples=20, parts=2)
    alone = explain.shapley_table(net(), X[3:4], 1, background=BACKGROUND, samples=20, parts=2)
    assert alone.values[0] == pytest.approx(together.values[3])


def test_exact_shapley_values_have_no_sampling_error():
    model, grid = linear_network(), torch.arange(SIDE * SIDE).reshape(1, SIDE, SIDE) // 12
    table = explain.shapley_table(model, X, 2, background=BACKGROUND, estimator="exact", players=grid)
    (_, last) = model
    assert isinstance(last, nn.Linear)
    weights = last.weight[2].detach().reshape(SIDE, SIDE)
    parts = ((X - BACKGROUND.mean(0)) * weights).reshape(6, 3, 12).sum(2)
    assert table.values == pytest.approx(parts.numpy(), abs=1e-5)
    assert (table.stderr == 0).all()
    assert table.parts is None
    assert table.noise_share == 0


def test_grad_cam_is_measured_at_the_positions_of_its_layer():
    torch.manual_seed(0)
    target = np.arange(6) % 4
    table = explain.shapley_table(CONV, X, target, background=BACKGROUND, samples=400, layer="2")
    assert table.values.shape == (6, 9)
    assert table.layer == "2"
    # The network after the pooling is linear, so a position's Shapley value is its weights times its deviation from the mean.
    with torch.no_grad():
        at, mean = CONV[:3](X), CONV[:3](BACKGROUND).mean(0)
        weights = HEAD.weight[torch.from_numpy(target)].reshape(6, 3, 3, 3)
        expected = ((at - mean) * weights).sum(1).flatten(1)
    assert table.values == pytest.approx(expected.numpy(), abs=1e-5)
    expected_maps = LayerGradCam(CONV, CONV[2]).attribute(X, target=torch.from_numpy(target), relu_attributions=True)
    assert explain.shapley_table_layer_maps(CONV, X, target, "2") == pytest.approx(
        expected_maps.detach().flatten(1).numpy()
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": 10, "parts": 10}, "samples: .*got 10 permutations in 10 parts"),
        ({"samples": 10, "parts": 1}, "at least 2 parts"),
        ({"estimator": "exact"}, "at most 20 players, got 36"),
        ({"layer": "last", "background": None}, "needs a background"),
    ],
)
def test_invalid_settings_of_the_shapley_table_are_refused(options, message):
    arguments = {"background": BACKGROUND, **options}
    with pytest.raises(InputError, match=message):
        explain.shapley_table(CONV, X, 1, **arguments)


def test_superpixels_are_refused_because_they_differ_between_examples():
    images = torch.rand(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    images[0, :, :8] = 0
    model = nn.Sequential(nn.Flatten(), nn.Linear(768, 2))
    with pytest.raises(InputError, match=r"players: .* got \d+ for example \d"):
        explain.shapley_table(model, images, 0, baseline="zero", samples=20, parts=2, players="superpixels")
    with pytest.raises(InputError, match="players 'superpixels' differ between examples"):
        measure_bias(model, images, 0, background=images, settings=BiasSettings(players="superpixels"))


def test_on_a_linear_network_the_exact_explainers_have_no_bias():
    settings = BiasSettings(methods=["deepshap", "grad"], permutations=20, baseline="mean")
    found = measure_bias(linear_network(), X, "predicted", background=BACKGROUND, settings=settings)
    # Every permutation of an additive game gives the same marginal contributions, so there is no sampling noise.
    assert found["deepshap"].overall.mean == pytest.approx(0, abs=1e-6)
    assert found.noise_share == pytest.approx(0, abs=1e-8)
    assert found["random"].overall.mean > 0.05
    assert found["grad"].overall.mean > 0.02
    assert found.verdict is not None
    assert found.verdict.least == "deepshap"
    assert found.verdict.safe
    assert {rival.method for rival in found.verdict.rivals} == {"grad", "constant", "random"}


def test_the_bias_equals_the_metric():
    settings = BiasSettings(methods="grad", permutations=40, seed=3)
    found = measure_bias(net(), X, 1, background=BACKGROUND, settings=settings)
    table = explain.shapley_table(net(), X, 1, background=BACKGROUND, samples=40, seed=3, players="pixels")
    maps = explain.attribute(net(), X, 1, "grad", reduce="pixels").flatten(1)
    expected = metrics.attribution_biases(maps, table.values, stderr=table.stderr, parts=table.parts)
    assert found["grad"].per_example == pytest.approx(expected.per_example)
    assert found["grad"].corrected == pytest.approx(expected.corrected)
    assert found["grad"].floor == pytest.approx(expected.floor)
    assert found["grad"].cells[2][1].mean == pytest.approx(expected.mean[2, 1])
    assert found["grad"].overall.mean == pytest.approx(expected.mean.mean())
    share = float((net()(X).argmax(1) == 1).double().mean())
    assert found.settings["predicted"] == pytest.approx(share)
    assert 0 < share < 0.5
    assert found["constant"].cells[0][0].mean == pytest.approx(
        metrics.attribution_bias(np.ones((6, 36)), table.values, 0.1)
    )


def test_maps_are_summed_over_the_cells_of_a_grid():
    image = torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    model = nn.Sequential(nn.Flatten(), nn.Linear(768, 3), nn.ReLU(), nn.Linear(3, 2))
    settings = BiasSettings(methods="gradient_x_input", players="grid", permutations=20, seed=1)
    found = measure_bias(model, image, 0, background=image, settings=settings)
    table = explain.shapley_table(model, image, 0, background=image, samples=20, seed=1, players="grid")
    pixels = explain.attribute(model, image, 0, "gradient_x_input", reduce="pixels")
    cells = pixels.reshape(4, 8, 2, 8, 2).sum((2, 4)).flatten(1)
    assert found["gradient_x_input"].per_example == pytest.approx(
        metrics.attribution_biases(cells, table.values).per_example, rel=1e-5
    )


def test_the_reference_is_exact_for_few_players():
    x, background = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(2))
    model = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 2))
    settings = BiasSettings(methods=["deepshap", "grad"])
    found = measure_bias(model, x, "predicted", background=background, settings=settings)
    assert found.estimator == "exact"
    assert found.permutations == 0
    exact = explain.attribute(model, x, "predicted", "exact_shapley", background=background)
    maps = explain.attribute(model, x, "predicted", "deepshap", background=background)
    assert found["deepshap"].per_example == pytest.approx(metrics.attribution_biases(maps, exact).per_example, rel=1e-4)


@pytest.mark.parametrize(("players", "estimator"), [(12, "exact"), (13, "antithetic")])
def test_all_coalitions_are_evaluated_up_to_twelve_players(players, estimator):
    x = torch.randn(3, players, generator=torch.Generator().manual_seed(3))
    settings = BiasSettings(methods="grad", permutations=20)
    found = measure_bias(nn.Linear(players, 2), x, 1, background=x, settings=settings)
    assert found.estimator == estimator


def test_integrated_gradients_start_at_the_baseline_of_masked_inputs():
    """By default this is the mean of the background: on a linear network the bias is then 0."""
    for baseline in (None, "zero", 0.3):
        settings = BiasSettings(methods=["integrated_gradients"], permutations=20, baseline=baseline)
        found = measure_bias(linear_network(), X, 1, background=BACKGROUND + 1, settings=settings)
        assert found["integrated_gradients"].overall.mean == pytest.approx(0, abs=1e-6)


def test_an_explainer_that_would_be_wrong_is_refused_with_the_reason():
    class Functional(Net):
        def forward(self, x):
            return self.last(nn.functional.silu(self.first(self.flat(x))))

    settings = BiasSettings(methods=["guided_backprop", "grad", "gradcam"], permutations=20)
    found = measure_bias(Functional(), X, 1, background=BACKGROUND, settings=settings)
    assert set(found.refused) == {"guided_backprop", "gradcam"}
    assert "silu" in found.refused["guided_backprop"].lower()
    assert [entry.method for entry in found.explainers] == ["grad", "constant", "random"]


def synthetic_bias(method, values, layer=None):
    """Return an explainer whose examples have the given biases at every share and side."""
    table = np.broadcast_to(np.asarray(values, dtype=float)[:, None, None], (len(values), 5, 2)).copy()
    empty = np.zeros((5, 2))
    bias = metrics.Bias(
        mean=empty,
        corrected=empty,
        stderr=empty,
        sampling_stderr=empty,
        floor=empty,
        per_example=table,
        shares=metrics.bias.SHARES,
        sides=metrics.bias.SIDES,
        degenerate=int(np.isnan(table[:, 0, 0]).sum()),
    )
    return explainer_bias_result(method, bias, 0, layer)


def known_verdict(*explainers):
    """Return the verdict; there must be one."""
    verdict = bias_result_verdict(explainers)
    assert verdict is not None
    return verdict


def test_a_verdict_is_safe_only_if_every_other_explainer_is_significantly_more_biased():
    rng = np.random.default_rng(0)
    base = rng.uniform(0.1, 0.2, 12)
    low, close, far = (
        synthetic_bias("grad", base),
        synthetic_bias("lrp", base + rng.normal(0, 0.05, 12)),
        synthetic_bias("lime", base + rng.uniform(0.1, 0.2, 12)),
    )
    control = synthetic_bias("random", base + rng.uniform(0.4, 0.6, 12))
    safe = known_verdict(low, far, control)
    assert (safe.least, safe.safe) == ("grad", True)
    assert "significantly lower than every other" in safe.reading
    gaps = [other.per_example[:, 0, 0] - low.per_example[:, 0, 0] for other in (far, control)]
    plain = [stats.ttest_1samp(values, 0).pvalue for values in gaps]
    assert [rival.p for rival in safe.rivals] == pytest.approx(metrics.holm(plain))
    assert safe.rivals[0].difference == pytest.approx(gaps[0].mean())
    undecided = known_verdict(low, close, far, control)
    assert not undecided.safe
    assert "but not significantly lower than grad" in undecided.reading


def test_a_verdict_is_not_safe_with_one_example_or_against_a_control_and_ignores_other_players():
    one_example = known_verdict(synthetic_bias("grad", [0.1]), synthetic_bias("lrp", [0.3]))
    assert (one_example.least, one_example.safe) == ("grad", False)
    best_is_control = known_verdict(
        synthetic_bias("grad", [0.2, 0.21, 0.22]), synthetic_bias("constant", [0.1, 0.11, 0.1])
    )
    assert (best_is_control.least, best_is_control.safe) == ("grad", False)
    assert "constant" in best_is_control.reading
    layer = known_verdict(synthetic_bias("gradcam", [0.0, 0.0], "conv"), synthetic_bias("grad", [0.2, 0.3]))
    assert layer.least == "grad"
    assert layer.rivals == ()
    assert "no other explainer was compared" in layer.reading
    assert bias_result_verdict([synthetic_bias("constant", [0.1, 0.2])]) is None


def test_a_small_difference_above_rounding_is_significant():
    rng = np.random.default_rng(1)
    base = rng.uniform(0.1, 0.2, 12)
    verdict = known_verdict(
        synthetic_bias("grad", base), synthetic_bias("lrp", base + 5e-5 + rng.uniform(-1e-5, 1e-5, 12))
    )
    assert verdict.safe


def test_degenerate_maps_are_excluded_from_paired_differences():
    verdict = known_verdict(
        synthetic_bias("grad", [0.1, math.nan, 0.12, 0.1]), synthetic_bias("lrp", [0.3, 0.3, math.nan, 0.33])
    )
    assert verdict.rivals[0].difference == pytest.approx(np.mean([0.2, 0.23]))
    assert synthetic_bias("grad", [math.nan, math.nan]).overall.reason is not None


def test_a_result_is_equal_after_saving_and_loading(tmp_path):
    settings = BiasSettings(methods=["grad"], permutations=20)
    found = measure_bias(net(), X, 1, background=BACKGROUND, settings=settings)
    first = found.explainers[0]
    first.per_example[2] = math.nan
    found.save(tmp_path / "deep" / "bias.json")
    loaded = BiasResult.load(tmp_path / "deep" / "bias.json")
    assert loaded.to_json() == found.to_json()
    assert loaded.verdict == found.verdict
    assert np.isnan(loaded["grad"].per_example[2]).all()
    with pytest.raises(InputError, match="lime: not measured; measured were grad"):
        loaded["lime"]
    with pytest.raises(InputError, match="schema 99"):
        BiasResult.from_json({**found.to_json(), "schema": 99})


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    benchmark = tasks.load("split-digits", tasks=2, per_class=20)
    run = learners.Run(
        benchmark, learners.get("naive"), network="small-conv", training=learners.Training(epochs=2, lr=0.1)
    )
    path = tmp_path_factory.mktemp("runs") / "naive"
    learners.execute(run, path)
    return path


SETTINGS = BiasSettings(methods=["grad", "deepshap"], permutations=20)
SELECTION: dict[str, Any] = {"background": 10, "examples": 6}


def test_a_record_stores_results_and_shapley_values(record, monkeypatch):
    found = record_bias(record, settings=SETTINGS, **SELECTION)
    assert found.examples == 6
    assert "after step 2" in found.subject
    assert (record / "trust" / "bias.json").exists()
    calls = []
    real = explain.shapley_table

    def counted(*arguments, **options):
        calls.append(1)
        return real(*arguments, **options)

    monkeypatch.setattr(explain, "shapley_table", counted)
    assert record_bias(record, settings=SETTINGS, **SELECTION).to_json() == found.to_json()
    assert not calls
    more = record_bias(record, settings=replace(SETTINGS, methods=["grad", "lrp"]), **SELECTION)
    assert not calls
    assert more["grad"].per_example == pytest.approx(found["grad"].per_example)
    # Two more examples of each task are computed; the Shapley values of the others are read from the cache.
    record_bias(record, settings=SETTINGS, background=10, examples=10)
    assert len(calls) == 4
    other = record_bias(record, settings=SETTINGS, **SELECTION, step=0)
    assert len(calls) == 10
    assert "after step 1" in other.subject


def copied(record, folder):
    """Return a copy of a record without results."""
    shutil.copytree(record, folder, ignore=shutil.ignore_patterns("cache", "trust"))
    return folder


def cached_files(record):
    """Return the contents of all files of a record's cache."""
    files = (path for path in (record / "cache").rglob("*") if path.is_file())
    return {str(path.relative_to(record)): path.read_bytes() for path in files}


def test_worker_processes_and_shards_give_identical_files(record, tmp_path, monkeypatch):
    """This includes the Shapley values at Grad-CAM's layer."""
    settings = replace(SETTINGS, methods=["grad", "gradcam"])
    here, there, shards = (copied(record, tmp_path / name) for name in ("here", "there", "shards"))
    expected = record_bias(here, settings=settings, **SELECTION).to_json()
    with LocalEngine(2, StatusFolder.of(there)) as engine:
        assert record_bias(there, settings=settings, **SELECTION, engine=engine).to_json() == expected
    assert cached_files(there) == cached_files(here)
    first = ShardEngine(LocalEngine(1, StatusFolder.of(shards)), Shard(0, 2))
    with pytest.raises(IncompleteStudyError, match="6 are left to other shards"):
        record_bias(shards, settings=settings, **SELECTION, engine=first)
    assert not (shards / "trust").exists()
    second = ShardEngine(LocalEngine(1, StatusFolder.of(shards)), Shard(1, 2))
    record_bias(shards, settings=settings, **SELECTION, engine=second)
    monkeypatch.setattr(explain, "shapley_table", None)
    assert record_bias(shards, settings=settings, **SELECTION).to_json() == expected
    assert cached_files(shards) == cached_files(here)


def test_an_explainer_that_is_refused_does_not_stop_the_units(tmp_path):
    """A network without a convolution has no layer for Grad-CAM."""
    net, data = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), (torch.randn(12, 4), torch.arange(12) % 2)
    settings = BiasSettings(methods=["grad", "gradcam"], permutations=20)
    expected = network_bias(net, data, examples=4, settings=settings)
    found = network_bias(net, data, examples=4, settings=settings, cache=tmp_path, engine=LocalEngine(1))
    assert found.to_json() == expected.to_json()
    assert "gradcam" in found.refused


def test_objects_that_cannot_be_sent_are_computed_in_this_process(tmp_path):
    class Local(nn.Linear):
        """A class that another process cannot import."""

    settings = BiasSettings(methods=["grad"], permutations=20)
    network, data = Local(4, 2), (torch.randn(12, 4), torch.arange(12) % 2)
    expected = network_bias(network, data, examples=4, settings=settings).to_json()
    with LocalEngine(2) as engine, pytest.warns(NotDistributedWarning, match="cannot be sent to another process"):
        found = network_bias(network, data, examples=4, settings=settings, engine=engine, cache=tmp_path)
    assert found.to_json() == expected


def test_cached_shapley_values_are_those_of_the_same_request(tmp_path):
    """After the first request is stored, a request that differs in any respect still has its own values."""
    cached = CachedShapley(Cache(tmp_path))
    first: dict[str, Any] = {
        "model": CONV,
        "x": X[:2],
        "target": 1,
        "background": BACKGROUND,
        "samples": 20,
        "estimator": "antithetic",
        "seed": 0,
    }
    changes: list[dict[str, Any]] = [
        {},
        {"model": linear_network()},
        {"x": X[1:3]},
        {"target": 2},
        {"target": np.array([1, 3])},
        {"background": BACKGROUND[:5]},
        {"baseline": "zero"},
        {"baseline": torch.ones(1, SIDE, SIDE)},
        {"samples": 40},
        {"estimator": "castro"},
        {"seed": 1},
        {"players": explain.grid_players((1, SIDE, SIDE), 3)},
        {"layer": "2"},
    ]
    for change in changes:
        request = first | change
        model, x, target = (request.pop(name) for name in ("model", "x", "target"))
        expected = explain.shapley_table(model, x, target, **request)
        for _ in range(2):  # computed, then read
            table = cached(model, x, target, **request)
            assert table.values == pytest.approx(expected.values, abs=1e-6), change
            assert table.stderr == pytest.approx(expected.stderr, abs=1e-6)
            assert table.parts == pytest.approx(expected.parts, abs=1e-6)
            assert (table.evaluations, table.permutations) == (expected.evaluations, expected.permutations)
            assert (table.estimator, table.layer) == (expected.estimator, expected.layer)


def test_a_stored_comparison_is_reused_only_for_the_same_request(record):
    settings = BiasSettings(methods=["grad"], permutations=20)
    shared: dict[str, Any] = {"background": 10, "examples": 4}
    assert record_bias(record, settings=settings, **shared).target == "label"
    assert record_bias(record, settings=settings, target="predicted", **shared).target == "predicted"
    for baseline in ("zero", 0.5):
        found = record_bias(record, settings=replace(settings, baseline=baseline), **shared)
        assert found.settings["baseline"] == baseline


def test_examples_are_selected_evenly_from_all_tasks():
    data = BenchmarkData(tasks.load("split-digits", tasks=2, per_class=20), "cpu")
    selected = bias_records.ExampleSelection.of(data, [0, 1], 7, 5, 0, "cpu")
    assert [(selected.y < 5).sum(), (selected.y >= 5).sum()] == [4, 3]
    assert len(selected.background) == 5
    # Every task has at least one background example.
    assert len(bias_records.ExampleSelection.of(data, [0, 1], 7, 1, 0, "cpu").background) == 2


def test_bias_of_a_user_network_equals_the_comparison_of_the_selected_examples(tmp_path):
    x, y = examples(0)
    background = examples(1)[0]
    settings = BiasSettings(methods=["grad"], permutations=20)
    found = network_bias(net(), (x, y, background), examples=4, background=8, settings=settings, subject="mine")
    rows = np.sort(balanced_data_order(y, 0)[:4])
    drawn = np.sort(np.random.default_rng([0, 0]).permutation(len(background))[:8])
    expected = measure_bias(
        net(),
        torch.from_numpy(x[rows]),
        y[rows],
        background=torch.from_numpy(background[drawn]),
        settings=settings,
        subject="mine",
    )
    assert found.to_json() == expected.to_json()
    cached = network_bias(
        net(), (x, y, background), examples=4, background=8, settings=settings, subject="mine", cache=tmp_path
    )
    assert cached["grad"].overall.mean == pytest.approx(found["grad"].overall.mean)
    assert len(list((tmp_path / "shapley").iterdir())) == 4


def test_shapc_uses_the_least_biased_explainer_and_reports_the_evidence(record):
    verdict = record_bias(record, settings=SETTINGS, **SELECTION).verdict
    assert verdict is not None
    settings = ShapcSettings(method="least-biased", samples=10, background=10)
    (result,) = audit(record, shapc=settings, examples=4).shapc
    assert result.settings["method"] == verdict.least
    assert result.settings["chosen"] == verdict.reading
    named = audit_shapc(record, settings=replace(settings, method=verdict.least), examples=4)
    assert named.mean == result.mean
    assert "chosen" not in named.settings


def test_the_least_biased_explainer_needs_a_comparison(tmp_path, record):
    recorder = Recorder(tmp_path / "new", tasks=2)
    for seed in range(2):
        recorder.after_task(net(seed), accuracy=[0.9, 0.5])
    with pytest.raises(InputError, match="Run `perdure trust bias"):
        audit(tmp_path / "new", shapc=ShapcSettings(method="least-biased"))
    with pytest.raises(InputError, match="least-biased: only an audit of records can choose the explainer"):
        audit_shapc(record, settings=ShapcSettings(method="least-biased"))


def test_invalid_arguments_of_the_comparison_are_refused(record):
    with pytest.raises(InputError, match="no checkpoint was saved after step 9; there are 1, 2"):
        record_bias(record, step=8)
    with pytest.raises(InputError, match="method: unknown name 'gard'"):
        record_bias(record, settings=BiasSettings(methods="gard"))
    with pytest.raises(InputError, match="examples: expected at least 1"):
        record_bias(record, examples=0)


def test_the_command_prints_a_table_and_json(record, perdure, tmp_path):
    command = ["trust", "bias", record, "--permutations", 20, "--background", 10]
    methods = ["--method", "grad", "--method", "deepshap"]
    printed = perdure(*command, "--examples", 6, *methods, "--figure", "bias.svg").stdout
    found = BiasResult.load(record / "trust" / "bias.json")
    assert f"{found['grad'].overall.mean:.4f}" in printed
    assert "random (control)" in printed
    assert found.verdict is not None
    assert found.verdict.reading in printed.replace("\n", " ")
    assert "<svg" in (tmp_path / "bias.svg").read_text()
    value = json.loads(perdure(*command, "--examples", 16, "--method", "deepshap", "--json", "--shapc").stdout)
    assert value["bias"]["explainers"][0]["method"] == "deepshap"
    assert value["shapc"]["settings"]["method"] == "deepshap"


def test_options_of_a_method_change_its_bias_only(record, perdure):
    command = ["trust", "bias", record, "--examples", 4, "--permutations", 20, "--background", 10, "--json"]
    command += ["--method", "lrp", "--method", "grad"]
    plain, large = (
        {entry["method"]: entry["overall"]["mean"] for entry in json.loads(text)["bias"]["explainers"]}
        for text in (perdure(*command).stdout, perdure(*command, "--option", "lrp.epsilon=10").stdout)
    )
    assert plain["lrp"] != large["lrp"]
    assert plain["grad"] == large["grad"]
    assert "epsilo" in perdure(*command, "--option", "lrp.epsilo=1", code=2).stderr


def test_human_ratings_are_correlated_with_the_bias(record, perdure, tmp_path):
    rows = ["explainer,rater,rating", "grad,a,1", "deepshap,a,5", "lrp,a,4", "grad,b,2", "deepshap,b,4", "lrp,b,4"]
    (tmp_path / "people.csv").write_text("\n".join(rows))
    command = ["trust", "bias", record, "--examples", 6, "--permutations", 20, "--background", 10]
    command += ["--ratings", "people.csv"]
    command += [word for name in ("grad", "deepshap", "lrp") for word in ("--method", name)]
    value = json.loads(perdure(*command, "--json").stdout)
    bias = {entry["method"]: entry["overall"]["mean"] for entry in value["bias"]["explainers"]}
    names = value["ratings"]["explainers"]
    expected = np.corrcoef([{"grad": 1.5, "deepshap": 4.5, "lrp": 4}[name] for name in names], [bias[n] for n in names])
    assert value["ratings"]["r"] == pytest.approx(expected[0, 1])
    assert "2 raters" in perdure(*command).stdout


@pytest.mark.parametrize(
    ("low", "high", "conclusion"),
    [
        (-0.9, -0.1, "people prefer explainers with little bias"),
        (-0.9, 0.3, "not significantly different from zero"),
        (math.nan, math.nan, "not significantly different from zero"),
        (0.1, 0.9, "people prefer explainers with much bias"),
    ],
)
def test_only_a_correlation_whose_interval_excludes_zero_is_a_preference(low, high, conclusion):
    r = 0.5 if low > 0 else -0.5
    linear, order = metrics.PearsonCorrelation(r, low, high, 5), metrics.KendallCorrelation(r, 0.2, 5)
    assert conclusion in HumanAgreement((), (), (), linear, order, raters=3, images=1).reading


OWN = """
import numpy as np, torch
from torch import nn
def make(shape, outputs):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(shape[0], 5), nn.ReLU(), nn.Linear(5, outputs))
def data():
    rng = np.random.default_rng(0)
    return rng.normal(size=(20, 4)).astype("float32"), np.arange(20) % 2
def wrong():
    return 3
"""


def test_the_command_compares_explainers_on_a_user_network(tmp_path, perdure):
    (tmp_path / "own.py").write_text(OWN)
    command = ["trust", "bias", "--network", "own.py:make", "--out", "stored", "--method", "grad", "--examples", 4]
    assert "Reference: exact Shapley values" in perdure(*command, "--data", "own.py:data").stdout
    found = BiasResult.load(tmp_path / "stored" / "bias.json")
    assert found.examples == 4
    module: dict[str, Any] = {}
    exec(OWN, module)
    torch.save({"model": module["make"]((4,), 2).state_dict()}, tmp_path / "weights.pt")
    perdure(*command, "--data", "own.py:data", "--weights", "weights.pt")
    assert BiasResult.load(tmp_path / "stored" / "bias.json")["grad"].overall == found["grad"].overall
    assert "expected a pair (inputs, labels)" in perdure(*command, "--data", "own.py:wrong", code=2).stderr
    assert "--network file.py:function" in perdure("trust", "bias", "--data", "own.py:data", code=2).stderr


def test_the_command_trains_a_network_if_none_is_given(perdure):
    command = ["trust", "bias", "--network", "mlp400", "--epochs", 1, "--per-class", 10, "--out", "stored"]
    command += ["--examples", 4]
    value = json.loads(perdure(*command, "--permutations", 20, "--method", "grad", "--json").stdout)["bias"]
    assert value["subject"].startswith("joint after step 1 of split-digits")
    assert BiasResult.from_json(value).examples == 4
    again = json.loads(perdure(*command, "--permutations", 20, "--method", "grad", "--json").stdout)["bias"]
    assert again == value
    # The network was trained only for this comparison: an audit does not count it as a run.
    assert "no record" in perdure("audit", ".", code=2).stderr


def test_a_refused_explainer_is_named_and_the_exit_code_is_1(perdure):
    command = ["trust", "bias", "--network", "mlp400", "--epochs", 1, "--per-class", 10, "--out", "stored"]
    command += ["--examples", 4]
    done = perdure(*command, "--permutations", 20, "--method", "grad", "--method", "gradcam", code=1)
    assert "gradcam was refused" in done.stderr
    assert "grad" in done.stdout


class LinearImage(nn.Module):
    """A linear network on images of two channels: its Shapley values are weight * (input - baseline)."""

    def __init__(self) -> None:
        super().__init__()
        self.flat, self.scores = nn.Flatten(), nn.Linear(8, 3)

    def forward(self, x):
        return self.scores(self.flat(x))


def test_players_that_divide_channels_differently_are_summed_over_their_own_variables():
    torch.manual_seed(0)
    net = LinearImage().eval()
    x = torch.randn(6, 2, 2, 2)
    labels = np.array([[[0, 0], [1, 1]], [[2, 3], [2, 3]]])
    players = explain.players_from_labels(labels)
    settings = BiasSettings(methods=["gradient_x_input"], players=players, baseline="zero")
    result = measure_bias(net, x, 1, background=torch.zeros(4, 2, 2, 2), settings=settings)
    np.testing.assert_allclose(result["gradient_x_input"].overall.mean, 0.0, atol=1e-6)
    assert result["random"].overall.mean > 0.05


@pytest.mark.parametrize("seed", range(5))
def test_explainers_that_are_equal_up_to_rounding_have_no_winner(seed):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(8, 3)).eval()
    x = torch.randn(30, 8)
    settings = BiasSettings(methods=["gradient_x_input", "integrated_gradients"], baseline="zero")
    verdict = measure_bias(net, x, 1, background=torch.zeros(4, 8), settings=settings).verdict
    assert verdict is not None
    (rival,) = [rival for rival in verdict.rivals if rival.method not in ("constant", "random")]
    assert rival.p == 1.0
    assert not verdict.safe
    assert rival.method in verdict.tied


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_bias_of_a_user_network_in_half_precision(dtype):
    torch.manual_seed(0)
    half_net = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 3)).eval().to(dtype)
    x, y = torch.randn(12, 5, generator=torch.Generator().manual_seed(0)).to(dtype), torch.arange(12) % 3
    settings = BiasSettings(methods=["grad", "lrp"])
    half = network_bias(half_net, (x, y, x), settings=settings)
    single = network_bias(copy.deepcopy(half_net).float(), (x.float(), y, x.float()), settings=settings)
    for entry in single.explainers:
        assert half[entry.method].overall.mean == pytest.approx(entry.overall.mean, rel=1e-9)
    with pytest.raises(InputError, match="got an unexpected keyword argument 'x'"):
        network_bias(half_net, ({"x": x}, y), settings=settings)
