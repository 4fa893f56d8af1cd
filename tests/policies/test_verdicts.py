"""Verdicts: thresholds applied to whole intervals, and how a policy sets them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.base.errors import InputError
from perdure.metrics import Interval
from perdure.policies import VerdictSettings, judge, make_policy, read_policy
from perdure.policies.verdicts import DEFAULT_THRESHOLDS, Thresholds

HIGHER = Thresholds(good=0.8, bad=0.5)
LOWER = Thresholds(good=0.1, bad=0.3)


def between(low, high):
    return Interval((low + high) / 2, low, high, 3, "t")


@pytest.mark.parametrize(
    ("low", "high", "rating"),
    [
        (0.8, 0.9, "good"),
        (0.79, 0.9, "undecided"),
        (0.5, 0.79, "weak"),
        (0.5, 0.8, "undecided"),
        (0.49, 0.6, "undecided"),
        (0.1, 0.49, "bad"),
        (0.1, 0.5, "undecided"),
        (0.1, 0.9, "undecided"),
    ],
)
def test_the_whole_interval_decides(low, high, rating):
    assert judge(between(low, high), HIGHER).rating == rating


@pytest.mark.parametrize(
    ("low", "high", "rating"),
    [(0.0, 0.1, "good"), (0.0, 0.11, "undecided"), (0.11, 0.3, "weak"), (0.31, 0.4, "bad"), (0.3, 0.4, "undecided")],
)
def test_lower_values_can_be_better(low, high, rating):
    assert judge(between(low, high), LOWER).rating == rating


def test_an_undecided_verdict_names_what_is_possible():
    assert judge(between(0.6, 0.9), HIGHER).reason == "the interval allows weak and good"
    assert judge(between(0.1, 0.9), HIGHER).reason == "the interval allows bad, weak and good"


def test_missing_numbers_and_missing_intervals_are_not_bad():
    missing = Interval(math.nan, math.nan, math.nan, 0, "none", "no costs")
    assert (judge(missing, HIGHER).rating, judge(missing, HIGHER).reason) == ("undefined", "no costs")
    assert judge(Interval(0.1, math.nan, math.nan, 1, "none"), HIGHER).rating == "undecided"
    assert judge(between(0.9, 0.95), None).rating == "undecided"


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0.01, 0.99), st.floats(0.01, 0.99))
def test_a_decided_verdict_holds_for_every_value_in_the_interval(first, second, good, bad):
    if good <= bad:
        return
    low, high = sorted((first, second))
    thresholds = Thresholds(good, bad)
    rating = judge(between(low, high), thresholds).rating
    points = [judge(between(value, value), thresholds).rating for value in (low, (low + high) / 2, high)]
    if rating != "undecided":
        assert set(points) == {rating}
    else:
        assert len({judge(between(value, value), thresholds).rating for value in (low, high)}) == 2


def test_a_policy_sets_thresholds_and_the_ranking(tmp_path):
    file = tmp_path / "policy.toml"
    file.write_text(
        'rank_by = "forgetting"\n[verdicts.reasons]\ngood = 0.9\n[verdicts.performance]\ngood = 0.95\nbad = 0.9\n'
    )
    policy = read_policy(file)
    assert policy.rules == ()
    assert policy.verdicts.rank_by == "forgetting"
    assert policy.verdicts.thresholds["reasons"] == Thresholds(0.9, 0.2)
    assert policy.verdicts.thresholds["performance"] == Thresholds(0.95, 0.9)
    assert policy.verdicts.thresholds["trust"] == DEFAULT_THRESHOLDS["trust"]
    assert make_policy({"rule": [{"metric": "accuracy", "threshold": 0.5}]}).verdicts == VerdictSettings()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[verdicts.reason]\ngood = 0.9\n", "line 1: unknown key 'reason', did you mean 'reasons'?"),
        (
            "[verdicts.reasons]\ngood = 0.1\n",
            "line 2: reasons: expected good to be higher than bad, got good = 0.1 and bad = 0.2",
        ),
        ("[verdicts.reasons]\nbest = 1\n", "line 2: unknown key 'best'"),
        ('[verdicts.reasons]\ngood = "x"\n', "line 2: good: expected a number, got 'x'"),
        ('rank_by = "acuracy"\n', "line 1: metric: unknown name 'acuracy'"),
        (
            '[verdicts.performance]\nmetric = "forgetting"\n',
            "line 2: forgetting has no default thresholds; write good and bad",
        ),
        (
            '[verdicts.performance]\nmetric = "forgetting"\ngood = 0.3\nbad = 0.1\n',
            "performance: expected good to be lower than bad",
        ),
        ("verdicts = 3\n", "line 1: verdicts: expected thresholds after a line like [verdicts.reasons], got 3"),
        ("[verdicts]\nreasons = 3\n", "line 2: reasons: expected a table with good and bad, got 3"),
    ],
)
def test_mistakes_name_the_line(tmp_path, text, message):
    file = tmp_path / "policy.toml"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        read_policy(file)
    assert message in str(caught.value)


def test_a_policy_without_rules_cannot_be_checked():
    from perdure import check

    with pytest.raises(InputError, match="the policy has no rule"):
        check([[1.0]], {"rank_by": "average_accuracy"})
    with pytest.raises(InputError, match="the policy has no rule"):
        make_policy({})
