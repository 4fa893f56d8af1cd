"""Metrics of losses and of performances without a range: by hand, and equal to those of accuracies where both apply."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from perdure import metrics
from perdure.metrics import METRICS, compute_metric_variants, compute_metrics, reason
from perdure.record import Measurements

LOSSES = np.array([[12.5, 40.0, 55.0], [15.0, 8.0, 50.0], [18.0, 9.5, 11.0]])


def run(table, measure, **more) -> Measurements:
    return Measurements("r", "r", np.asarray(table, float), tuple(range(len(table))), measure=measure, **more)


def test_losses_by_hand():
    values = compute_metrics(run(LOSSES, "loss"))
    assert values["average_loss"] == pytest.approx((18 + 9.5 + 11) / 3)
    assert values["loss_forgetting"] == pytest.approx(((18 - 12.5) + (9.5 - 8)) / 2)
    assert values["loss_backward_transfer"] == pytest.approx(-((15 - 12.5) + (18 - 12.5) + (9.5 - 8)) / 3)
    variants = compute_metric_variants(run(LOSSES, "loss"))
    assert variants["gem_loss_backward_transfer"] == pytest.approx(-((18 - 12.5) + (9.5 - 8)) / 2)


def test_other_metrics_say_why_they_do_not_apply():
    for measure, word in (("loss", "losses"), ("performance", "performances")):
        values = {**compute_metrics(run(LOSSES, measure)), **compute_metric_variants(run(LOSSES, measure))}
        for name in (
            "average_accuracy",
            "forgetting",
            "min_accuracy",
            "A",
            "FWT",
            "gem_accuracy",
            "mammoth_forgetting",
        ):
            assert f"accuracies from 0 to 1; these are {word}" in (reason(values[name]) or "")
        assert reason(values["MS"]) == "no costs were given"
        other = "performance" if measure == "loss" else "loss"
        assert f"average_{other}" not in values
        assert "windowed_forgetting" not in values
    assert not {"average_loss", "average_performance"} & compute_metrics(run(np.eye(2), "accuracy")).keys()


def test_directions():
    for name in ("average_loss", "loss_forgetting", "performance_forgetting"):
        assert not METRICS.get(name).higher_is_better
    for name in ("average_performance", "loss_backward_transfer", "performance_backward_transfer"):
        assert METRICS.get(name).higher_is_better


@given(hnp.arrays(float, st.integers(2, 6).map(lambda n: (n, n)), elements=st.floats(0, 1)))
def test_on_accuracies_the_metrics_equal_those_of_accuracies_and_losses_have_the_opposite_sign(table):
    performance = {**compute_metrics(run(table, "performance")), **compute_metric_variants(run(table, "performance"))}
    losses = {**compute_metrics(run(-table, "loss")), **compute_metric_variants(run(-table, "loss"))}
    assert performance["average_performance"] == pytest.approx(metrics.average_accuracy(table), abs=1e-12)
    for ours, theirs in (
        ("forgetting", metrics.average_forgetting(table)),
        ("backward_transfer", metrics.backward_transfer(table)),
    ):
        assert performance[f"performance_{ours}"] == pytest.approx(theirs, abs=1e-12)
        assert losses[f"loss_{ours}"] == pytest.approx(theirs, abs=1e-12)
    gem = metrics.backward_transfer(table, "gem")
    assert performance["gem_performance_backward_transfer"] == pytest.approx(gem, abs=1e-12)
    assert losses["average_loss"] == pytest.approx(-metrics.average_accuracy(table), abs=1e-12)


def test_revisited_tasks_single_tasks_and_missing_evaluations():
    table = [[3.0, 9.0], [5.0, 2.0], [2.5, 4.0]]
    assert metrics.unbounded_forgetting(table, (0, 1, 0), higher_is_better=False) == 4.0 - 2.0
    missing = metrics.unbounded_backward_transfer(table, (0, 1, 0), higher_is_better=False)
    assert "more than once" in (reason(missing) or "")
    assert "at least two" in (reason(metrics.unbounded_forgetting([[1.0]], (0,), higher_is_better=True)) or "")
    hole = [[3.0, np.nan], [np.nan, 2.0]]
    assert reason(metrics.final_average(hole, (0, 1))) == "task 1 was not evaluated after step 2"
