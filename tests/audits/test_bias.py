"""Which explainer can be believed: the comparison, its verdict, what is kept, and the command line."""

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from captum.attr import LayerGradCam
from scipy import stats
from torch import nn

from perdure import explain, learners, metrics, tasks
from perdure.audits import audit_shapc as shapc
from perdure.audits import measure_bias, record_bias
from perdure.audits.bias import records as bias_records
from perdure.audits.bias.results import BiasResult, explainer_bias, verdict_of
from perdure.base.errors import InputError
from perdure.runs.data import BenchmarkData
from tests.helpers.checkpoints import SIDE, Net, net, samples

HEAD = nn.Linear(27, 4)
CONV = nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), HEAD)
X = torch.from_numpy(samples(0)[0][:6])
BACKGROUND = torch.from_numpy(samples(1)[0])


def linear(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, 4))


def test_a_table_of_shapley_values_is_the_mean_of_its_parts():
    table = explain.shapley_table(net(), X, 1, background=BACKGROUND, samples=40, parts=5)
    assert table.parts is not None
    assert table.parts.shape == (5, 6, 36)
    assert table.values == pytest.approx(table.parts.mean(axis=0))
    assert table.stderr == pytest.approx(table.parts.std(axis=0, ddof=1) / math.sqrt(5))
    assert table.permutations == 40
    with torch.no_grad():
        whole = net()(X)[:, 1] - net()(BACKGROUND.mean(0, keepdim=True))[:, 1]
    assert table.parts.sum(axis=2) == pytest.approx(np.tile(whole.numpy(), (5, 1)), abs=1e-4)
    noise = np.square(table.stderr).sum(1) / np.square(table.values).sum(1)
    assert table.noise_share == pytest.approx(noise.mean())


def test_a_samples_values_do_not_depend_on_its_company():
    together = explain.shapley_table(net(), X, 1, background=BACKGROUND, samples=20, parts=2)
    alone = explain.shapley_table(net(), X[3:4], 1, background=BACKGROUND, samples=20, parts=2)
    assert alone.values[0] == pytest.approx(together.values[3])


def test_exact_values_have_no_error():
    model, grid = linear(), torch.arange(SIDE * SIDE).reshape(1, SIDE, SIDE) // 12
    table = explain.shapley_table(model, X, 2, background=BACKGROUND, estimator="exact", players=grid)
    (_, last) = model
    assert isinstance(last, nn.Linear)
    weights = last.weight[2].detach().reshape(SIDE, SIDE)
    parts = ((X - BACKGROUND.mean(0)) * weights).reshape(6, 3, 12).sum(2)
    assert table.values == pytest.approx(parts.numpy(), abs=1e-5)
    assert (table.stderr == 0).all()
    assert table.parts is None
    assert table.noise_share == 0


def test_grad_cam_is_judged_at_the_positions_of_its_layer():
    torch.manual_seed(0)
    target = np.arange(6) % 4
    table = explain.shapley_table(CONV, X, target, background=BACKGROUND, samples=400, layer="2")
    assert table.values.shape == (6, 9)
    assert table.layer == "2"
    # Behind the pooling all is linear: a position's Shapley value is its weights times its difference from the mean.
    with torch.no_grad():
        at, mean = CONV[:3](X), CONV[:3](BACKGROUND).mean(0)
        weights = HEAD.weight[torch.from_numpy(target)].reshape(6, 3, 3, 3)
        expected = ((at - mean) * weights).sum(1).flatten(1)
    assert table.values == pytest.approx(expected.numpy(), abs=1e-5)
    own = LayerGradCam(CONV, CONV[2]).attribute(X, target=torch.from_numpy(target), relu_attributions=True)
    assert explain.layer_maps(CONV, X, target, "2") == pytest.approx(own.detach().flatten(1).numpy())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"samples": 10, "parts": 10}, "samples: 10 permutations in 10 parts"),
        ({"samples": 10, "parts": 1}, "at least 2 parts"),
        ({"estimator": "exact"}, "36 players, at most 20"),
        ({"layer": "last", "background": None}, "needs a background"),
    ],
)
def test_refusals_of_the_table(options, words):
    given = {"background": BACKGROUND, **options}
    with pytest.raises(InputError, match=words):
        explain.shapley_table(CONV, X, 1, **given)


def test_superpixels_differ_between_samples():
    images = torch.rand(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    images[0, :, :8] = 0
    model = nn.Sequential(nn.Flatten(), nn.Linear(768, 2))
    with pytest.raises(InputError, match=r"players: sample \d has"):
        explain.shapley_table(model, images, 0, baseline="zero", samples=20, parts=2, players="superpixels")
    with pytest.raises(InputError, match="they differ from sample to sample"):
        measure_bias(model, images, 0, background=images, players="superpixels")


def test_on_a_linear_network_the_exact_explainers_have_no_bias():
    found = measure_bias(
        linear(), X, "predicted", background=BACKGROUND, baseline="mean", methods=["deepshap", "grad"], permutations=20
    )
    # Every permutation of an additive game gives the same marginals, so nothing is sampled.
    assert found["deepshap"].overall.mean == pytest.approx(0, abs=1e-6)
    assert found.noise_share == pytest.approx(0, abs=1e-8)
    assert found["random"].overall.mean > 0.05
    assert found["grad"].overall.mean > 0.02
    assert found.verdict is not None
    assert found.verdict.least == "deepshap"
    assert found.verdict.safe
    assert {rival.method for rival in found.verdict.rivals} == {"grad", "constant", "random"}


def test_bias_is_that_of_the_metric():
    found = measure_bias(net(), X, 1, background=BACKGROUND, methods="grad", permutations=40, seed=3)
    table = explain.shapley_table(net(), X, 1, background=BACKGROUND, samples=40, seed=3, players="pixels")
    maps = explain.attribute(net(), X, 1, "grad", reduce="pixels").flatten(1)
    expected = metrics.attribution_biases(maps, table.values, stderr=table.stderr, parts=table.parts)
    assert found["grad"].samples == pytest.approx(expected.samples)
    assert found["grad"].corrected == pytest.approx(expected.corrected)
    assert found["grad"].floor == pytest.approx(expected.floor)
    assert found["grad"].cells[2][1].mean == pytest.approx(expected.mean[2, 1])
    assert found["constant"].cells[0][0].mean == pytest.approx(
        metrics.attribution_bias(np.ones((6, 36)), table.values, 0.1)
    )


def test_maps_are_summed_over_the_cells_of_a_grid():
    image = torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    model = nn.Sequential(nn.Flatten(), nn.Linear(768, 3), nn.ReLU(), nn.Linear(3, 2))
    found = measure_bias(
        model, image, 0, background=image, methods="gradient_x_input", players="grid", permutations=20, seed=1
    )
    table = explain.shapley_table(model, image, 0, background=image, samples=20, seed=1, players="grid")
    pixels = explain.attribute(model, image, 0, "gradient_x_input", reduce="pixels")
    cells = pixels.reshape(4, 8, 2, 8, 2).sum((2, 4)).flatten(1)
    assert found["gradient_x_input"].samples == pytest.approx(
        metrics.attribution_biases(cells, table.values).samples, rel=1e-5
    )


def test_few_players_are_solved_exactly():
    x, others = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(2))
    model = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 2))
    found = measure_bias(model, x, "predicted", background=others, methods=["deepshap", "grad"])
    assert found.estimator == "exact"
    assert found.permutations == 0
    exact = explain.attribute(model, x, "predicted", "exact_shapley", background=others)
    maps = explain.attribute(model, x, "predicted", "deepshap", background=others)
    assert found["deepshap"].samples == pytest.approx(metrics.attribution_biases(maps, exact).samples, rel=1e-4)


def test_what_would_be_wrong_is_refused_and_named():
    class Functional(Net):
        def forward(self, x):
            return self.last(torch.relu(self.first(self.flat(x))))

    found = measure_bias(
        Functional(), X, 1, background=BACKGROUND, methods=["guided_backprop", "grad", "gradcam"], permutations=20
    )
    assert set(found.refused) == {"guided_backprop", "gradcam"}
    assert "relu" in found.refused["guided_backprop"].lower()
    assert [entry.method for entry in found.explainers] == ["grad", "constant", "random"]


def entry(method, values, layer=None):
    """An explainer whose samples have these biases at every share and side."""
    table = np.broadcast_to(np.asarray(values, dtype=float)[:, None, None], (len(values), 5, 2)).copy()
    empty = np.zeros((5, 2))
    given = metrics.Bias(
        mean=empty,
        corrected=empty,
        stderr=empty,
        sampling_stderr=empty,
        floor=empty,
        samples=table,
        shares=metrics.bias.SHARES,
        sides=metrics.bias.SIDES,
        degenerate=int(np.isnan(table[:, 0, 0]).sum()),
    )
    return explainer_bias(method, given, 0, layer)


def judged(*explainers):
    found = verdict_of(explainers)
    assert found is not None
    return found


def test_a_verdict_is_safe_only_when_every_other_is_behind():
    rng = np.random.default_rng(0)
    base = rng.uniform(0.1, 0.2, 12)
    low, close, far = (
        entry("grad", base),
        entry("lrp", base + rng.normal(0, 0.05, 12)),
        entry("lime", base + rng.uniform(0.1, 0.2, 12)),
    )
    control = entry("random", base + rng.uniform(0.4, 0.6, 12))
    safe = judged(low, far, control)
    assert (safe.least, safe.safe) == ("grad", True)
    assert "least biased" in safe.reading
    gaps, others = (one.samples[:, 0, 0] - low.samples[:, 0, 0] for one in (far, control))
    plain = [stats.ttest_1samp(one, 0).pvalue for one in (gaps, others)]
    assert [rival.p for rival in safe.rivals] == pytest.approx(metrics.holm(plain))
    assert safe.rivals[0].difference == pytest.approx(gaps.mean())
    open_verdict = judged(low, close, far, control)
    assert not open_verdict.safe
    assert "cannot be told from" in open_verdict.reading


def test_a_verdict_does_not_trust_one_sample_controls_or_other_players():
    one = judged(entry("grad", [0.1]), entry("lrp", [0.3]))
    assert (one.least, one.safe) == ("grad", False)
    best_is_control = judged(entry("grad", [0.2, 0.21, 0.22]), entry("constant", [0.1, 0.11, 0.1]))
    assert (best_is_control.least, best_is_control.safe) == ("grad", False)
    assert "constant" in best_is_control.reading
    layer = judged(entry("gradcam", [0.0, 0.0], "conv"), entry("grad", [0.2, 0.3]))
    assert layer.least == "grad"
    assert layer.rivals == ()
    assert "the only explainer" in layer.reading
    assert verdict_of([entry("constant", [0.1, 0.2])]) is None


def test_degenerate_maps_are_left_out_of_pairs():
    holes = judged(entry("grad", [0.1, math.nan, 0.12, 0.1]), entry("lrp", [0.3, 0.3, math.nan, 0.33]))
    assert holes.rivals[0].difference == pytest.approx(np.mean([0.2, 0.23]))
    assert entry("grad", [math.nan, math.nan]).overall.reason is not None


def test_the_result_survives_its_file(tmp_path):
    found = measure_bias(net(), X, 1, background=BACKGROUND, methods=["grad"], permutations=20)
    first = found.explainers[0]
    first.samples[2] = math.nan
    found.save(tmp_path / "deep" / "bias.json")
    again = BiasResult.load(tmp_path / "deep" / "bias.json")
    assert again.to_json() == found.to_json()
    assert again.verdict == found.verdict
    assert np.isnan(again["grad"].samples[2]).all()
    with pytest.raises(InputError, match="it was not measured; there are grad"):
        again["lime"]
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


OPTIONS = {"methods": ["grad", "deepshap"], "permutations": 20, "background": 10, "samples": 6}


def test_a_record_keeps_what_was_measured(record, monkeypatch):
    found = record_bias(record, **OPTIONS)
    assert found.samples == 6
    assert "after step 2" in found.subject
    assert (record / "trust" / "bias.json").exists()
    calls = []
    real = explain.shapley_table

    def counted(*arguments, **options):
        calls.append(1)
        return real(*arguments, **options)

    monkeypatch.setattr(explain, "shapley_table", counted)
    assert record_bias(record, **OPTIONS).to_json() == found.to_json()
    assert not calls
    more = record_bias(record, **{**OPTIONS, "methods": ["grad", "lrp"]})
    assert not calls
    assert more["grad"].samples == pytest.approx(found["grad"].samples)
    # Two samples more of each task; those that were there are read.
    record_bias(record, **{**OPTIONS, "samples": 10})
    assert len(calls) == 4
    other = record_bias(record, **OPTIONS, step=0)
    assert len(calls) == 10
    assert "after step 1" in other.subject


def test_samples_come_from_all_tasks_learned_so_far(record):
    data = tasks.load("split-digits", tasks=2, per_class=20)
    source = BenchmarkData(data, "cpu")
    asked = bias_records._Asked.of(source, [0, 1], 7, 5, 0, "cpu")
    assert [(asked.y < 5).sum(), (asked.y >= 5).sum()] == [4, 3]
    assert len(asked.background) == 5


def test_the_least_biased_explainer_is_handed_to_shapc_with_the_evidence(record):
    found = record_bias(record, **OPTIONS)
    result = shapc(record, method="least-biased", per_task=4, samples=10, background=10)
    assert result.settings["method"] == found.verdict.least
    assert result.settings["chosen"] == found.verdict.reading
    plain = shapc(record, method=found.verdict.least, per_task=4, samples=10, background=10)
    assert plain.mean == result.mean
    assert "chosen" not in plain.settings


def test_shapc_cannot_choose_without_a_comparison(tmp_path, record):
    with pytest.raises(InputError, match="run `perdure trust"):
        shapc(tmp_path, method="least-biased")
    with pytest.raises(InputError, match="no checkpoint was kept after step 9; there are 1, 2"):
        record_bias(record, step=8)
    with pytest.raises(InputError, match="method: unknown name 'gard'"):
        record_bias(record, methods="gard")
    with pytest.raises(InputError, match="samples: expected at least 1"):
        record_bias(record, samples=0)


def test_the_command_prints_a_table_and_json(record, perdure, tmp_path):
    words = ["trust", record, "--samples", 6, "--permutations", 20, "--background", 10]
    printed = perdure(*words, "--method", "grad", "--method", "deepshap", "--figure", "bias.svg").stdout
    found = BiasResult.load(record / "trust" / "bias.json")
    assert f"{found['grad'].overall.mean:.4f}" in printed
    assert "random (control)" in printed
    assert found.verdict is not None
    assert found.verdict.reading in printed.replace("\n", " ")
    assert "<svg" in (tmp_path / "bias.svg").read_text()
    more = [*words[:2], "--samples", 16, *words[4:]]
    told = json.loads(perdure(*more, "--method", "deepshap", "--json", "--shapc").stdout)
    assert told["bias"]["explainers"][0]["method"] == "deepshap"
    assert told["shapc"]["settings"]["method"] == "deepshap"


def test_peoples_ratings_stand_beside_the_bias(record, perdure, tmp_path):
    rows = ["explainer,rater,rating", "grad,a,1", "deepshap,a,5", "lrp,a,4", "grad,b,2", "deepshap,b,4", "lrp,b,4"]
    (tmp_path / "people.csv").write_text("\n".join(rows))
    words = ["trust", record, "--samples", 6, "--permutations", 20, "--background", 10, "--ratings", "people.csv"]
    words += [word for name in ("grad", "deepshap", "lrp") for word in ("--method", name)]
    found = json.loads(perdure(*words, "--json").stdout)
    bias = {entry["method"]: entry["overall"]["mean"] for entry in found["bias"]["explainers"]}
    names = found["ratings"]["explainers"]
    expected = np.corrcoef([{"grad": 1.5, "deepshap": 4.5, "lrp": 4}[name] for name in names], [bias[n] for n in names])
    assert found["ratings"]["r"] == pytest.approx(expected[0, 1])
    assert "2 raters" in perdure(*words).stdout


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


def test_the_command_takes_a_network_of_ones_own(tmp_path, perdure):
    (tmp_path / "own.py").write_text(OWN)
    words = ["trust", "--network", "own.py:make", "--out", "kept", "--method", "grad", "--samples", 4]
    assert "Judged by exact Shapley values" in perdure(*words, "--data", "own.py:data").stdout
    found = BiasResult.load(tmp_path / "kept" / "bias.json")
    assert found.samples == 4
    space: dict[str, Any] = {}
    exec(OWN, space)
    torch.save({"model": space["make"]((4,), 2).state_dict()}, tmp_path / "weights.pt")
    perdure(*words, "--data", "own.py:data", "--weights", "weights.pt")
    assert BiasResult.load(tmp_path / "kept" / "bias.json")["grad"].overall == found["grad"].overall
    assert "expected (inputs, labels)" in perdure(*words, "--data", "own.py:wrong", code=2).stderr
    assert "--network file.py:function" in perdure("trust", "--data", "own.py:data", code=2).stderr


def test_the_command_trains_a_network_when_there_is_none(perdure):
    words = ["trust", "--network", "mlp400", "--epochs", 1, "--per-class", 10, "--out", "kept", "--samples", 4]
    told = json.loads(perdure(*words, "--permutations", 20, "--method", "grad", "--json").stdout)["bias"]
    assert told["subject"].startswith("joint after step 1 of split-digits")
    assert BiasResult.from_json(told).samples == 4
    again = json.loads(perdure(*words, "--permutations", 20, "--method", "grad", "--json").stdout)["bias"]
    assert again == told
    # The network that was trained only to be asked about is no run of the user's.
    assert "no record" in perdure("audit", ".", code=2).stderr


def test_a_refused_explainer_is_named_and_the_exit_code_says_so(perdure):
    words = ["trust", "--network", "mlp400", "--epochs", 1, "--per-class", 10, "--out", "kept", "--samples", 4]
    done = perdure(*words, "--permutations", 20, "--method", "grad", "--method", "gradcam", code=1)
    assert "gradcam was left out" in done.stderr
    assert "grad" in done.stdout
