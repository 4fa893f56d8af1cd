"""DeepSHAP as a reference and the Gaussian assumption: their measures, and both experiments end to end."""

import numpy as np
import pytest
from scipy import stats

from perdure import explain, metrics
from perdure.base.errors import InputError
from perdure.learners import Training
from perdure.reproduce.bias import measures as bias_measures
from perdure.reproduce.bias import tabular_model as tabular
from perdure.reproduce.bias.example_set import ExampleSet, select_example_set
from perdure.reproduce.bias.experiment import Workspace, run_experiment
from perdure.reproduce.bias.experiments import deepshap, gaussian
from tests.helpers.bias_network import tiny_model, workspace_at


def test_sampling_distribution_is_scipys_moments():
    rng = np.random.default_rng(0)
    marginals = rng.standard_t(6, size=(500, 7)) * np.arange(1, 8)
    result = metrics.sampling_distribution(marginals)
    assert result.excess_kurtosis == pytest.approx(stats.kurtosis(marginals, axis=0))
    assert result.variance == pytest.approx(marginals.var(axis=0, ddof=1))
    low, high = np.quantile(result.variance, [0.1, 0.9])
    assert result.variance_spread == pytest.approx(high / low)
    with pytest.raises(InputError, match="at least 4"):
        metrics.sampling_distribution(marginals[:3])


def test_regions_are_squares_that_do_not_overlap():
    regions = gaussian.gaussian_random_regions(16, 20, 3, 5, seed=0)
    assert regions.shape == (3, 25)
    assert len(np.unique(regions)) == 75
    for region in regions:
        rows, columns = np.divmod(region, 20)
        assert (np.unique(rows, return_counts=True)[1] == 5).all()
        assert np.ptp(rows) == np.ptp(columns) == 4


def test_exact_values_have_no_bias_against_a_correct_reference_only():
    exact = np.random.default_rng(1).normal(size=(20, 14))
    assert deepshap.deepshap_reference_bias(exact, 3 * exact).mean == pytest.approx(np.zeros((5, 1)), abs=1e-12)
    assert deepshap.deepshap_reference_bias(exact, np.abs(exact)).mean[-1, 0] > 0.05


def small_table(tmp_path):
    rng = np.random.default_rng(2)
    (tmp_path / "tabular").mkdir()
    rows = [
        f"{rng.normal():.3f}, {rng.choice(['red', 'blue', 'green'])}, {rng.normal():.3f}, {label}"
        for label in ["no", "yes"] * 30
    ]
    (tmp_path / "tabular" / "adult.data").write_text("\n".join(rows))
    return Workspace(tmp_path, tmp_path / "out", tmp_path / "pictures", lambda *_: None)


def test_a_categorical_column_is_one_player(tmp_path):
    model, players = tabular.load_tabular_model(small_table(tmp_path), Training(epochs=1, batch_size=16))
    assert players.count == 3
    assert players.labels.tolist() == [0, 1, 1, 1, 2]
    assert model.benchmark.outputs == 2


def test_missing_tables_are_named(tmp_path):
    with pytest.raises(InputError, match="expected TV_News"):
        tabular.load_tabular_model(workspace_at(tmp_path))


def test_deepshap_experiment(tmp_path, monkeypatch):
    model, workspace = tiny_model(), small_table(tmp_path)
    monkeypatch.setattr(deepshap, "SETTINGS", deepshap.Settings(2, 10, 8, 30))
    monkeypatch.setattr(deepshap, "trained_lenet", lambda _: model)
    run_experiment(deepshap.EXPERIMENT, workspace)
    text = (workspace.out / "sections" / "bias-deepshap.md").read_text()
    examples = select_example_set(workspace, model, 2)
    halves = [examples.marginals(10)[:, at::2].mean(axis=1) for at in range(2)]
    result = metrics.map_rank_correlation(examples.maps(("deepshap",))[0], (halves[0] + halves[1]) / 2)
    assert f"| DeepSHAP, 100 backgrounds | {result.cosine.mean():.2g} [" in text
    assert f"{metrics.map_rank_correlation(*halves).error.mean():.2g} [" in text
    table, players = tabular.load_tabular_model(workspace)
    x, y = table.examples(8)
    rows = ExampleSet(workspace, table, x, y, table.background(100), players)
    exact = np.stack([exact.values for exact in rows.exact()])
    bias = metrics.attribution_biases(exact, rows.marginals(30).mean(axis=1))
    assert f"| sampled Shapley values, ours | {bias.mean[0, 0]:.4f} [" in text
    by_deepshap = explain.attribute(table.network, x, y, "deepshap", background=rows.background)
    worse = metrics.attribution_biases(exact, players.gather(by_deepshap.double()).numpy())
    assert f"| DeepSHAP, ours | {worse.mean[0, 0]:.4f} [" in text
    assert "| DeepSHAP, paper (MLP-5, TV news) | 0.1944 | 0.0990 |" in text
    assert (workspace.pictures / "bias-deepshap.png").stat().st_size > 10_000


def test_gaussian_experiment(tmp_path, monkeypatch):
    model, workspace = tiny_model(), workspace_at(tmp_path)
    monkeypatch.setattr(gaussian, "SETTINGS", gaussian.Settings(6, 3, 2, 4, 2, 10))
    for name in ("trained_lenet", "trained_resnet20"):
        monkeypatch.setattr(gaussian, name, lambda _: model)
    run_experiment(gaussian.EXPERIMENT, workspace)
    text = (workspace.out / "sections" / "bias-gaussian.md").read_text()
    examples = select_example_set(workspace, model, 6)
    regions = gaussian.gaussian_random_regions(8, 8, 3, 2, 0)
    maps = examples.maps(("gradient_x_input",))[0]
    result = bias_measures.region_distributions(np.stack([maps[:, region] for region in regions]))
    assert f"| Gradient x Input, LeNet | variance | {result.variance[0]:.2g} |" in text
    assert f"{result.levene_p:.1g} | {result.friedman_p:.1g}" in text
    values = examples.marginals(4, of=regions.ravel().tolist()).mean(axis=1)
    assert f"| Shapley values, LeNet | mean | {values[:, :4].mean():.2g} |" in text
    assert "| Gradient x Input, paper | variance | 0.7243 | 0.6894 | 0.7719 |" in text
    assert (workspace.pictures / "bias-gaussian.png").stat().st_size > 10_000
