"""Variance ratios and agreement with the accurate bias: formulas checked with loops, and both experiments end to end."""

import math

import numpy as np
import pytest

from perdure import metrics
from perdure.reproduce.bias.example_set import select_example_set
from perdure.reproduce.bias.experiment import run_experiment
from perdure.reproduce.bias.experiments import agreement as agreement_run
from perdure.reproduce.bias.experiments import variance as variance_run
from tests.helpers.bias_network import tiny_model, workspace_at


def test_ratios_by_set_of_independent_and_of_correlated_players():
    rng = np.random.default_rng(1)
    marginals = rng.normal(size=(1, 4000, 20))
    marginals[0, :, :5] += 2 * rng.normal(size=(4000, 1))  # the first five share an effect
    maps = np.stack([-np.arange(20.0), np.arange(20.0)])[:, None]
    result = variance_run.variance_ratios_by_set(marginals, maps, (0.25,), 30, 0)
    assert result[1, 0, 0] == pytest.approx(5 / (1 + 4 * 0.8) / 5, rel=0.1)  # top by the first map: exactly these five
    assert result[2, 0, 0] == pytest.approx(1, rel=0.1)
    assert result[1, 0, 0] < result[0, 0, 0] < 1


def test_a_fixed_sum_alone_makes_the_ratio_larger_than_claimed():
    rng = np.random.default_rng(5)
    marginals = rng.normal(size=(1, 4000, 20))
    marginals -= marginals.mean(axis=2, keepdims=True)
    result = variance_run.variance_ratios_by_set(marginals, np.empty((0, 1, 20)), (0.1, 0.5, 0.9), 30, 0)
    assert result[0, :, 0] == pytest.approx([19 / 18, 19 / 10, 19 / 2], rel=0.06)


def test_agreement_is_the_bias_at_the_top_tenth():
    rng = np.random.default_rng(2)
    true = rng.normal(size=(3, 40))
    maps = true + rng.normal(size=(6, 3, 40)) * np.arange(1, 7)[:, None, None]
    marginals, many = (true[:, None] + rng.normal(size=(3, count, 40)) for count in (50, 4000))
    result = agreement_run.agreement(maps, marginals, many, (2, 50))
    for method in range(6):
        for sample in range(3):
            expected = [
                metrics.attribution_bias(maps[method, [sample]], values[None])
                for values in (
                    marginals[sample, :2].mean(axis=0),
                    marginals[sample].mean(axis=0),
                    many[sample].mean(axis=0),
                )
            ]
            seen = [*result.sampled[:, method, sample], result.accurate[method, sample]]
            assert seen == pytest.approx(expected)
    assert result.pooled[1].rho > result.pooled[0].rho
    assert result.deviation[1] < result.deviation[0]
    # Each anchor is a mean of four values with standard error 1 / sqrt(4000) over a norm of about sqrt(40).
    noise = 1 / math.sqrt(4000 * 4) / np.linalg.norm(true, axis=1).mean()
    assert result.accurate_stderr == pytest.approx(noise / result.accurate.mean(), rel=0.4)


def test_variance_experiment(tmp_path, monkeypatch):
    model, workspace = tiny_model(), workspace_at(tmp_path)
    small = variance_run.Settings(2, 20, (0.1, 0.5), ("gradient_x_input", "grad"), 4)
    monkeypatch.setattr(variance_run, "SETTINGS", small)
    monkeypatch.setattr(variance_run, "trained_lenet", lambda _: model)
    run_experiment(variance_run.EXPERIMENT, workspace)
    text = (workspace.out / "sections" / "bias-variance.md").read_text()
    examples = select_example_set(workspace, model, 2)
    result = variance_run.variance_ratios_by_set(
        examples.marginals(20), examples.maps(small.methods), small.shares, 4, 0
    )
    mean = np.exp(np.log(result).mean(axis=2))
    assert f"| 6 (10%) | {63 / 58:.2g} | {mean[0, 0]:.2g} [" in text
    assert f"factor of {mean[0, 0]:.2g} for random sets" in text
    assert f"at 50%, by {mean[0, 1]:.2g} for random sets" in text
    assert (workspace.pictures / "bias-variance.png").stat().st_size > 10_000


def test_agreement_experiment(tmp_path, monkeypatch):
    model, workspace = tiny_model(), workspace_at(tmp_path)
    methods = ("gradient_x_input", "grad", "integrated_gradients", "guided_backprop", "lime")
    monkeypatch.setattr(agreement_run, "LENET", agreement_run.Settings(2, None, (2, 6), 40, methods))
    monkeypatch.setattr(agreement_run, "RESNET20", agreement_run.Settings(2, 4, (2, 6), 40, methods))
    monkeypatch.setattr(agreement_run, "trained_lenet", lambda _: model)
    monkeypatch.setattr(agreement_run, "trained_resnet20", lambda _: model)
    run_experiment(agreement_run.EXPERIMENT, workspace)
    text = (workspace.out / "sections" / "bias-agreement.md").read_text()
    examples = select_example_set(workspace, model, 2)
    result = agreement_run.agreement(
        examples.maps(methods), examples.marginals(6), examples.marginals(40, paired=True, seed=1), (2, 6)
    )
    assert f"| 6 | {result.pooled[1]} | " in text
    assert f"its standard error is {100 * result.accurate_stderr:.2g} %" in text
    assert "64 pixels, 5 methods" in text
    assert "16 grid cells, 5 methods" in text
    assert (workspace.pictures / "bias-agreement.png").stat().st_size > 10_000
