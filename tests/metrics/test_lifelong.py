"""Lifelong-learning metrics of New et al. 2022: l2metrics' printed numbers and closed forms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perdure.audits.lifelong import lifelong_run
from perdure.base.errors import InputError
from perdure.importers import read
from perdure.metrics import lifelong
from perdure.metrics.lifelong import Block, Run

LOGS = Path(__file__).parents[3] / "shared" / "data" / "l2logger"
needs_logs = pytest.mark.skipif(not LOGS.exists(), reason="the l2logger example run is not next to the project")


@pytest.fixture(scope="module")
def raw() -> Run:
    (imported,) = read(LOGS).runs
    return lifelong_run(imported)


@pytest.fixture(scope="module")
def run(raw: Run) -> Run:
    return lifelong.normalised_run(lifelong.smoothed_run(raw))


@pytest.fixture(scope="module")
def printed() -> dict[str, Any]:
    text = (LOGS / "multi_task_metrics.json").read_text(encoding="utf-8")
    return json.loads(text)  # type: ignore[no-any-return]


PER_TASK = {
    "perf_recovery": ("recovery_times", lifelong.performance_recovery),
    "avg_train_perf": ("avg_train_perf_vals", lambda r: lifelong.mean_performance(r, "train")),
    "avg_eval_perf": ("avg_eval_perf_vals", lambda r: lifelong.mean_performance(r, "test")),
    "perf_maintenance_mrlep": ("maintenance_val_mrlep", lifelong.performance_maintenance),
    "ste_rel_perf": ("ste_rel_perf_vals", lifelong.relative_performance),
    "sample_efficiency": ("sample_efficiency_vals", lifelong.sample_efficiency),
}


@needs_logs
def test_ranges_are_the_printed_ones(raw: Run, printed: dict[str, Any]) -> None:
    ranges = lifelong.run_performance_ranges(lifelong.smoothed_run(raw))
    expected = {t: (r["min"], r["max"]) for t, r in printed["normalization_data_range"].items()}
    assert ranges.keys() == expected.keys()
    for task, pair in ranges.items():
        assert pair == pytest.approx(expected[task], rel=1e-12)


@needs_logs
@pytest.mark.parametrize("name", PER_TASK)
def test_task_metrics_are_the_printed_ones(run: Run, printed: dict[str, Any], name: str) -> None:
    """Per task and its values to rounding, the mean to the ten digits that l2metrics prints."""
    values, metric = PER_TASK[name]
    result = metric(run)
    assert result.mean == pytest.approx(printed[name], abs=6e-11)
    assert result.tasks.keys() == printed["task_metrics"].keys()
    for task, expected in printed["task_metrics"].items():
        assert result.tasks[task] == pytest.approx(expected[name], rel=1e-10)
        flat = [v for entry in expected[values] for v in (entry if isinstance(entry, list) else [entry])]
        assert result.values[task] == pytest.approx(flat, rel=1e-10, abs=1e-10)
    assert not result.reasons


@needs_logs
@pytest.mark.parametrize("name", ["forward_transfer", "backward_transfer"])
def test_transfer_ratios_are_the_printed_ones(run: Run, printed: dict[str, Any], name: str) -> None:
    result = getattr(lifelong, name)(run)
    assert result.mean == pytest.approx(printed[f"{name}_ratio"], abs=6e-11)
    expected = {
        (source, target): tuple(values)
        for source, metrics in printed["task_metrics"].items()
        for target, values in metrics[f"{name}_ratio"].items()
    }
    assert result.pairs.keys() == expected.keys()
    for pair, values in expected.items():
        assert result.pairs[pair] == pytest.approx(values, rel=1e-10)


@needs_logs
def test_the_other_variants_equal_l2metrics(run: Run) -> None:
    """Numbers of l2metrics 3.1.0 on the same logs with both methods."""
    maintained = lifelong.performance_maintenance(run, "mrtlp")
    assert maintained.mean == pytest.approx(4.6819751038, abs=6e-11)
    assert maintained.tasks["task1_1"] == pytest.approx(4.827292498373276, rel=1e-10)
    assert maintained.values["task3_1"][:2] == pytest.approx((6.592490706243154, 8.847485930936344), rel=1e-10)
    assert lifelong.forward_transfer(run, "contrast").mean == pytest.approx(0.7679543728, abs=6e-11)
    backward = lifelong.backward_transfer(run, "contrast")
    assert backward.mean == pytest.approx(0.0377386871, abs=6e-11)
    assert backward.pairs["task3_1", "task1_1"][0] == pytest.approx(-0.018863160822492148, rel=1e-9)


def table_run(*evaluations: tuple[float, ...], curriculum: tuple[int, ...]) -> Run:
    return lifelong.run_from_table(np.array(evaluations), curriculum)


# Two tasks, the first trained twice: A, B, A.
SMALL = table_run((0.1, 0.2), (0.8, 0.3), (0.6, 0.9), (0.7, 0.5), curriculum=(0, 1, 0))


def test_maintenance_by_hand() -> None:
    result = lifelong.performance_maintenance(SMALL)
    assert result.values["1"] == pytest.approx([0.6 - 0.8])  # 0.7 is the new reference after the second training
    assert result.values["2"] == pytest.approx([0.5 - 0.9])
    assert result.mean == pytest.approx(-0.3)


def test_maintenance_against_the_end_of_training_by_hand() -> None:
    curve = np.arange(1.0, 21.0)  # last tenth: 19 and 20
    blocks = [Block("train", "a", curve), *(Block("test", "a", np.array([v])) for v in (18.0, 17.0, 19.0))]
    result = lifelong.performance_maintenance(Run(blocks), "mrtlp")
    assert result.values["a"] == pytest.approx([17 - 19.5, 19 - 19.5])


def test_transfer_by_hand() -> None:
    assert lifelong.forward_transfer(SMALL).pairs == {("1", "2"): pytest.approx((0.3 / 0.2,))}
    backward = lifelong.backward_transfer(SMALL, "contrast").pairs
    assert backward["2", "1"] == pytest.approx([(0.6 - 0.8) / 1.4])
    assert backward["1", "2"] == pytest.approx([(0.5 - 0.9) / 1.4])
    assert lifelong.backward_transfer(SMALL, "contrast").mean == pytest.approx((-0.2 / 1.4 - 0.4 / 1.4) / 2)


def test_transfer_ignores_intervals_in_which_the_target_itself_was_trained() -> None:
    test = [Block("test", "b", np.array([v])) for v in (0.1, 0.9)]
    train = [Block("train", task, np.empty(0)) for task in ("a", "b")]
    between = Run([test[0], *train, test[1]])
    assert lifelong.forward_transfer(between).pairs == {}
    assert np.isnan(lifelong.forward_transfer(between).mean)
    without_own = Run([test[0], train[0], test[1]])
    assert lifelong.forward_transfer(without_own).pairs == {("a", "b"): pytest.approx((9.0,))}


def test_only_the_first_value_of_a_pair_enters_the_mean() -> None:
    tests = [Block("test", "b", np.array([v])) for v in (1.0, 2.0, 8.0)]
    train = Block("train", "a", np.empty(0))
    result = lifelong.forward_transfer(Run([tests[0], train, tests[1], train, tests[2]]))
    assert result.pairs["a", "b"] == (2.0, 4.0)
    assert result.mean == 2.0


def test_training_a_source_twice_in_a_row_counts_once() -> None:
    tests = [Block("test", "b", np.array([v])) for v in (1.0, 2.0)]
    sources = [Block("train", task, np.empty(0)) for task in ("a", "c", "a")]
    assert lifelong.forward_transfer(Run([tests[0], *sources, tests[1]])).pairs == {
        ("a", "b"): (2.0,),
        ("c", "b"): (2.0,),
    }


def test_tasks_come_in_the_order_of_training() -> None:
    blocks = [Block("test", task, np.ones(1)) for task in "abc"]
    run = Run([*blocks, Block("train", "c", np.ones(2)), Block("train", "a", np.ones(2))])
    assert run.tasks == ["c", "a", "b"]
    assert list(lifelong.mean_performance(run, "test").tasks) == ["c", "a", "b"]


def test_experts_widen_the_range() -> None:
    run = Run([Block("train", "a", np.array([1.0, 2.0]))], {"a": [np.array([0.0, 1.0]), np.array([4.0, 3.0])]})
    assert lifelong.run_performance_ranges(run) == {"a": (0.0, 4.0)}
    assert lifelong.normalised_run(run).blocks[0].performance.tolist() == [26.0, 51.0]
    assert lifelong.normalised_run(run).experts["a"][1].tolist() == [101.0, 76.0]


def test_zero_denominators_are_left_out() -> None:
    tests = [Block("test", "b", np.array([v])) for v in (0.0, 0.0, 3.0)]
    train = Block("train", "a", np.empty(0))
    blocks = [tests[0], train, tests[1], train, tests[2]]
    assert lifelong.forward_transfer(Run(blocks)).pairs == {}
    assert lifelong.forward_transfer(Run(blocks), "contrast").pairs == {("a", "b"): (1.0,)}


def test_recovery_counts_experiences_until_the_old_level() -> None:
    curves = ([5.0] * 10, [1, 2, 3, 4, 5, 6, 6, 6, 6, 6], [5.0] * 10, [0.0] * 4)
    result = lifelong.performance_recovery(Run([Block("train", "a", np.array(c, dtype=float)) for c in curves]))
    assert result.values["a"] == (4.0, 11.0, 5.0)  # 11 and 5: never regained, one more than the block is long
    assert result.tasks["a"] == pytest.approx(-np.median([7.0, 0.5, -6.0]))


def test_relative_performance_cuts_to_the_shorter_curve() -> None:
    run = Run([Block("train", "a", np.array([1.0, 2.0])), Block("train", "a", np.array([3.0]))], {"a": [np.ones(2)]})
    assert lifelong.relative_performance(run).tasks["a"] == pytest.approx(3 / 2)
    assert lifelong.relative_performance(Run(run.blocks, {"a": [np.ones(9), np.full(3, 2.0)]})).values["a"] == (2, 1)


def test_sample_efficiency_by_hand() -> None:
    """Curves of four experiences are too short to smooth: saturation is the maximum itself."""
    run = Run([Block("train", "a", np.array([0.0, 1.0, 1.0, 4.0]))], {"a": [np.array([0.0, 1.0, 2.0, 2.0])]})
    assert lifelong.sample_efficiency(run).tasks["a"] == pytest.approx((4 / 2) * (2 / 3))


@pytest.mark.parametrize(
    ("curve", "expert"),
    [([4.0, 1, 1, 0], [0.0, 1]), ([0.0, 1], [3.0, 1]), ([0.0, 0.1], [0, 1.0]), ([3.0, 4, 0, 0], [0.0, 1])],
)
def test_sample_efficiency_of_curves_that_do_not_rise_is_nan(curve: list[float], expert: list[float]) -> None:
    result = lifelong.sample_efficiency(Run([Block("train", "a", np.array(curve))], {"a": [np.array(expert)]}))
    assert np.isnan(result.tasks["a"])
    assert np.isnan(result.mean)
    assert "saturation" in result.reasons["a"]


def test_a_missing_value_is_nan_with_a_reason() -> None:
    for metric in (lifelong.relative_performance, lifelong.sample_efficiency):
        assert set(metric(SMALL).reasons.values()) == {"no training curve"}
        lonely = Run([Block("train", "a", np.arange(9.0))])
        assert metric(lonely).reasons == {"a": "no single-task expert"}
        assert np.isnan(metric(lonely).mean)
    assert lifelong.performance_recovery(SMALL).reasons.keys() == {"1", "2"}
    assert lifelong.performance_maintenance(SMALL, "mrtlp").reasons.keys() == {"1", "2"}


def test_an_expert_below_zero_is_not_a_reference() -> None:
    run = Run([Block("train", "a", np.arange(3.0))], {"a": [np.array([-2.0, -1.0, 0.0])]})
    for metric in (lifelong.relative_performance, lifelong.sample_efficiency):
        assert np.isnan(metric(run).tasks["a"])
        assert "normalise" in metric(run).reasons["a"]


def test_missing_entries_of_a_table_are_skipped() -> None:
    run = table_run((np.nan, np.nan), (0.9, np.nan), (0.5, 0.8), curriculum=(0, 1))
    assert lifelong.performance_maintenance(run).tasks["1"] == pytest.approx(-0.4)
    assert lifelong.forward_transfer(run).pairs == {}


def test_smoothing_by_hand() -> None:
    curve = np.array([0.0, 4, 8, 0, 4, 8])
    even = [(8 + 4 + 0 + 4) / 4, (4 + 0 + 4 + 8) / 4, (0 + 4 + 8 + 0) / 4]
    even += [(4 + 8 + 0 + 4) / 4, (8 + 0 + 4 + 8) / 4, (0 + 4 + 8 + 4) / 4]
    np.testing.assert_allclose(lifelong.smooth(curve, 4), even)
    odd = [
        (8 + 4 + 0) / 3,
        (4 + 0 + 4) / 3,
        (0 + 4 + 8) / 3,
        (4 + 8 + 0) / 3,
        (8 + 0 + 4) / 3,
        (0 + 4 + 8) / 3,
    ]
    np.testing.assert_allclose(lifelong.smooth(curve, 3), odd)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Block("sleep", "a", np.ones(1)), "expected the kind 'train' or 'test', got 'sleep'"),  # type: ignore[arg-type]
        (lambda: Block("test", "a", np.empty(0)), "expected at least one performance"),
        (lambda: Block("train", "a", np.ones((2, 2))), r"shape \(2, 2\)"),
        (lambda: Block("train", "a", np.array([1.0, np.nan])), "experience 2: expected a finite performance, got nan"),
        (lambda: Run([], {"a": [np.empty(0)]}), "empty training curve"),
        (lambda: lifelong.normalised_run(SMALL, {"1": (0, 1)}), "got none for task '2'"),
        (lambda: lifelong.run_from_table(np.ones((2, 2)), [0, 1]), "expected 3 rows"),
        (lambda: lifelong.run_from_table(np.ones((2, 2)), [2]), r"expected tasks from 0 to 1, got \[2\]"),
        (
            lambda: lifelong.performance_maintenance(SMALL, "last"),  # type: ignore[arg-type]
            "reference: unknown name 'last', known: mrlep, mrtlp",
        ),
        (lambda: lifelong.mean_performance(SMALL, "sleep"), "kind: unknown name 'sleep', known: test, train"),  # type: ignore[arg-type]
        (
            lambda: lifelong.forward_transfer(SMALL, "difference"),  # type: ignore[arg-type]
            "form: unknown name 'difference', known: contrast, ratio",
        ),
    ],
)
def test_invalid_input_is_rejected(call: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()


def test_constant_performance_is_normalized_to_one() -> None:
    run = lifelong.normalised_run(table_run((0.5,), (0.5,), curriculum=(0,)))
    assert [block.performance.tolist() for block in run.blocks] == [[1.0], [], [1.0]]


def test_results_cannot_be_changed_by_accident() -> None:
    values = np.array([1.0, 2.0])
    block = Block("test", "a", values)
    values[0] = 9
    assert block.performance.tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="read-only"):
        block.performance[0] = 3
