"""Attribution bias on arrays: by hand, by the formula written slowly, and its properties."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure import metrics
from perdure.base.errors import InputError


def slow_bias(a, anchor, share, side):
    """M_bias of one sample, as it is printed; ties by position."""
    count = max(1, math.floor(share * len(a) + 1e-9))
    order = sorted(range(len(a)), key=lambda i: (-a[i] if side == "top" else a[i], i))[:count]
    own = sum(a[i] for i in order) / math.sqrt(sum(v * v for v in a))
    true = sum(anchor[i] for i in order) / math.sqrt(sum(v * v for v in anchor))
    return abs(own - true) / count


def test_hand_worked():
    # The most important of four is the third: .8 of the map's norm, .6 of the Shapley values' norm.
    a, anchor = [[0.0, 0.0, 4.0, 3.0]], [[0.0, 4.0, 3.0, 0.0]]
    assert metrics.attribution_bias(a, anchor, share=0.25) == pytest.approx(0.8 - 0.6)
    # Its two highest: (.8 + .6) and (.6 + 0), halved. Its two lowest hold nothing of it, and .8 of the Shapley values.
    assert metrics.attribution_bias(a, anchor, share=0.5) == pytest.approx((1.4 - 0.6) / 2)
    assert metrics.attribution_bias(a, anchor, share=0.5, side="bottom") == pytest.approx(0.8 / 2)


@pytest.mark.parametrize("ties", [False, True])
def test_equals_the_formula_written_slowly(ties):
    rng = np.random.default_rng(0)
    a, anchor = rng.normal(size=(2, 9, 40))
    if ties:
        a = np.round(a)
    found = metrics.attribution_biases(a, anchor)
    for i, share in enumerate(found.shares):
        for j, side in enumerate(found.sides):
            expected = [slow_bias(one, other, share, side) for one, other in zip(a, anchor, strict=True)]
            assert found.per_example[:, i, j] == pytest.approx(expected)
            assert found.mean[i, j] == pytest.approx(np.mean(expected))
            assert metrics.attribution_bias(a, anchor, share, side) == pytest.approx(np.mean(expected))
            assert found.stderr[i, j] == pytest.approx(np.std(expected, ddof=1) / 3)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.01, 100), st.floats(0.01, 100))
def test_scale_changes_nothing_and_the_true_map_has_none(seed, scale, other):
    rng = np.random.default_rng(seed)
    a, anchor = rng.normal(size=(2, 3, 20))
    plain = metrics.attribution_biases(a, anchor).mean
    assert metrics.attribution_biases(a * scale, anchor * other).mean == pytest.approx(plain)
    assert metrics.attribution_biases(anchor * scale, anchor).mean == pytest.approx(np.zeros_like(plain), abs=1e-12)


def test_the_norm_is_freed_from_sampling_noise():
    rng = np.random.default_rng(1)
    true = rng.normal(size=(60, 200))
    maps = true + rng.normal(scale=2.0, size=true.shape)
    accurate = metrics.attribution_biases(maps, true).mean
    noisy = true + rng.normal(scale=0.8, size=true.shape)
    found = metrics.attribution_biases(maps, noisy, stderr=np.full(true.shape, 0.8))
    # Noise of .8 makes the norm sqrt(1.64) times too long; the anchor shrinks by that, and the bias with it grows.
    assert abs(found.corrected[0, 0] - accurate[0, 0]) < 0.3 * abs(found.mean[0, 0] - accurate[0, 0])
    assert metrics.attribution_biases(maps, noisy).corrected == pytest.approx(found.mean)


def test_degenerate_maps_are_counted_and_set_aside():
    rng = np.random.default_rng(2)
    a, anchor = rng.normal(size=(2, 4, 10))
    expected = metrics.attribution_biases(a[2:], anchor[2:]).mean
    a[0], anchor[1] = 0.0, 0.0
    found = metrics.attribution_biases(a, anchor)
    assert found.degenerate == 2
    assert found.mean == pytest.approx(expected)
    assert np.isnan(found.per_example[:2]).all()
    alone = metrics.attribution_bias(np.zeros((2, 3)), np.ones((2, 3)))
    assert math.isnan(alone)
    assert "zero everywhere" in (metrics.reason(alone) or "")


def test_takes_tensors():
    a, anchor = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(0))
    found = metrics.attribution_bias(a.requires_grad_(), anchor)
    assert found == pytest.approx(metrics.attribution_bias(a.detach().numpy(), anchor.numpy()))


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((np.ones((2, 3)), np.ones((2, 4))), {}, "shapley: its shape"),
        ((np.ones(3), np.ones(3)), {}, "attributions: expected 2 dimension"),
        ((np.array([[1.0, math.nan]]), np.ones((1, 2))), {}, "attributions: sample 0 has a NaN"),
        ((np.ones((1, 2)), np.array([[1.0, math.inf]])), {}, "shapley: sample 0 has a NaN"),
        ((np.ones((1, 2)), np.ones((1, 2))), {"shares": [0.0]}, "share: expected"),
        ((np.ones((1, 2)), np.ones((1, 2))), {"sides": ["left"]}, "side: unknown name 'left'"),
        ((np.ones((1, 2)), np.ones((1, 2))), {"stderr": np.ones((1, 3))}, "stderr: expected"),
        ((np.ones((1, 2)), np.ones((1, 2))), {"stderr": -np.ones((1, 2))}, "stderr: expected"),
    ],
)
def test_refusals(arguments, options, words):
    with pytest.raises(InputError, match=words):
        metrics.attribution_biases(*arguments, **options)


def test_several_methods_are_judged_at_once_as_one_by_one():
    rng = np.random.default_rng(3)
    maps, anchor = rng.normal(size=(4, 6, 30)), rng.normal(size=(6, 30))
    maps[2, 1] = 0.0
    parts = anchor + rng.normal(scale=0.1, size=(5, 6, 30))
    anchor, errors = parts.mean(axis=0), parts.std(axis=0, ddof=1) / math.sqrt(5)
    together = metrics.attribution_biases(maps, anchor, stderr=errors, parts=parts)
    assert np.array_equal(together.degenerate, [0, 0, 1, 0])
    for place, one in enumerate(maps):
        alone = metrics.attribution_biases(one, anchor, stderr=errors, parts=parts)
        split = together.of_method(place)
        for name in ("mean", "corrected", "stderr", "sampling_stderr", "floor"):
            assert getattr(split, name) == pytest.approx(getattr(alone, name))
        assert split.per_example == pytest.approx(alone.per_example, nan_ok=True)
        assert split.degenerate == alone.degenerate


def test_the_sampling_error_of_the_mean_is_what_other_draws_would_change():
    rng = np.random.default_rng(4)
    true = rng.normal(size=(8, 50))
    maps = np.exp(
        2 * rng.normal(size=true.shape)
    )  # far too much for a few: no difference is near 0, where it would fold

    def drawn():
        # A fixed sum, as the marginals of a permutation have: noise of one player is taken back by the others.
        noise = rng.normal(scale=1.5, size=(10, *true.shape))
        return true + noise - noise.mean(axis=2, keepdims=True)

    found, repeats = [], []
    for _ in range(300):
        parts = drawn()
        errors = parts.std(axis=0, ddof=1) / math.sqrt(10)
        found.append(metrics.attribution_biases(maps, parts.mean(axis=0), stderr=errors, parts=parts))
        repeats.append(found[-1].mean)
    spread = np.std(repeats, axis=0)
    told = np.sqrt(np.mean([np.square(one.sampling_stderr) for one in found], axis=0))
    assert told[:2, 0] == pytest.approx(spread[:2, 0], rel=0.1)
    independent = metrics.attribution_biases(maps, parts.mean(axis=0), stderr=errors).sampling_stderr
    assert (independent[4] > 2 * found[-1].sampling_stderr[4]).all()  # at 90 % the sum is nearly fixed
    assert np.isnan(metrics.attribution_biases(maps, true).floor).all()


def test_the_floor_is_what_the_true_map_scores():
    rng = np.random.default_rng(5)
    true = rng.normal(size=(200, 60)) + 0.5
    parts = true + rng.normal(scale=0.6, size=(10, *true.shape))
    errors = parts.std(axis=0, ddof=1) / math.sqrt(10)
    found = metrics.attribution_biases(true, parts.mean(axis=0), stderr=errors, parts=parts)
    assert found.mean[0] == pytest.approx(found.floor[0], rel=0.25)
    with pytest.raises(InputError, match="parts: expected at least 2"):
        metrics.attribution_biases(true, true, parts=parts[:1])
