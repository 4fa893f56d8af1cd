"""Decisions on intervals: golden decisions, the number of additional examples, and the false-alarm rate by simulation."""

import math

import numpy as np
import pytest
from scipy import stats

from perdure import metrics
from perdure.metrics import Interval
from perdure.policies import CheckResult, Estimate, Question, Rule, decide
from perdure.policies.decisions import additional_examples, additional_runs, confidence_level

UP, DOWN = Rule("average_accuracy", threshold=0.9), Rule("forgetting", threshold=0.1, greater_is_better=False)


def interval(mean: float, low: float, high: float, n: int = 100) -> Interval:
    return Interval(mean, low, high, n, "exact")


def decided(rule: Rule, value: Interval, kind="threshold", basis="examples", deviation=None):
    evidence = Estimate(value, basis, "made by hand", deviation=deviation)
    return decide(Question(rule, kind, estimate=lambda level: evidence), 0.95)


@pytest.mark.parametrize(
    ("rule", "low", "high", "verdict"),
    [
        (UP, 0.91, 0.95, "pass"),
        (UP, 0.9, 0.95, "pass"),
        (UP, 0.9 - 1e-16, 0.95, "pass"),
        (UP, 0.85, 0.89, "fail"),
        (UP, 0.85, 0.9, "undecided"),
        (UP, 0.85, 0.95, "undecided"),
        (DOWN, 0.02, 0.1, "pass"),
        (DOWN, 0.11, 0.2, "fail"),
        (DOWN, 0.1, 0.2, "undecided"),
        (DOWN, 0.05, 0.2, "undecided"),
    ],
)
def test_pass_if_the_whole_interval_satisfies_the_rule_and_fail_if_none_of_it_does(rule, low, high, verdict):
    assert decided(rule, interval((low + high) / 2, low, high)).verdict == verdict


@pytest.mark.parametrize(
    ("better", "change", "low", "high", "verdict", "title"),
    [
        # At most 0.02 worse than the baseline: an accuracy may fall by 0.02, an error may rise by 0.02.
        (True, -0.02, -0.015, 0.01, "pass", "change of average accuracy >= -0.02"),
        (True, -0.02, -0.05, -0.03, "fail", "change of average accuracy >= -0.02"),
        (False, -0.02, -0.01, 0.015, "pass", "change of forgetting <= 0.02"),
        (False, -0.02, 0.03, 0.05, "fail", "change of forgetting <= 0.02"),
        # As in MLflow, a positive number demands an improvement.
        (True, 0.01, 0.02, 0.03, "pass", "change of average accuracy >= 0.01"),
        (False, 0.01, -0.03, -0.02, "pass", "change of forgetting <= -0.01"),
        (False, 0.01, -0.005, 0.01, "fail", "change of forgetting <= -0.01"),
    ],
)
def test_changes_relative_to_the_baseline(better, change, low, high, verdict, title):
    metric = "average_accuracy" if better else "forgetting"
    rule = Rule(metric, min_absolute_change=change, greater_is_better=better)
    result = decided(rule, interval((low + high) / 2, low, high), "change")
    assert (result.verdict, result.title) == (verdict, title)


def test_an_undecided_rule_names_the_examples_that_would_decide_it():
    result = decided(UP, interval(0.92, 0.88, 0.95))
    # Half-width 0.04, distance 0.02: four times as many examples.
    assert (result.verdict, result.additional_examples) == ("undecided", 300)
    assert result.next_step == "about 300 more examples would decide it"
    below = decided(UP, interval(0.88, 0.84, 0.91))
    assert below.additional_examples == math.ceil(100 * 1.5**2 - 100)


def test_the_estimated_number_of_examples_decides_about_half_of_the_time():
    rng = np.random.default_rng(0)
    rate, threshold = 0.93, 0.9
    first = metrics.binomial_interval(186, 200)
    more = additional_examples(first, threshold)
    assert more is not None
    total = 200 + more
    passed = [metrics.binomial_interval(k, total).low >= threshold for k in rng.binomial(total, rate, 400).tolist()]
    assert 0.3 < np.mean(passed) < 0.8


@pytest.mark.parametrize("basis", ["examples", "none"])
def test_values_that_more_examples_cannot_decide(basis):
    value = 0.9 if basis == "examples" else 0.92
    result = decided(UP, interval(value, 0.85, 0.95), basis=basis)
    assert (result.additional_examples, result.additional_runs, result.next_step) == (None, None, "")
    assert result.reason is not None
    assert "more examples" in result.reason


def test_more_runs_for_an_interval_over_runs():
    values = [0.91, 0.95, 0.93]
    # The interval is clipped to the range of the metric, which does not make more runs unnecessary.
    over_runs = metrics.interval(values, bounds=(0.0, 0.94))
    deviation = float(np.std(values, ddof=1))
    result = decided(UP, over_runs, basis="runs", deviation=deviation)
    assert result.additional_examples is None
    more = result.additional_runs
    assert more is not None

    def margin(runs: int) -> float:
        return float(stats.t.ppf(0.975, runs - 1) * deviation / math.sqrt(runs))

    assert margin(3 + more) <= 0.03 < margin(3 + more - 1)
    assert additional_runs(metrics.interval([0.8, 1.0]), 0.14, 0.9) is None


def test_no_evidence_is_undecided_and_never_passed():
    without = decide(Question(UP, "threshold", reason="no baseline was given"), 0.95)
    missing = decided(UP, Interval(math.nan, math.nan, math.nan, 1, "none", "no costs were given"))
    single = decided(UP, Interval(0.99, math.nan, math.nan, 1, "none", "one run has no interval"))
    for result, reason in ((without, "no baseline was given"), (missing, "no costs were given"), (single, "one run")):
        assert result.verdict == "undecided"
        assert result.reason is not None
        assert reason in result.reason
    assert single.evidence == "0.9900, no interval"


def test_the_rate_is_split_over_the_decisions_that_rest_on_intervals():
    evidence = Question(UP, "threshold", estimate=lambda level: Estimate(interval(1, 1, 1), "examples", ""))
    counted = Question(Rule("MS", threshold=1), "threshold", estimate=evidence.estimate, exact=True)
    without = Question(UP, "threshold", reason="none")
    assert confidence_level([evidence] * 4 + [counted, without], 0.05) == pytest.approx(1 - 0.05 / 4)
    assert confidence_level([without], 0.05) == 0.95


def accuracy_of(correct: int):
    return lambda level: Estimate(metrics.binomial_interval(correct, 300, level), "examples", "")


@pytest.mark.parametrize("rules", [1, 20])
def test_the_probability_of_any_wrong_decision_is_at_most_the_rate(rules):
    """Accuracies equal to their thresholds, the worst case: every failure is a false alarm."""
    rng = np.random.default_rng(rules)
    rule, repeats = Rule("accuracy", threshold=0.9), 400
    alarms = 0
    for counts in rng.binomial(300, 0.9, (repeats, rules)).tolist():
        questions = [Question(rule, "threshold", estimate=accuracy_of(k)) for k in counts]
        level = confidence_level(questions, 0.1)
        alarms += any(decide(question, level).verdict == "fail" for question in questions)
    assert alarms / repeats <= 0.1 + 3 * math.sqrt(0.1 * 0.9 / repeats)


def test_the_verdict_ignores_warnings():
    strict, lenient = Rule("A", threshold=0.5), Rule("A", threshold=0.5, severity="warning")

    def result(*verdicts):
        values = {"pass": (0.6, 0.7), "fail": (0.1, 0.2), "undecided": (0.4, 0.6)}
        decisions = [decided(rule, interval(sum(values[word]) / 2, *values[word])) for rule, word in verdicts]
        return CheckResult("target", "policy.toml", tuple(decisions), 0.05, 0.95)

    for verdicts, expected, code in (
        ([(strict, "pass"), (lenient, "fail")], "pass", 0),
        ([(strict, "pass"), (lenient, "undecided")], "pass", 0),
        ([(strict, "pass"), (strict, "undecided")], "undecided", 2),
        ([(strict, "fail"), (strict, "undecided")], "fail", 1),
    ):
        assert (result(*verdicts).verdict, result(*verdicts).exit_code) == (expected, code)
    text = str(result((strict, "pass"), (lenient, "fail")))
    assert text.startswith("PASS: target: 1 passed, 1 failed of 2 decisions")
    assert "fail, warning: A >= 0.5: 0.1500 [0.1000, 0.2000]" in text


def test_results_are_saved_and_loaded(tmp_path):
    results = (
        decided(UP, interval(0.92, 0.88, 0.95)),
        decide(Question(Rule("reasons", threshold=0.5), "threshold", reason="no baseline"), 0.95),
        decided(Rule("accuracy", threshold=0.9, per="class", classes=("cat", 3), line=7), interval(1, 1, 1)),
    )
    check = CheckResult("runs/a", "policy.toml", results, 0.05, 0.99, "runs/b", ("a note",), 300)
    check.save(tmp_path / "check.json")
    loaded = CheckResult.load(tmp_path / "check.json")
    assert str(loaded) == str(check)
    assert loaded.to_json() == check.to_json()
    assert loaded.rules[0] == check.rules[0]
    plain = check.to_json()
    assert (plain["verdict"], plain["exit_code"]) == ("undecided", 2)
    assert plain["rules"][1]["interval"]["mean"] is None
    assert plain["rules"][0]["title"] == "average accuracy >= 0.9"


def test_a_damaged_result_is_refused(tmp_path):
    file = tmp_path / "check.json"
    file.write_text('{"schema": 1, "rules": [{}]}')
    with pytest.raises(ValueError, match="a field is missing or malformed"):
        CheckResult.load(file)


@pytest.mark.parametrize("metric", ["reasons", "shapc_calibrated"])
def test_calibrated_scores_are_clipped_in_texts_only(metric):
    rule = Rule(metric, threshold=-0.5)
    decision = decided(rule, interval(-0.0235, -0.7171, 1.2))
    assert decision.evidence == "0.0000 [0.0000, 1.0000]"
    assert "0.0000 [0.0000, 1.0000]" in str(decision)
    assert decision.verdict == "undecided"  # the clipped interval would pass
    result = CheckResult("run", "policy.toml", (decision,), 0.05, 0.95)
    assert result.to_json()["rules"][0]["interval"]["low"] == -0.7171
    assert decided(rule, interval(0.25, math.nan, math.nan)).evidence == "0.2500, no interval"
    change = decided(Rule(metric, min_absolute_change=-0.1), interval(-0.3, -0.5, -0.2), "change")
    assert change.evidence == "-0.3000 [-0.5000, -0.2000]"
