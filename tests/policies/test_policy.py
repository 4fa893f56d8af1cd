"""Policy files: what they mean, and one clear message with the line for every mistake."""

import math
import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.base.errors import InputError
from perdure.policies import Rule, make_policy, read_policy
from perdure.policies.policy import MOST_RULES

COMPLETE = """\
schema = 1
false_alarm_rate = 0.1

[[rule]]
metric = "average_accuracy"
threshold = 0.9

[[rule]]
name = "every class"
metric = "accuracy"
per = "class"
classes = ["cat", 3]
threshold = 0.8
severity = "warning"

[[rule]]
metric = "forgetting"
greater_is_better = false
threshold = 0.1
min_absolute_change = -0.02
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write_policy(text: str | bytes) -> str:
        (tmp_path / "policy.toml").write_bytes(text.encode() if isinstance(text, str) else text)
        return "policy.toml"

    return write_policy


def message(call) -> str:
    with pytest.raises(InputError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_complete_policy(write):
    policy = read_policy(write(COMPLETE))
    assert (policy.false_alarm_rate, policy.source) == (0.1, "policy.toml")
    first, second, third = policy.rules
    assert first == Rule("average_accuracy", threshold=0.9, line=4)
    assert second == Rule(
        "accuracy",
        threshold=0.8,
        per="class",
        classes=("cat", 3),
        severity="warning",
        name="every class",
        line=8,
    )
    assert (third.threshold, third.min_absolute_change, third.greater_is_better) == (0.1, -0.02, False)


def test_the_rate_is_five_percent_by_default(write):
    assert read_policy(write('[[rule]]\nmetric = "A"\nthreshold = 0.5')).false_alarm_rate == 0.05


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("threshold = 0.9", "treshold = 0.9"), "line 6: unknown key 'treshold', did you mean 'threshold'?"),
        (("false_alarm_rate", "false_alarm"), "line 2: unknown key 'false_alarm', did you mean 'false_alarm_rate'?"),
        (('"average_accuracy"', '"average_acuracy"'), "line 5: metric: unknown name 'average_acuracy', did you mean"),
        (('"average_accuracy"', "3"), "line 5: metric: expected a name in quotes, got 3"),
        (("threshold = 0.9", 'threshold = "0.9"'), "line 6: threshold: expected a number, got '0.9'"),
        (("threshold = 0.9", "threshold = true"), "line 6: threshold: expected a number, got true"),
        (("threshold = 0.9", "threshold = nan"), "line 6: threshold: expected a finite number, got nan"),
        (("threshold = 0.9", "threshold = -inf"), "line 6: threshold: expected a finite number, got -inf"),
        (
            ("threshold = 0.9", f"threshold = {'9' * 300}"),
            "line 6: threshold: expected a finite number, got an integer",
        ),
        (("threshold = 0.9", f"threshold = {'9' * 6000}"), "not TOML"),
        (
            ("threshold = 0.9", "threshold = 90"),
            "line 6: threshold: average_accuracy is between 0 and 1, got 90. Write 0.9 for 90 %.",
        ),
        (("threshold = 0.9", ""), "line 4: the rule has neither threshold nor min_absolute_change"),
        (('metric = "forgetting"', ""), 'line 16: metric is missing, for example metric = "average_accuracy"'),
        (('per = "class"', 'per = "clas"'), "line 11: per: unknown name 'clas', did you mean 'class'?"),
        (('per = "class"', 'per = "task"'), 'line 12: classes: needs per = "class"'),
        (('metric = "accuracy"', 'metric = "A"'), "line 11: per: A is not defined per class; expected overall"),
        (
            ('severity = "warning"', 'severity = "warn"'),
            "line 14: severity: unknown name 'warn', did you mean 'warning'",
        ),
        (('severity = "warning"', "severity = 1"), "line 14: severity: unknown name 1, known: error, warning"),
        (('["cat", 3]', "[]"), "line 12: classes: the list is empty; remove this line for all classes"),
        (('["cat", 3]', '"cat"'), "line 12: classes: expected a list of names or numbers, got 'cat'"),
        (('["cat", 3]', "[true]"), "line 12: classes: expected a list of names or numbers, got a list"),
        (
            ("greater_is_better = false", "greater_is_better = true"),
            "line 18: greater_is_better: lower values of forgetting are better; remove this line",
        ),
        (("greater_is_better = false", "greater_is_better = 0"), "line 18: greater_is_better: expected true or false"),
        (
            ("min_absolute_change = -0.02", "min_absolute_change = 5"),
            "line 20: min_absolute_change: forgetting cannot change by more than 2, got 5",
        ),
        (
            ("false_alarm_rate = 0.1", "false_alarm_rate = 5"),
            "line 2: false_alarm_rate: expected a number between 0 and 1",
        ),
        (("schema = 1", "schema = 2"), "line 1: schema: this perdure reads schema 1, got 2"),
        (('"every class"', '"every\\u0007class"'), "line 9: name: expected text without control characters"),
        (('[[rule]]\nmetric = "average', '[rule]\nmetric = "average'), "line 8: not TOML"),
    ],
)
def test_mistakes_are_named_with_their_line(write, change, expected):
    assert change[0] in COMPLETE
    old, new = change
    text = message(lambda: read_policy(write(COMPLETE.replace(old, new, 1))))
    assert text.startswith("policy.toml")
    assert expected in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("schema = 1", "the policy has no rule"),
        ('[[rules]]\nmetric = "A"', "line 1: unknown key 'rules', did you mean 'rule'?"),
        (
            '[rule]\nmetric = "A"\nthreshold = 1',
            "line 1: rule: expected rules, each after a line [[rule]], got a table",
        ),
        ("rule = [3]", "expected a table with metric and threshold, got 3"),
        ('[[rule]]\nmetric = "A"\nthreshold = 0.5.5', "line 3: not TOML: "),
        ('rule = [{metric = "A", limit = 3}]', "line 1: unknown key 'limit'"),
        (
            '[[rule]]\nmetric = "reasons"\nmin_absolute_change = 0',
            "reasons already compares with the baseline; use threshold",
        ),
    ],
)
def test_other_forms_of_invalid_policies(write, text, expected):
    assert expected in message(lambda: read_policy(write(text)))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\x00\x01\x02",
        b"\xff\xfe[[rule]]",
        b"a" * 2_000_000,
        b"x = " + b"[" * 9_000 + b"]" * 900,
        b"\n".join(b"x = " + b"[" * 5_000 for _ in range(50)),
        b"a." * 4_000 + b"a = 1",
        b"a." * 400_000 + b"a = 1",
        b"[[rule]]\n" * 100_000,
        b"[[rule]]\n" * 1_000_000,
        b"rule = [\n" + b"{},\n" * 200_000 + b"]",
        b'[[rule]]\nmetric = "' + b"\\u0007" * 1_000 + b'"\nthreshold = 1',
        b'[[rule]]\n"' + b"k" * 9_000 + b'" = 1',
        b'[[rule]]\nmetric = "A"\nmetric = "A"',
        b"rule = 1979-05-27",
    ],
)
def test_hostile_policies_get_one_short_message(write, text):
    # The list of all known metrics is the longest message.
    assert len(message(lambda: read_policy(write(text)))) < 1200


def test_the_largest_policy(write):
    text = '[[rule]]\nmetric = "A"\nthreshold = 0.5\n' * MOST_RULES
    assert len(read_policy(write(text)).rules) == MOST_RULES
    assert "expected at most" in message(lambda: read_policy(write(text + '[[rule]]\nmetric = "A"\nthreshold = 1')))


def test_mappings_are_policies_whose_messages_name_the_rule():
    policy = make_policy({"rule": [{"metric": "accuracy", "per": "task", "threshold": 1}]})
    assert policy.rules[0].threshold == 1.0
    assert policy.rules[0].line is None
    assert "policy, rule 1: unknown key 'limit'" in message(lambda: make_policy({"rule": [{"limit": 1}]}))


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(COMPLETE.split("\n")), st.text(max_size=20), st.floats())
def test_any_line_can_be_replaced_without_another_error(line, text, number):
    for replacement in (text, f"{line.partition('=')[0]} = {text}", f"{line.partition('=')[0]} = {number}"):
        try:
            value = COMPLETE.replace(line, replacement, 1)
            policy = make_policy(tomllib.loads(value))
        except (InputError, tomllib.TOMLDecodeError):
            continue
        assert all(rule.threshold is None or math.isfinite(rule.threshold) for rule in policy.rules)
