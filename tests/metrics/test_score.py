"""Efficiency, CL_score and CL_stability against the table of more-than-forgetting."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import metrics
from perdure.base.errors import InputError

COLUMNS = ("A", "REM", "BWT+", "FWT", "MS", "SSS", "CE")
# The paper's table: the seven criteria, then CL_score under W1, W2 and W3.
GOLDEN = {
    "Naive": ((0.3825, 0.6664, 0, 0.1, 1, 1, 0.4492), (0.5140, 0.5529, 0.5312)),
    "Cumulative": ((0.7225, 1, 0.0673, 0.1, 1, 0.55, 0.1496), (0.5128, 0.6223, 0.5373)),
    "EWC": ((0.5940, 0.9821, 0, 0.1, 0.4, 1, 0.3495), (0.4894, 0.6449, 0.5816)),
    "LwF": ((0.5278, 0.9667, 0, 0.1, 1, 1, 0.4429), (0.5768, 0.6554, 0.6030)),
    "SI": ((0.5795, 0.9620, 0, 0.1, 0.4, 1, 0.3613), (0.4861, 0.6372, 0.5772)),
}
CRITERIA = {name: dict(zip(COLUMNS, row, strict=True)) for name, (row, _) in GOLDEN.items()}


@pytest.mark.parametrize("strategy", GOLDEN)
@pytest.mark.parametrize(("index", "weights"), [(0, "W1"), (1, "W2"), (2, "W3")])
def test_golden_scores(strategy, index, weights):
    assert round(metrics.cl_score(CRITERIA[strategy], weights), 4) == GOLDEN[strategy][1][index]


def test_the_printed_w2_reproduces_no_row():
    for strategy, (_, scores) in GOLDEN.items():
        assert abs(metrics.cl_score(CRITERIA[strategy], "W2-printed") - scores[1]) > 5e-4


def test_w2_is_the_only_vector_on_the_grid_that_reproduces_all_five_rows():
    """Search all vectors of multiples of .05 that sum to 1 (230,230 of them)."""
    values = np.array([[CRITERIA[name][c] for c in metrics.CRITERIA] for name in GOLDEN])
    wanted = np.array([scores[1] for _, scores in GOLDEN.values()])
    grid = np.arange(21)
    last = np.stack(np.meshgrid(grid, grid, grid, indexing="ij"), -1).reshape(-1, 3)
    solutions = []
    for a in grid:
        for b in range(21 - a):
            for c in range(21 - a - b):
                rest = last[last.sum(axis=1) <= 20 - a - b - c]
                seventh = 20 - a - b - c - rest.sum(axis=1)
                vectors = np.column_stack([np.tile([a, b, c], (len(rest), 1)), rest, seventh]) / 20
                hit = (np.abs(vectors @ values.T - wanted) < 5.1e-5).all(axis=1)
                solutions.extend(vectors[hit].tolist())
    assert solutions == [pytest.approx(list(metrics.WEIGHTS["W2"].values()))]


def test_model_size_of_ewc_is_the_printed_040():
    assert metrics.model_size_efficiency([1000] + [3000] * 9) == pytest.approx(0.40)
    assert metrics.model_size_efficiency([1000] * 10) == 1
    assert metrics.model_size_efficiency([1000, 500]) == 1  # a shrinking model is not better than 1
    # The mean is clipped, not its terms 1, 2 and 1/4.
    assert metrics.model_size_efficiency([1000, 500, 4000]) == 1


def test_storage_of_cumulative_is_the_printed_055():
    assert metrics.sample_storage_efficiency([i / 10 for i in range(10)], 1.0) == pytest.approx(0.55)
    assert metrics.sample_storage_efficiency([(i + 1) / 10 for i in range(10)], 1.0) == pytest.approx(0.45)
    assert metrics.sample_storage_efficiency([0, 0], 100) == 1
    assert metrics.sample_storage_efficiency([300, 300], 100) == 0


def test_computational_efficiency_by_hand():
    assert metrics.computational_efficiency([99, 199], [10, 10]) == pytest.approx((100 / 100 + 100 / 200) / 2)
    assert metrics.computational_efficiency([9], [10]) == 1
    assert metrics.computational_efficiency([99], [10], epsilon=1) == pytest.approx(0.1)
    # The mean is clipped, not its terms 10 and 1/2.
    assert metrics.computational_efficiency([9, 199], [10, 10]) == 1


def test_stability_by_hand():
    runs = [dict.fromkeys(metrics.CRITERIA, 0.4), dict.fromkeys(metrics.CRITERIA, 0.6)]
    assert metrics.cl_stability(runs) == pytest.approx(0.9)  # population standard deviation .1 in each
    runs[1] = {**runs[0], "A": 0.6}
    assert metrics.cl_stability(runs, "W3") == pytest.approx(1 - 0.4 * 0.1)
    assert "two runs" in (metrics.reason(metrics.cl_stability(runs[:1])) or "")


def test_a_partial_score_is_missing_without_renormalise():
    partial = {name: value for name, value in CRITERIA["Naive"].items() if name != "FWT"}
    value = metrics.cl_score(partial)
    assert math.isnan(value)
    assert "FWT missing" in (metrics.reason(value) or "")
    assert metrics.cl_score(partial, renormalise=True) == pytest.approx(sum(partial.values()) / 6)
    nan = {**CRITERIA["Naive"], "FWT": math.nan}
    assert metrics.cl_score(nan, renormalise=True) == pytest.approx(sum(partial.values()) / 6)
    assert metrics.cl_score(partial, {"A": 1.0}) == pytest.approx(0.3825)  # FWT has no weight, so it is not needed
    assert "no criterion" in (metrics.reason(metrics.cl_score({"MS": 1.0}, {"A": 1.0}, renormalise=True)) or "")


@given(st.lists(st.floats(0, 1), min_size=7, max_size=7), st.sampled_from(["W1", "W2", "W3"]))
def test_a_score_lies_between_its_criteria(values, weights):
    score = metrics.cl_score(dict(zip(metrics.CRITERIA, values, strict=True)), weights)
    assert min(values) - 1e-12 <= score <= max(values) + 1e-12


def test_first_places_follow_dominance_and_symmetry():
    better = {"good": {"A": 0.9, "MS": 0.9}, "bad": {"A": 0.1, "MS": 0.8}}
    assert metrics.score_first_places(better).share == {"good": 1.0, "bad": 0.0}
    mirror = metrics.score_first_places({"left": {"A": 0.9, "MS": 0.1}, "right": {"A": 0.1, "MS": 0.9}})
    assert mirror.share["left"] == pytest.approx(0.5, abs=4 * mirror.stderr["left"])
    equal = metrics.score_first_places({"one": {"A": 0.5}, "two": {"A": 0.5}})
    assert equal.share == {"one": 0.5, "two": 0.5}
    # With w uniform on [0, 1], w * .8 + (1 - w) * .2 > .4 exactly when w > 1/3.
    third = metrics.score_first_places({"varied": {"A": 0.8, "MS": 0.2}, "flat": {"A": 0.4, "MS": 0.4}})
    assert third.share["varied"] == pytest.approx(2 / 3, abs=4 * third.stderr["varied"])
    assert third.stderr["varied"] == pytest.approx(math.sqrt(2 / 3 * 1 / 3 / third.weightings), rel=0.01)
    # A small lead is not a tie.
    assert metrics.score_first_places({"one": {"A": 0.5}, "two": {"A": 0.505}}).share == {"one": 0.0, "two": 1.0}


def test_first_places_use_only_common_criteria():
    result = metrics.score_first_places({"one": {"A": 0.5, "CE": 0.9}, "two": {"A": 0.6, "CE": math.nan}})
    assert result.criteria == ("A",)
    assert result.share == {"one": 0.0, "two": 1.0}


def test_correlation_of_criteria_over_learners():
    learners = {
        "a": {"A": 0.1, "MS": 0.9, "CE": 0.5},
        "b": {"A": 0.2, "MS": 0.5, "CE": 0.5},
        "c": {"A": 0.9, "MS": 0.4, "CE": 0.5},
    }
    result = metrics.score_criteria_correlation(learners)
    assert result.criteria == ("A", "MS", "CE")
    assert result.matrix[0, 1] == pytest.approx(-1)
    assert result.matrix[0, 0] == pytest.approx(1)
    assert np.isnan(result.matrix[0, 2])
    with pytest.raises(InputError, match="at least 3"):
        metrics.score_criteria_correlation({"a": learners["a"], "b": learners["b"]})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.cl_score(CRITERIA["SI"], "W4"), "unknown name 'W4'"),
        (lambda: metrics.cl_score(CRITERIA["SI"], {"A": 0.5}), "expected a sum of 1, got 0.5"),
        (lambda: metrics.cl_score(CRITERIA["SI"], {"A": 0.5, "MS": 0.49}), "expected a sum of 1, got 0.99"),
        (lambda: metrics.cl_score(CRITERIA["SI"], {"A": 1.5, "MS": -0.5}), "between 0 and 1 for A, got 1.5"),
        (lambda: metrics.cl_score(CRITERIA["SI"], {"BWT": 1.0}), r"did you mean 'BWT\+'"),
        (lambda: metrics.cl_score({"A": 38.25}), "between 0 and 1 for A, got 38.25"),
        (lambda: metrics.cl_score({"Acc": 0.5}), "unknown criterion 'Acc'"),
        (lambda: metrics.cl_stability([]), "got none"),
        (
            lambda: metrics.score_first_places({"a": {"A": 0.1}, "b": {"MS": 0.1}}),
            "at least one criterion that is known for every learner",
        ),
        (lambda: metrics.model_size_efficiency([1, 0]), "positive"),
        (lambda: metrics.model_size_efficiency([]), "empty"),
        (lambda: metrics.sample_storage_efficiency([1], 0), "lifetime"),
        (lambda: metrics.sample_storage_efficiency([-1], 1), "at least 0"),
        (lambda: metrics.computational_efficiency([1, 2], [1]), "2 and 1"),
        (lambda: metrics.computational_efficiency([1], [1], epsilon=0), "epsilon"),
    ],
)
def test_invalid_input_is_rejected(call, message):
    with pytest.raises(InputError, match=message):
        call()
