"""Attribution bias on arrays: hand-worked values, a direct implementation of the formula, and properties."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure import metrics
from perdure.base.errors import InputError


def slow_bias(a, anchor, share, side):
    """M_bias of one example as printed in the paper; ties by position."""
    count = max(1, math.floor(share * len(a) + 1e-9))
    order = sorted(range(len(a)), key=lambda i: (-a[i] if side == "top" else a[i], i))[:count]
    map_sum = sum(a[i] for i in order) / math.sqrt(sum(v * v for v in a))
    anchor_sum = sum(anchor[i] for i in order) / math.sqrt(sum(v * v for v in anchor))
    return abs(map_sum - anchor_sum) / count


def test_hand_worked():
    # The most important of four is the third: .8 of the map's norm, .6 of the Shapley values' norm.
    a, anchor = [[0.0, 0.0, 4.0, 3.0]], [[0.0, 4.0, 3.0, 0.0]]
    assert metrics.attribution_bias(a, anchor, share=0.25) == pytest.approx(0.8 - 0.6)
    # Its two highest: (.8 + .6) and (.6 + 0), halved. Its two lowest are 0 in the map and .8 in the Shapley values.
    assert metrics.attribution_bias(a, anchor, share=0.5) == pytest.approx((1.4 - 0.6) / 2)
    assert metrics.attribution_bias(a, anchor, share=0.5, side="bottom") == pytest.approx(0.8 / 2)


@pytest.mark.parametrize("ties", [False, True])
def test_equals_the_direct_formula(ties):
    rng = np.random.default_rng(0)
    a, anchor = rng.normal(size=(2, 9, 40))
    if ties:
        a = np.round(a)
    result = metrics.attribution_biases(a, anchor)
    for i, share in enumerate(result.shares):
        for j, side in enumerate(result.sides):
            expected = [
                slow_bias(map_values, shapley, share, side) for map_values, shapley in zip(a, anchor, strict=True)
            ]
            assert result.per_example[:, i, j] == pytest.approx(expected)
            assert result.mean[i, j] == pytest.approx(np.mean(expected))
            assert metrics.attribution_bias(a, anchor, share, side) == pytest.approx(np.mean(expected))
            assert result.stderr[i, j] == pytest.approx(np.std(expected, ddof=1) / 3)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.01, 100), st.floats(0.01, 100))
def test_scale_does_not_matter_and_shapley_values_have_no_bias(seed, scale, anchor_scale):
    rng = np.random.default_rng(seed)
    a, anchor = rng.normal(size=(2, 3, 20))
    plain = metrics.attribution_biases(a, anchor).mean
    assert metrics.attribution_biases(a * scale, anchor * anchor_scale).mean == pytest.approx(plain)
    assert metrics.attribution_biases(anchor * scale, anchor).mean == pytest.approx(np.zeros_like(plain), abs=1e-12)


def test_sampling_noise_is_removed_from_the_norm():
    rng = np.random.default_rng(1)
    true = rng.normal(size=(60, 200))
    maps = true + rng.normal(scale=2.0, size=true.shape)
    accurate = metrics.attribution_biases(maps, true).mean
    noisy = true + rng.normal(scale=0.8, size=true.shape)
    result = metrics.attribution_biases(maps, noisy, stderr=np.full(true.shape, 0.8))
    # Noise of .8 inflates the norm by sqrt(1.64); the anchor shrinks by that factor, and the bias grows.
    assert abs(result.corrected[0, 0] - accurate[0, 0]) < 0.3 * abs(result.mean[0, 0] - accurate[0, 0])
    assert metrics.attribution_biases(maps, noisy).corrected == pytest.approx(result.mean)


def test_sampling_errors_by_hand():
    # S holds the last two of four players; the norm of the Shapley values is 5.
    a, anchor = np.array([[0.0, 0.0, 4.0, 3.0]]), np.array([[0.0, 4.0, 3.0, 0.0]])
    options: dict[str, Any] = {"shares": [0.5], "sides": ["top"]}
    independent = metrics.attribution_biases(a, anchor, stderr=np.full((1, 4), 0.2), **options)
    assert independent.sampling_stderr == pytest.approx(np.array([[0.2 / math.sqrt(2) / 5]]))
    # The mean over S is 2 in one part and 1 in the other, so the standard error of their mean is 1/2.
    shift = np.array([0.0, 0.0, 1.0, 0.0])
    parts = np.stack([anchor + shift, anchor - shift])
    result = metrics.attribution_biases(a, anchor, parts=parts, **options)
    assert result.sampling_stderr == pytest.approx(np.array([[0.5 / 5]]))
    assert result.floor == pytest.approx(np.array([[math.sqrt(2 / math.pi) * 0.5 / 5]]))


def test_the_noise_removed_from_the_norm_is_bounded():
    """If the noise exceeds nine tenths of the squared norm 25, a tenth of it remains."""
    result = metrics.attribution_biases([[3.0, 4.0]], [[4.0, 3.0]], shares=[0.5], sides=["top"], stderr=[[9.0, 9.0]])
    assert result.corrected == pytest.approx(np.array([[abs(0.8 - 3 / math.sqrt(2.5))]]))


def test_a_floating_share_does_not_lose_a_player():
    # 0.29 * 100 is 28.999999999999996.
    values = np.arange(100.0)
    assert metrics.bias_selected_players(values, 0.29).tolist() == list(range(99, 70, -1))


def test_degenerate_maps_are_counted_and_left_out():
    rng = np.random.default_rng(2)
    a, anchor = rng.normal(size=(2, 4, 10))
    expected = metrics.attribution_biases(a[2:], anchor[2:]).mean
    a[0], anchor[1] = 0.0, 0.0
    result = metrics.attribution_biases(a, anchor)
    assert result.degenerate == 2
    assert result.mean == pytest.approx(expected)
    assert np.isnan(result.per_example[:2]).all()
    all_zero = metrics.attribution_bias(np.zeros((2, 3)), np.ones((2, 3)))
    assert math.isnan(all_zero)
    assert "zero everywhere" in (metrics.reason(all_zero) or "")


def test_torch_tensors_are_accepted():
    a, anchor = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(0))
    result = metrics.attribution_bias(a.requires_grad_(), anchor)
    assert result == pytest.approx(metrics.attribution_bias(a.detach().numpy(), anchor.numpy()))


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((np.ones((2, 3)), np.ones((2, 4))), {}, r"shapley: expected shape \(2, 3\).*got \(2, 4\)"),
        ((np.ones(3), np.ones(3)), {}, "attributions: expected 2 dimension"),
        (
            (np.array([[1.0, math.nan]]), np.ones((1, 2))),
            {},
            "attributions: expected finite numbers, got NaN or infinity in example 0",
        ),
        (
            (np.ones((1, 2)), np.array([[1.0, math.inf]])),
            {},
            "shapley: expected finite numbers, got NaN or infinity in example 0",
        ),
        ((np.ones((1, 2)), np.ones((1, 2))), {"shares": [0.0]}, "share: expected"),
        ((np.ones((1, 2)), np.ones((1, 2))), {"sides": ["left"]}, "side: unknown name 'left'"),
        ((np.ones((1, 2)), np.ones((1, 2))), {"stderr": np.ones((1, 3))}, "stderr: expected"),
        ((np.ones((1, 2)), np.ones((1, 2))), {"stderr": -np.ones((1, 2))}, "stderr: expected"),
    ],
)
def test_invalid_input_is_rejected(arguments, options, message):
    with pytest.raises(InputError, match=message):
        metrics.attribution_biases(*arguments, **options)


def test_several_methods_at_once_equal_one_by_one():
    rng = np.random.default_rng(3)
    maps, anchor = rng.normal(size=(4, 6, 30)), rng.normal(size=(6, 30))
    maps[2, 1] = 0.0
    parts = anchor + rng.normal(scale=0.1, size=(5, 6, 30))
    anchor, errors = parts.mean(axis=0), parts.std(axis=0, ddof=1) / math.sqrt(5)
    together = metrics.attribution_biases(maps, anchor, stderr=errors, parts=parts)
    assert np.array_equal(together.degenerate, [0, 0, 1, 0])
    for index, method_maps in enumerate(maps):
        single = metrics.attribution_biases(method_maps, anchor, stderr=errors, parts=parts)
        split = together.of_method(index)
        for name in ("mean", "corrected", "stderr", "sampling_stderr", "floor"):
            assert getattr(split, name) == pytest.approx(getattr(single, name))
        assert split.per_example == pytest.approx(single.per_example, nan_ok=True)
        assert split.degenerate == single.degenerate


def test_the_sampling_error_of_the_mean_is_its_spread_over_draws():
    rng = np.random.default_rng(4)
    true = rng.normal(size=(8, 50))
    # Heavy-tailed maps: no difference is near 0, where the absolute value would fold it.
    maps = np.exp(2 * rng.normal(size=true.shape))

    def drawn():
        # Noise with a fixed sum over players, as in the marginals of a permutation.
        noise = rng.normal(scale=1.5, size=(10, *true.shape))
        return true + noise - noise.mean(axis=2, keepdims=True)

    results, repeats = [], []
    for _ in range(300):
        parts = drawn()
        errors = parts.std(axis=0, ddof=1) / math.sqrt(10)
        results.append(metrics.attribution_biases(maps, parts.mean(axis=0), stderr=errors, parts=parts))
        repeats.append(results[-1].mean)
    spread = np.std(repeats, axis=0)
    estimated = np.sqrt(np.mean([np.square(result.sampling_stderr) for result in results], axis=0))
    assert estimated[:2, 0] == pytest.approx(spread[:2, 0], rel=0.1)
    independent = metrics.attribution_biases(maps, parts.mean(axis=0), stderr=errors).sampling_stderr
    assert (independent[4] > 2 * results[-1].sampling_stderr[4]).all()  # at 90 % the sum is nearly fixed
    assert np.isnan(metrics.attribution_biases(maps, true).floor).all()


def test_the_floor_is_the_score_of_the_true_map():
    rng = np.random.default_rng(5)
    true = rng.normal(size=(200, 60)) + 0.5
    parts = true + rng.normal(scale=0.6, size=(10, *true.shape))
    errors = parts.std(axis=0, ddof=1) / math.sqrt(10)
    result = metrics.attribution_biases(true, parts.mean(axis=0), stderr=errors, parts=parts)
    assert result.mean[0] == pytest.approx(result.floor[0], rel=0.25)
    with pytest.raises(InputError, match="parts: expected at least 2"):
        metrics.attribution_biases(true, true, parts=parts[:1])
