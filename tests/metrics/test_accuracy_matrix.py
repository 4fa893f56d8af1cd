"""Metrics of the accuracy matrix: hand-worked values, properties, and every rejected input."""

import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from perdure import metrics
from perdure.base.errors import InputError

# Three tasks, all cells measured.
R = np.array([[0.9, 0.2, 0.1], [0.6, 0.8, 0.3], [0.5, 0.7, 1.0]])
LOWER = np.where(np.tril(np.ones((3, 3))) > 0, R, np.nan)


@st.composite
def full_matrices(draw, tasks=st.integers(2, 8)):
    n = draw(tasks)
    return draw(arrays(float, (n, n), elements=st.floats(0, 1)))


def test_hand_worked_values():
    assert metrics.average_accuracy(R) == pytest.approx(2.2 / 3)
    assert metrics.accuracy(R) == pytest.approx((0.9 + 0.6 + 0.8 + 0.5 + 0.7 + 1.0) / 6)
    assert metrics.backward_transfer(R) == pytest.approx((-0.3 - 0.4 - 0.1) / 3)
    assert metrics.backward_transfer(R, variant="gem") == pytest.approx((-0.4 - 0.1) / 2)
    assert metrics.remembering(R) == pytest.approx(1 - 0.8 / 3)
    assert metrics.positive_backward_transfer(R) == 0
    assert metrics.forward_transfer(R) == pytest.approx((0.2 + 0.1 + 0.3) / 3)
    assert metrics.forward_transfer(R, variant="gem", initial=[0.5, 0.1, 0.2]) == pytest.approx((0.1 + 0.1) / 2)
    assert metrics.average_forgetting(R) == pytest.approx((0.4 + 0.1) / 2)
    assert metrics.min_accuracy(R) == pytest.approx((0.5 + 0.7) / 2)
    assert metrics.worst_case_accuracy(R) == pytest.approx(1.0 / 3 + 2 / 3 * 0.6)


def test_intransigence_is_the_gap_to_joint_training():
    result = metrics.intransigence(R, [0.95, 0.9, 0.9])
    assert result.per_task == pytest.approx([0.05, 0.1, -0.1])
    assert result.mean == pytest.approx(0.05 / 3)


def test_forgetting_variants_differ_only_with_zero_shot_skill():
    zero_shot = R.copy()
    zero_shot[0, 1] = 0.95  # accuracy on task 2 is higher before its training than ever after
    assert metrics.average_forgetting(zero_shot) == pytest.approx((0.4 + 0.25) / 2)
    assert metrics.average_forgetting(zero_shot, seen_only=True) == pytest.approx((0.4 + 0.1) / 2)
    assert metrics.average_forgetting(R) == metrics.average_forgetting(R, seen_only=True)


def test_forgetting_is_negative_when_the_last_row_is_the_best():
    improving = np.array([[0.5, 0.0], [0.9, 0.8]])
    assert metrics.average_forgetting(improving) == pytest.approx(-0.4)  # mammoth's would be 0


def test_unmeasured_future_tasks_are_missing_with_a_reason_never_zero():
    value = metrics.forward_transfer(LOWER)
    assert math.isnan(value)
    assert "3 of 3" in (metrics.reason(value) or "")
    assert metrics.average_forgetting(LOWER) == pytest.approx(0.25)
    assert metrics.accuracy(LOWER) == metrics.accuracy(R)
    assert "before any training" in (metrics.reason(metrics.forward_transfer(R, variant="gem")) or "")


def test_one_task_has_no_transfer():
    for function in (metrics.backward_transfer, metrics.forward_transfer, metrics.average_forgetting):
        assert "at least two" in (metrics.reason(function([[0.7]])) or "")
    assert metrics.worst_case_accuracy([[0.7]]) == pytest.approx(0.7)
    assert metrics.reason(metrics.remembering([[0.7]])) is not None


def test_a_reason_survives_pickling_to_another_process():
    value = pickle.loads(pickle.dumps(metrics.Missing("because")))
    assert math.isnan(value)
    assert metrics.reason(value) == "because"
    assert metrics.reason(0.5) is None


def test_revisited_tasks_leave_last_row_forgetting_and_gap_metrics_defined():
    table = [[0.9, np.nan], [0.4, 0.8], [0.95, 0.6], [0.5, 0.9]]
    curriculum = [0, 1, 0, 1]
    assert metrics.average_accuracy(table, curriculum) == pytest.approx(0.7)
    assert metrics.average_forgetting(table, curriculum=curriculum) == pytest.approx(0.45)
    assert metrics.min_accuracy(table, curriculum) == pytest.approx((0.4 + 0.6) / 2)
    for function in (
        metrics.accuracy,
        metrics.backward_transfer,
        metrics.forward_transfer,
        metrics.remembering,
    ):
        assert "more than once" in (metrics.reason(function(table, curriculum=curriculum)) or "")
    assert "more than once" in (metrics.reason(metrics.intransigence(table, [1, 1], curriculum).mean) or "")


def test_an_unfinished_run_reports_how_many_tasks_were_trained():
    value = metrics.accuracy(R[:2], curriculum=[0, 1])
    assert "only 2 of 3 tasks" in (metrics.reason(value) or "")
    assert metrics.average_accuracy(R[:2], curriculum=[0, 1]) == pytest.approx(0.7)
    # K counts the two tasks trained so far, not the three of the table.
    assert metrics.worst_case_accuracy(R[:2], trained=[0, 1]) == pytest.approx(0.8 / 2 + 0.6 / 2)


@given(full_matrices(), st.randoms(use_true_random=False))
def test_the_order_of_columns_does_not_matter_with_a_curriculum(matrix, random):
    order = list(range(len(matrix)))
    random.shuffle(order)
    shuffled = np.empty_like(matrix)
    shuffled[:, order] = matrix
    initial = matrix[0]
    relabelled = np.empty_like(initial)
    relabelled[order] = initial
    for function in (
        metrics.accuracy,
        metrics.backward_transfer,
        metrics.forward_transfer,
        metrics.average_forgetting,
    ):
        assert function(shuffled, curriculum=order) == pytest.approx(function(matrix))
    gem = metrics.forward_transfer(matrix, "gem", initial)
    assert metrics.forward_transfer(shuffled, "gem", relabelled, order) == pytest.approx(gem)
    gap = metrics.intransigence(matrix, initial).per_task
    assert metrics.intransigence(shuffled, relabelled, order).per_task == pytest.approx(gap)


@given(full_matrices())
def test_ranges_and_identities(matrix):
    bwt = metrics.backward_transfer(matrix)
    assert -1 <= bwt <= 1
    assert metrics.remembering(matrix) - 1 + metrics.positive_backward_transfer(matrix) == pytest.approx(bwt)
    n = len(matrix)
    total = metrics.accuracy(matrix) * n * (n + 1) / 2 + metrics.forward_transfer(matrix) * n * (n - 1) / 2
    assert total == pytest.approx(matrix.sum())
    assert metrics.average_forgetting(matrix) >= metrics.average_forgetting(matrix, seen_only=True) - 1e-12
    assert metrics.min_accuracy(matrix) <= np.mean(matrix[-1, :-1]) + 1e-12


@given(full_matrices(tasks=st.integers(3, 6)), st.integers(2, 8))
def test_windowed_changes_equal_an_exhaustive_search(matrix, window):
    drops, rises = [], []
    for column in matrix.T:
        pairs = [(m, n) for n in range(len(column)) for m in range(max(0, n - window + 1), n)]
        drops.append(max(0, max(column[m] - column[n] for m, n in pairs)))
        rises.append(max(0, max(column[n] - column[m] for m, n in pairs)))
    assert metrics.windowed_forgetting(matrix, window) == pytest.approx(np.mean(drops))
    assert metrics.windowed_plasticity(matrix, window) == pytest.approx(np.mean(rises))


def test_windows_skip_missing_evaluations():
    evaluations = [[0.9, np.nan], [np.nan, np.nan], [0.5, 0.8], [0.7, 0.6]]
    assert metrics.windowed_forgetting(evaluations, 3) == pytest.approx((0.4 + 0.2) / 2)
    assert metrics.windowed_forgetting(evaluations, 2) == pytest.approx((0 + 0.2) / 2)
    assert "twice" in (metrics.reason(metrics.windowed_plasticity([[0.1, 0.2]], 2)) or "")
    # The second task is evaluated once: it has no change, which is not a change of 0.
    assert metrics.windowed_forgetting([[0.9, np.nan], [0.5, 0.8]], 2) == pytest.approx(0.4)


def test_dips_between_boundaries_count_for_min_accuracy():
    # Task 1 dips to .1 while task 2 is being learned and recovers: only evaluations within the task show it.
    evaluations = [[0.5, 0.0], [0.9, 0.0], [0.1, 0.4], [0.8, 0.9]]
    assert metrics.min_accuracy(evaluations, trained=[0, 0, 1, 1]) == pytest.approx(0.1)
    assert metrics.worst_case_accuracy(evaluations, trained=[0, 0, 1, 1]) == pytest.approx(0.9 / 2 + 0.1 / 2)


def test_dips_during_a_later_visit_count_for_min_accuracy():
    evaluations = [[0.9, 0.0], [0.7, 0.8], [0.3, 0.6], [0.9, 0.7]]
    assert metrics.min_accuracy(evaluations, trained=[0, 1, 0, 0]) == pytest.approx((0.3 + 0.6) / 2)


def test_torch_tensors_and_lists_are_accepted():
    assert metrics.accuracy(torch.tensor(R, requires_grad=True)) == pytest.approx(metrics.accuracy(R))
    assert metrics.accuracy(R.tolist()) == pytest.approx(metrics.accuracy(R))


@pytest.mark.parametrize(
    ("matrix", "curriculum", "message"),
    [
        ([[0.5, 0.2], [0.3, 1.2]], None, r"step 2, task 2: expected a number between 0 and 1, got 1\.2.*--percent"),
        ([[0.5, 0.2], [-0.3, 0.2]], None, "step 2, task 1: expected a number between 0 and 1, got -0.3"),
        ([[0.5, 0.2, 0.3], [0.3, 0.2, 0.1]], None, "2 rows and 3 columns"),
        ([[0.5, np.nan], [np.nan, 0.2]], None, "step 2, task 1: the accuracy is missing"),
        ([[0.5, "x"], [0.1, 0.2]], None, "expected numbers"),
        ([0.5, 0.2], None, "dimension"),
        (np.empty((0, 0)), None, "empty"),
        ([[0.5, 0.2], [0.3, 0.2]], [0], "expected 2 task indices"),
        ([[0.5, 0.2], [0.3, 0.2]], [0, 2], "expected task indices from 0 to 1, got 2"),
    ],
)
def test_an_invalid_matrix_is_rejected_with_its_cell(matrix, curriculum, message):
    with pytest.raises(InputError, match=message):
        metrics.average_accuracy(matrix, curriculum)


def test_invalid_options_are_rejected():
    with pytest.raises(InputError, match="variant: unknown name 'gme'"):
        metrics.backward_transfer(R, variant="gme")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="expected 3"):
        metrics.forward_transfer(R, "gem", initial=[0.1, 0.2])
    with pytest.raises(InputError, match="between 0 and 1, got 20"):
        metrics.forward_transfer(R, "gem", initial=[0.1, 0.2, 20])
    with pytest.raises(InputError, match="at least 2"):
        metrics.windowed_forgetting(R, 1)
