"""Simultaneous intervals: coverage of all columns together, and agreement with Student's t for a single column."""

import numpy as np
import pytest
from scipy import stats

from perdure.metrics.simultaneous import simultaneous_intervals


def test_all_columns_are_covered_together_with_the_stated_probability():
    """400 tables of 40 examples and 12 correlated, skewed columns: at least .92 of nominal .95 cover all means."""
    rng = np.random.default_rng(0)
    mixing = np.eye(12) + 0.3
    covered = 0
    for trial in range(400):
        table = (rng.gamma(2.0, size=(40, 12)) - 2.0) @ mixing
        intervals = simultaneous_intervals(table, seed=trial)
        covered += bool(((intervals.low <= 0) & (intervals.high >= 0)).all())
    assert covered / 400 >= 0.92


def test_the_interval_of_one_column_is_close_to_students():
    values = np.random.default_rng(1).normal(2.0, 1.0, size=(200, 1))
    intervals = simultaneous_intervals(values)
    margin = stats.t.ppf(0.975, 199) * values.std(ddof=1) / np.sqrt(200)
    assert intervals.mean[0] == pytest.approx(values.mean())
    assert intervals.high[0] - intervals.low[0] == pytest.approx(2 * margin, rel=0.1)


def test_more_columns_widen_the_intervals():
    values = np.random.default_rng(2).normal(size=(100, 20))
    alone = simultaneous_intervals(values[:, :1])
    together = simultaneous_intervals(values)
    assert together.high[0] - together.low[0] > 1.2 * (alone.high[0] - alone.low[0])


def test_missing_values_are_left_out_and_rare_columns_have_no_interval():
    values = np.random.default_rng(3).normal(size=(30, 3))
    values[10:, 1] = np.nan
    values[4:, 2] = np.nan
    intervals = simultaneous_intervals(values)
    assert intervals.n.tolist() == [30, 10, 4]
    assert intervals.mean[1] == pytest.approx(values[:10, 1].mean())
    assert np.isnan(intervals.low[2])
    assert not np.isnan(intervals.mean[2])


def test_a_constant_column_has_an_interval_of_width_zero():
    values = np.column_stack([np.full(20, 0.3), np.random.default_rng(4).normal(size=20)])
    intervals = simultaneous_intervals(values)
    assert intervals.low[0] == pytest.approx(0.3)
    assert intervals.high[0] == pytest.approx(0.3)
