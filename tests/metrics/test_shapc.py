"""SHAPC on arrays: hand-worked values, a direct implementation of the formula, and properties."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure import metrics
from perdure.base.errors import InputError
from perdure.metrics.shapc import BLOCK_VALUES


def slow_shapc(before, after, top=0.3):
    """Eq. 4 and 5 for one example, channel by channel."""
    scores = []
    for channels in zip(before, after, strict=True):
        first, second = (channel.ravel().astype(float) for channel in channels)
        if first.min() == first.max() or second.min() == second.max():
            continue
        k = max(1, math.floor(top * len(first) + 1e-9))
        p = [values >= np.sort(values)[-k] for values in (first, second)]
        scaled = [(values - values.min()) / (values.max() - values.min()) for values in (first, second)]
        w = np.exp(-np.abs(scaled[0] - scaled[1]))
        scores.append(w[p[0] & p[1]].sum() / w[p[0] | p[1]].sum())
    return np.mean(scores) if scores else np.nan


def slow_authors(before, after, top=0.3):
    """The authors' code: channels are summed and divided by the range, without subtracting the minimum."""
    first, second = before.sum(axis=0).ravel(), after.sum(axis=0).ravel()
    k = max(1, math.floor(top * len(first) + 1e-9))
    p = [values >= np.sort(values)[-k] for values in (first, second)]
    scaled = [values / (values.max() - values.min()) for values in (first, second)]
    w = np.exp(-np.abs(scaled[0] - scaled[1]))
    return w[p[0] & p[1]].sum() / w[p[0] | p[1]].sum()


def random_maps(seed, n=7, shape=(3, 6, 5), ties=False):
    rng = np.random.default_rng(seed)
    first = rng.normal(size=(n, *shape))
    second = first + rng.normal(size=first.shape)
    return (np.round(first), np.round(second)) if ties else (first, second)


def test_hand_worked():
    # Two of four values are important. Scaled: 0, .25, .5, 1 and 0, .5, .25, 1; the regions are {3, 4} and {2, 4}.
    before, after = np.array([[0.0, 1.0, 2.0, 4.0]]), np.array([[0.0, 4.0, 2.0, 8.0]])
    expected = 1 / (1 + 2 * math.exp(-0.25))
    assert metrics.shapc(before, after, top=0.5) == pytest.approx([expected])
    assert metrics.shapc(before.reshape(1, 1, 2, 2), after.reshape(1, 1, 2, 2), top=0.5) == pytest.approx([expected])


def test_channels_are_averaged():
    same = np.array([0.0, 1.0, 2.0, 4.0])
    before = np.stack([same, same]).reshape(1, 2, 2, 2)
    after = np.stack([same, [0.0, 4.0, 2.0, 8.0]]).reshape(1, 2, 2, 2)
    assert metrics.shapc(before, after, top=0.5) == pytest.approx([(1 + 1 / (1 + 2 * math.exp(-0.25))) / 2])


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("top", [0.1, 0.3, 0.5, 1.0])
def test_equals_the_direct_formula(kind, ties, top):
    before, after = (maps.astype(kind) for maps in random_maps(1, n=30, ties=ties))
    expected = [slow_shapc(first, second, top) for first, second in zip(before, after, strict=True)]
    assert metrics.shapc(before, after, top) == pytest.approx(expected, rel=1e-6 if kind is np.float32 else 1e-12)


def test_authors_variant_equals_their_code():
    before, after = random_maps(2)
    result = metrics.shapc(before, after, channels="sum", normalise="range")
    assert result == pytest.approx([slow_authors(first, second) for first, second in zip(before, after, strict=True)])
    assert not np.allclose(result, metrics.shapc(before, after))


def test_blocks_join():
    rng = np.random.default_rng(0)
    count = 2 * BLOCK_VALUES // 64 + 3
    before, after = rng.normal(size=(count, 1, 8, 8)), rng.normal(size=(count, 1, 8, 8))
    whole = metrics.shapc(before, after)
    assert whole[[0, count // 2, -1]] == pytest.approx(
        [slow_shapc(before[i], after[i]) for i in (0, count // 2, count - 1)]
    )
    assert len(whole) == count
    after[-1, 0, 3, 3] = math.nan
    with pytest.raises(InputError, match=f"got NaN or infinity in example {count - 1}$"):
        metrics.shapc(before, after)


def test_many_shares_in_one_pass():
    before, after = random_maps(3)
    together = metrics.shapc_at_shares(before, after, [0.5, 0.1, 0.3])
    for column, share in enumerate([0.5, 0.1, 0.3]):
        assert together[:, column] == pytest.approx(metrics.shapc(before, after, share))


def test_floating_share_does_not_lose_a_value():
    # 0.29 * 100 is 28.999999999999996: 29 values are important, and the 29th largest differs.
    before = np.arange(100.0)[None]
    after = before.copy()
    after[0, 71] = 0.5
    result = metrics.shapc(before, after, top=0.29)[0]
    weights = np.exp(-np.abs(before - after)[0] / 99)
    expected = weights[72:].sum() / weights[70:].sum()
    assert result == pytest.approx(expected)
    assert metrics.shapc(before, after, top=0.28)[0] == 1


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.01, 100), st.floats(-50, 50))
def test_scale_and_shift_do_not_matter(seed, scale, shift):
    before, after = random_maps(seed, n=3)
    assert metrics.shapc(before * scale + shift, after) == pytest.approx(metrics.shapc(before, after), rel=1e-6)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.05, 0.3, 0.9]))
def test_range_symmetry_and_self(seed, top):
    before, after = random_maps(seed, n=4)
    scores = metrics.shapc(before, after, top)
    assert ((scores >= 0) & (scores <= 1)).all()
    assert metrics.shapc(after, before, top) == pytest.approx(scores)
    assert (metrics.shapc(before, before, top) == 1).all()


def test_unrelated_maps_score_about_a_fifth():
    rng = np.random.default_rng(0)
    maps = rng.normal(size=(2, 200, 3, 32, 32))
    assert metrics.shapc(maps[0], maps[1]).mean() == pytest.approx(0.20, abs=0.01)


def test_constant_channels_are_left_out_and_degenerate_examples_are_nan():
    before, after = random_maps(4)
    before[0, 1], after[1, 2], before[2] = 3.0, -1.0, 0.0
    result = metrics.shapc(before, after)
    assert result == pytest.approx([slow_shapc(*maps) for maps in zip(before, after, strict=True)], nan_ok=True)
    assert np.isnan(result[2])
    assert not np.isnan(np.delete(result, 2)).any()


def test_torch_tensors_are_accepted():
    before, after = random_maps(5)
    result = metrics.shapc(torch.tensor(before, requires_grad=True), torch.tensor(after))
    assert result == pytest.approx(metrics.shapc(before, after))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.zeros((2, 3)), np.zeros((2, 4))), r"after: expected shape .* got"),
        ((np.zeros((2, 3, 4)), np.zeros((2, 3, 4))), "expected floating-point numbers of shape"),
        ((np.array([["a"]]), np.array([["b"]])), "type"),
        (
            (np.eye(3), np.eye(3) * [[1], [math.nan], [1]]),
            "after: expected finite numbers, got NaN or infinity in example 1",
        ),
        ((np.eye(3), np.eye(3), 0.0), r"top: expected a number in \(0, 1\]"),
        ((np.eye(3), np.eye(3), 1.1), r"top: expected a number in \(0, 1\]"),
        ((np.eye(3), np.eye(3), 0.3, "mean"), "channels: unknown name 'mean'"),
    ],
)
def test_invalid_input_is_rejected(arguments, message):
    with pytest.raises(InputError, match=message):
        metrics.shapc(*arguments)


def test_summary_by_hand():
    values = {(0, 1): [0.2, 0.4], (0, 2): [0.6, 0.8, math.nan], (1, 2): [0.5, 0.5]}
    result = metrics.summarise_shapc(values)
    assert result.pi[0, 1:] == pytest.approx([0.3, 0.7])
    assert result.lam[0, 1:] == pytest.approx([0.1 / 0.3, 0.1 / 0.7])
    assert result.mean == pytest.approx(((0.3 + 0.7) / 2 + 0.5) / 2)
    assert result.var == pytest.approx(((1 / 3 + 1 / 7) / 2 + 0) / 2)
    assert result.n.tolist() == [[0, 2, 2], [0, 0, 2], [0, 0, 0]]
    assert result.degenerate[0, 2] == 1
    assert np.isnan(result.pi[np.tril_indices(3)]).all()


def test_authors_summary_by_hand():
    values = {(0, 1): [0.2, 0.4, 0.9], (0, 2): [0.6, 0.8, 0.1]}
    labels = {0: [7, 7, 3]}
    result = metrics.summarise_shapc(values, variant="authors", labels=labels)
    # Class 7 has means .3 and .7 with deviations .1, class 3 has .9 and .1 with none.
    assert result.pi[0, 1:] == pytest.approx([0.6, 0.4])
    assert result.mean == pytest.approx(0.5)
    assert result.var == pytest.approx(0.05 / 0.5)
    one_class = metrics.summarise_shapc(values, variant="authors")
    assert one_class.mean == pytest.approx(0.5)
    assert one_class.var == pytest.approx((np.std(values[0, 1]) + np.std(values[0, 2])) / 2 / 0.5)


def test_rounding_above_one_is_accepted_in_a_summary():
    assert metrics.summarise_shapc({(0, 1): [1 + 1e-12, 1.0]}).mean == pytest.approx(1)


def test_a_summary_of_degenerate_examples_is_missing_with_a_reason():
    result = metrics.summarise_shapc({(0, 1): [math.nan, math.nan]})
    assert math.isnan(result.mean)
    assert "degenerate" in (metrics.reason(result.mean) or "")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "at least one pair"),
        ({(1, 1): [0.5]}, r"0 <= tau < t, got \(1, 1\)"),
        ({(2, 1): [0.5]}, r"0 <= tau < t, got \(2, 1\)"),
        ({(0, 1): [1.5]}, "between 0 and 1, got 1.5"),
        ({(0, 1): []}, "one number for each example"),
        ({(0, 1): [[0.5]]}, "one number for each example"),
    ],
)
def test_invalid_values_of_a_summary_are_rejected(values, message):
    with pytest.raises(InputError, match=message):
        metrics.summarise_shapc(values)


def test_authors_summary_needs_a_label_for_each_example():
    with pytest.raises(InputError, match="expected 2 classes"):
        metrics.summarise_shapc({(0, 1): [0.1, 0.2]}, variant="authors", labels={0: [1]})
    with pytest.raises(InputError, match="unknown name"):
        metrics.summarise_shapc({(0, 1): [0.1, 0.2]}, variant="ours")  # type: ignore[arg-type]


def test_maps_of_different_precision_are_compared_in_the_wider_one():
    rng = np.random.default_rng(0)
    wide = rng.normal(size=(20, 3, 6, 6))
    narrow = wide.astype(np.float32)
    expected = metrics.shapc(wide, narrow.astype(np.float64))
    np.testing.assert_array_equal(metrics.shapc(wide, narrow), expected)
    np.testing.assert_array_equal(metrics.shapc(narrow, wide), metrics.shapc(narrow.astype(np.float64), wide))
    np.testing.assert_allclose(metrics.shapc(wide, narrow), 1.0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_maps_are_computed_in_single_precision(dtype):
    maps = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0)).to(dtype)
    other = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(1)).to(dtype)
    np.testing.assert_array_equal(metrics.shapc(maps, other), metrics.shapc(maps.float(), other.float()))


@pytest.mark.parametrize("dtype", ["int64", "bool"])
def test_integer_and_boolean_maps_are_rejected_by_name(dtype):
    with pytest.raises(InputError, match=f"before: expected floating-point numbers .* got values of type {dtype}"):
        metrics.shapc(np.ones((2, 4), dtype=dtype), np.ones((2, 4)))


def test_values_that_are_zero_in_both_maps_can_be_left_out():
    rng = np.random.default_rng(0)
    before, after = rng.normal(size=(2, 6, 3, 5, 5))
    assert metrics.shapc(before, after, zeros="drop").tolist() == metrics.shapc(before, after).tolist()
    # With zeros added to both maps, the score is that of the other values.
    padded = [np.concatenate([maps, np.zeros((6, 3, 5, 9))], axis=-1) for maps in (before, after)]
    assert metrics.shapc(padded[0], padded[1], zeros="drop") == pytest.approx(metrics.shapc(before, after))
    for share in (0.1, 0.5):
        assert metrics.shapc(padded[0], padded[1], share, zeros="drop") == pytest.approx(
            metrics.shapc(before, after, share)
        )
    # A value that is 0 in one map only is used.
    one = before.copy()
    one[:, :, 0, 0] = 0
    assert metrics.shapc(one, after, zeros="drop").tolist() == metrics.shapc(one, after).tolist()
    # Two maps with few positive values agree on their common zeros; without them they are unrelated.
    negative = [np.where(rng.random((6, 1, 400)) < 0.5, -rng.random((6, 1, 400)), 0) for _ in range(2)]
    common = negative[0] == 0
    maps = [np.where(common, 0, -rng.random((6, 1, 400)))[:, :, None] for _ in range(2)]
    assert metrics.shapc(maps[0], maps[1]).min() > 0.9
    assert metrics.shapc(maps[0], maps[1], zeros="drop").max() < 0.35


def test_maps_without_used_values_are_degenerate_if_zeros_are_left_out():
    maps = np.zeros((2, 1, 3, 3))
    maps[1, 0, 0] = [1.0, 2.0, 3.0]
    assert np.isnan(metrics.shapc(maps, maps, zeros="drop")).tolist() == [True, False]
    assert metrics.shapc(maps, maps, zeros="drop")[1] == 1
