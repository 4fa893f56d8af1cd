"""Invariants of the lifelong-learning metrics of New et al. 2022."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps
from numpy.typing import NDArray

from perdure.metrics import lifelong
from perdure.metrics.lifelong import Block, Run

curves = nps.arrays(float, st.integers(1, 60), elements=st.floats(-50, 50, width=32))


@given(curves, st.one_of(st.none(), st.integers(1, 70)))
def test_smoothing_keeps_length_and_bounds(curve: NDArray[np.float64], window: int | None) -> None:
    out = lifelong.smooth(curve, window)
    assert out.shape == curve.shape
    assert out.min() >= curve.min() - 1e-9
    assert out.max() <= curve.max() + 1e-9


@given(curves, st.floats(-3, 3), st.floats(-9, 9))
def test_smoothing_is_linear(curve: NDArray[np.float64], a: float, b: float) -> None:
    np.testing.assert_allclose(lifelong.smooth(a * curve + b), a * lifelong.smooth(curve) + b, atol=1e-9)


tables = st.integers(1, 4).flatmap(
    lambda tasks: st.lists(st.integers(0, tasks - 1), min_size=1, max_size=6).flatmap(
        lambda curriculum: st.tuples(
            nps.arrays(float, (len(curriculum) + 1, tasks), elements=st.floats(0, 1, width=32)),
            st.just(tuple(curriculum)),
        )
    )
)


@given(tables, st.floats(0.5, 20), st.floats(-5, 5))
def test_units_of_performance_do_not_matter_after_normalization(
    case: tuple[NDArray[np.float64], tuple[int, ...]], scale: float, shift: float
) -> None:
    table, curriculum = np.round(case[0], 3), case[1]
    plain, other = (
        lifelong.normalised_run(lifelong.run_from_table(t, curriculum)) for t in (table, scale * table + shift)
    )
    one, two = lifelong.performance_maintenance(plain), lifelong.performance_maintenance(other)
    np.testing.assert_allclose([*one.tasks.values()], [*two.tasks.values()], atol=1e-6)
    ratio, again = lifelong.backward_transfer(plain), lifelong.backward_transfer(other)
    assert ratio.pairs.keys() == again.pairs.keys()
    for pair, values in ratio.pairs.items():
        np.testing.assert_allclose(again.pairs[pair], values, rtol=1e-6)


@given(tables)
def test_ranges_and_relations_of_transfer(case: tuple[NDArray[np.float64], tuple[int, ...]]) -> None:
    run = lifelong.normalised_run(lifelong.run_from_table(*case))
    everything = np.concatenate([block.performance for block in run.blocks])
    assert everything.min() >= 1 - 1e-9
    assert everything.max() <= 101 + 1e-9
    for transfer in (lifelong.forward_transfer, lifelong.backward_transfer):
        ratios, contrasts = transfer(run).pairs, transfer(run, "contrast").pairs
        assert ratios.keys() == contrasts.keys()
        for pair, values in ratios.items():
            r = np.array(values)
            np.testing.assert_allclose(contrasts[pair], (r - 1) / (r + 1), atol=1e-12)
            assert np.abs(contrasts[pair]).max() <= 1
            assert pair[0] != pair[1]
    assert all(abs(v) <= 100 + 1e-9 for vs in lifelong.performance_maintenance(run).values.values() for v in vs)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=5), st.integers(1, 4))
def test_a_learner_that_never_forgets_maintains_exactly(levels: list[float], rounds: int) -> None:
    tasks = len(levels)
    curriculum = [task for _ in range(rounds) for task in range(tasks)]
    run = lifelong.run_from_table(np.tile(levels, (len(curriculum) + 1, 1)), curriculum)
    assert all(v == 0 for vs in lifelong.performance_maintenance(run).values.values() for v in vs)
    assert all(v == 0 for vs in lifelong.backward_transfer(run, "contrast").pairs.values() for v in vs)


@given(nps.arrays(float, st.integers(8, 60), elements=st.floats(1, 101, width=32)))
def test_a_learner_equal_to_its_expert_scores_one(curve: NDArray[np.float64]) -> None:
    run = Run([Block("train", "a", curve)], {"a": [curve, curve]})
    assert lifelong.relative_performance(run).mean == pytest.approx(1)
    rising = Run([Block("train", "a", np.sort(curve) + np.arange(curve.size))], {})
    equal = Run(rising.blocks, {"a": [rising.training_curve("a")]})
    assert lifelong.sample_efficiency(equal).mean == pytest.approx(1)
