"""Confidence intervals over runs have their nominal coverage."""

import math

import numpy as np
import pytest
from scipy import stats

from perdure import metrics
from perdure.base.errors import InputError


def test_student_t_below_ten_runs():
    values = [0.5, 0.6, 0.8]
    low, high = stats.t.interval(0.95, 2, loc=np.mean(values), scale=stats.sem(values))
    result = metrics.interval(values)
    assert (result.mean, result.low, result.high) == pytest.approx((np.mean(values), low, high))
    assert (result.n, result.method) == (3, "t")
    assert str(result).startswith("0.6333 [")


def test_bootstrap_with_a_fixed_seed_from_ten_runs():
    values = np.random.default_rng(0).normal(size=10)
    result = metrics.interval(values)
    assert result.method == "bootstrap"
    assert result.low < result.mean < result.high
    assert result == metrics.interval(values)
    assert metrics.interval([0.7] * 12).low == pytest.approx(0.7)


def test_one_run_has_no_interval_and_a_missing_run_makes_it_missing():
    single = metrics.interval([0.5])
    assert single.mean == 0.5
    assert math.isnan(single.low)
    assert "one run" in (single.reason or "")
    missing = metrics.interval([0.5, metrics.Missing("not measured")])
    assert math.isnan(missing.mean)
    assert missing.reason == "not measured"
    assert str(missing) == "–"
    assert metrics.interval([0.5, math.nan]).reason == "not a number"


@pytest.mark.parametrize("runs", [2, 3, 5, 9, 10, 20])
@pytest.mark.parametrize("kind", ["gaussian", "skewed"])
def test_coverage_of_the_nominal_95_percent(runs, kind):
    rng = np.random.default_rng(runs)
    repeats = 1200
    draws, truth = (
        (rng.normal(0.6, 0.05, (repeats, runs)), 0.6)
        if kind == "gaussian"
        else (rng.beta(8, 1, (repeats, runs)), 8 / 9)
    )
    results = [metrics.interval(row) for row in draws]
    coverage = np.mean([r.low <= truth <= r.high for r in results])
    # Student's t is exact for Gaussian runs and loses a few points on skewed ones; three binomial errors are .019.
    lowest = 0.93 if kind == "gaussian" or runs >= 10 else 0.87
    assert lowest <= coverage <= 0.97


def test_an_interval_is_clipped_to_the_bounds():
    result = metrics.interval([0.9, 1.0], bounds=(0, 1))
    assert result.high == 1
    assert result.low == metrics.interval([0.9, 1.0]).low


def test_an_invalid_level_is_rejected():
    with pytest.raises(InputError, match="level"):
        metrics.interval([0.1, 0.2], level=95)
