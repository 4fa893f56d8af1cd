"""The rules of a release gate."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from perdure.base.errors import InputError, error_suggestion, escape_control_characters
from perdure.policies.quantities import GROUPS, Per, Quantity, quantity
from perdure.policies.verdicts import DEFAULT_THRESHOLDS, QUESTION_NAMES, QuestionName, Thresholds, VerdictSettings

SCHEMA = 1
FALSE_ALARM_RATE = 0.05
MOST_RULES = 1000
LONGEST_NAME = 200
NO_RULE = "the policy has no rule. Write [[rule]], then metric and threshold."
Severity = Literal["error", "warning"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning")
POLICY_KEYS = ("schema", "false_alarm_rate", "rule", "rank_by", "verdicts")
VERDICT_KEYS = ("good", "bad")
RULE_KEYS = (
    "metric",
    "threshold",
    "min_absolute_change",
    "greater_is_better",
    "per",
    "tasks",
    "classes",
    "severity",
    "name",
)


@dataclass(frozen=True)
class Rule:
    """A rule: a metric must reach a threshold, or must not be worse than the baseline by more than a tolerance.

    ``threshold``: the smallest allowed value, or the largest if smaller values are better.
    ``min_absolute_change``: how much better than the baseline the metric must be; a negative number is a tolerated loss. As
    in MLflow, the metric must be at least the baseline's plus this number, or at most the baseline's minus this number if
    smaller values are better. MLflow accepts positive numbers only, and compares values without intervals.
    ``per``: "overall", or one decision for each "task" or "class"; ``tasks`` and ``classes`` name some of them (names, or
    1-based numbers). Failures of a rule with the severity "warning" are shown, but do not fail the gate.
    """

    metric: str
    threshold: float | None = None
    min_absolute_change: float | None = None
    greater_is_better: bool = True
    per: Per = "overall"
    tasks: tuple[str | int, ...] = ()
    classes: tuple[str | int, ...] = ()
    severity: Severity = "error"
    name: str = ""
    line: int | None = None
    """The line of the policy file on which the rule begins."""

    @property
    def quantity(self) -> Quantity:
        """What the rule is about."""
        return quantity(self.metric)


@dataclass(frozen=True)
class Policy:
    """Rules, the probability of any wrong decision over all of them together, and how reports judge and rank learners."""

    rules: tuple[Rule, ...]
    false_alarm_rate: float = FALSE_ALARM_RATE
    source: str = "policy"
    """The policy file."""
    verdicts: VerdictSettings = field(default_factory=VerdictSettings)
    """Thresholds and ranking of reports; the gate does not use them."""


At = Callable[[str], str]
"""Returns the place of a key of one rule."""


class Places:
    """Where the keys of a policy are, for messages: the line in a file, or the number of the rule."""

    def __init__(self, source: str) -> None:
        self.source = source

    def line(self, rule: int | None, key: str | None) -> int | None:
        """Return the line of a key of a rule (0-based; None for the policy itself); None if there is no file."""
        del rule, key
        return None

    def __call__(self, rule: int | None, key: str | None = None) -> str:
        """Return the beginning of a message about a key of a rule."""
        line = self.line(rule, key)
        if line is not None:
            return f"{self.source}, line {line}"
        return self.source if rule is None else f"{self.source}, rule {rule + 1}"


def make_policy(value: Mapping[str, Any], places: Places | None = None) -> Policy:
    """Return a policy from a mapping with the keys of a policy file. ``places`` says where the keys are, for messages.

    Examples
    --------
    >>> from perdure import policies
    >>> rules = [{"metric": "forgetting", "threshold": 0.1}]
    >>> policy = policies.make_policy({"rule": rules})
    >>> policy.rules[0].greater_is_better  # lower forgetting is better
    False
    """
    where = places or Places("policy")
    source = where.source
    _check_keys(value, POLICY_KEYS, lambda key: where(None, key))
    schema = value.get("schema", SCHEMA)
    if isinstance(schema, bool) or schema != SCHEMA:
        raise InputError(f"{where(None, 'schema')}: schema: this perdure reads schema {SCHEMA}, got {_shown(schema)}")
    rate = _number(value.get("false_alarm_rate", FALSE_ALARM_RATE), "false_alarm_rate", lambda key: where(None, key))
    if not 0 < rate < 1:
        raise InputError(
            f"{where(None, 'false_alarm_rate')}: false_alarm_rate: expected a number between 0 and 1, got {rate:g}"
        )
    rules = value.get("rule", [])
    if not isinstance(rules, Sequence) or isinstance(rules, str):
        raise InputError(
            f"{where(None, 'rule')}: rule: expected rules, each after a line [[rule]], got {_shown(rules)}"
        )
    if not rules and not {"rank_by", "verdicts"} & value.keys():
        raise InputError(f"{source}: {NO_RULE}")
    if len(rules) > MOST_RULES:
        raise InputError(f"{source}: expected at most {MOST_RULES} rules, got {len(rules)}")
    made = [_rule(rule, index, where) for index, rule in enumerate(rules)]
    return Policy(tuple(made), rate, source, _verdicts(value, where))


def _verdicts(value: Mapping[str, Any], where: Places) -> VerdictSettings:
    """Return how reports rank and judge learners; questions that the policy does not name keep their default."""

    def at(key: str) -> str:
        return where(None, key)

    rank_by = _quantity(value["rank_by"], at, "rank_by").name if "rank_by" in value else VerdictSettings.rank_by
    tables = value.get("verdicts", {})
    if not isinstance(tables, Mapping):
        raise InputError(
            f"{at('verdicts')}: verdicts: expected thresholds after a line like [verdicts.reasons], got {_shown(tables)}"
        )
    _check_keys(tables, QUESTION_NAMES, at)
    metric = VerdictSettings.metric
    thresholds: dict[QuestionName, Thresholds] = dict(DEFAULT_THRESHOLDS)
    for question in QUESTION_NAMES:
        if question not in tables:
            continue
        table = tables[question]
        if not isinstance(table, Mapping):
            raise InputError(f"{at(question)}: {question}: expected a table with good and bad, got {_shown(table)}")
        is_performance = question == "performance"
        _check_keys(table, (*VERDICT_KEYS, *(("metric",) if is_performance else ())), at)
        if is_performance and "metric" in table:
            metric = _quantity(table["metric"], at, "metric").name
            if metric != VerdictSettings.metric and not set(VERDICT_KEYS) <= table.keys():
                raise InputError(f"{at('metric')}: {metric} has no default thresholds; write good and bad")
        thresholds[question] = _thresholds(table, question, metric, thresholds[question], at)
    return VerdictSettings(rank_by, metric, thresholds)


def _thresholds(
    table: Mapping[str, Any], question: QuestionName, metric: str, default: Thresholds, at: At
) -> Thresholds:
    good, bad = (_number(table[key], key, at) if key in table else getattr(default, key) for key in VERDICT_KEYS)
    higher = quantity(metric).higher_is_better if question == "performance" else True
    if good == bad or (good > bad) != higher:
        order = "higher" if higher else "lower"
        raise InputError(
            f"{at('good' if 'good' in table else 'bad')}: {question}: expected good to be {order} than bad, got good = "
            f"{good:g} and bad = {bad:g}"
        )
    return Thresholds(good, bad)


def _rule(value: Any, index: int, where: Places) -> Rule:
    """Return a checked rule; ``index`` is its position in the policy."""

    def at(key: str) -> str:
        return where(index, key)

    if not isinstance(value, Mapping):
        raise InputError(f"{where(index)}: expected a table with metric and threshold, got {_shown(value)}")
    _check_keys(value, RULE_KEYS, at)
    if "metric" not in value:
        raise InputError(f'{where(index)}: metric is missing, for example metric = "average_accuracy"')
    about = _quantity(value["metric"], at)
    per = _choice(value, "per", GROUPS, at)
    if per not in about.per:
        raise InputError(f"{at('per')}: per: {about.name} is not defined per {per}; expected {' or '.join(about.per)}")
    for key, group in (("tasks", "task"), ("classes", "class")):
        if key in value and per != group:
            raise InputError(f'{at(key)}: {key}: needs per = "{group}"')
    if "threshold" not in value and "min_absolute_change" not in value:
        raise InputError(f"{where(index)}: the rule has neither threshold nor min_absolute_change")
    return Rule(
        metric=about.name,
        threshold=_bound(value, "threshold", about, at),
        min_absolute_change=_change(value, about, at),
        greater_is_better=_direction(value, about, at),
        per=per,
        tasks=_names(value, "tasks", at),
        classes=_names(value, "classes", at),
        severity=_choice(value, "severity", SEVERITIES, at),
        name=_name(value, at),
        line=where.line(index, None),
    )


def _check_keys(value: Mapping[str, Any], known: Sequence[str], at: At) -> None:
    for key in value:
        if key not in known:
            word = _shorten(str(key))
            raise InputError(f"{at(key)}: unknown key {word!r}, {error_suggestion(word, list(known))}")


def _quantity(name: Any, at: At, key: str = "metric") -> Quantity:
    if not isinstance(name, str):
        raise InputError(f"{at(key)}: {key}: expected a name in quotes, got {_shown(name)}")
    try:
        return quantity(name)
    except InputError as error:
        raise InputError(f"{at(key)}: {error}") from None


def _choice(value: Mapping[str, Any], key: str, choices: Sequence[Any], at: At) -> Any:
    """Return one of some words; the first one by default."""
    word = value.get(key, choices[0])
    if not isinstance(word, str) or word not in choices:
        hint = (
            error_suggestion(_shorten(word), list(choices)) if isinstance(word, str) else f"known: {', '.join(choices)}"
        )
        raise InputError(f"{at(key)}: {key}: unknown name {_shown(word)}, {hint}")
    return word


def _number(value: Any, key: str, at: At) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{at(key)}: {key}: expected a number, got {_shown(value)}")
    if (isinstance(value, int) and abs(value) > 2**53) or not math.isfinite(value):
        raise InputError(f"{at(key)}: {key}: expected a finite number, got {_shown(value)}")
    return float(value)


def _bound(value: Mapping[str, Any], key: str, about: Quantity, at: At) -> float | None:
    if key not in value:
        return None
    number = _number(value[key], key, at)
    low, high = about.bounds
    if not low <= number <= high:
        hint = f" Write {number / 100:g} for {number:g} %." if (low, high) == (0, 1) and 1 < number <= 100 else ""
        raise InputError(f"{at(key)}: {key}: {about.name} is between {low:g} and {high:g}, got {number:g}.{hint}")
    return number


def _change(value: Mapping[str, Any], about: Quantity, at: At) -> float | None:
    if "min_absolute_change" not in value:
        return None
    if about.compares:
        raise InputError(
            f"{at('min_absolute_change')}: min_absolute_change: {about.name} already compares with the baseline; use threshold"
        )
    number = _number(value["min_absolute_change"], "min_absolute_change", at)
    widest = about.bounds[1] - about.bounds[0]
    if abs(number) > widest:
        hint = f" Write {number / 100:g} for {number:g} %." if widest == 1 and abs(number) <= 100 else ""
        raise InputError(
            f"{at('min_absolute_change')}: min_absolute_change: {about.name} cannot change by more than {widest:g}, got "
            f"{number:g}.{hint}"
        )
    return number


def _direction(value: Mapping[str, Any], about: Quantity, at: At) -> bool:
    given = value.get("greater_is_better", about.higher_is_better)
    if not isinstance(given, bool):
        raise InputError(f"{at('greater_is_better')}: greater_is_better: expected true or false, got {_shown(given)}")
    if given != about.higher_is_better:
        better = "higher" if about.higher_is_better else "lower"
        raise InputError(
            f"{at('greater_is_better')}: greater_is_better: {better} values of {about.name} are better; remove this line"
        )
    return given


def _names(value: Mapping[str, Any], key: str, at: At) -> tuple[str | int, ...]:
    names = value.get(key, ())
    is_list = isinstance(names, Sequence) and not isinstance(names, str)
    if not is_list or any(isinstance(name, bool) or not isinstance(name, str | int) for name in names):
        raise InputError(f"{at(key)}: {key}: expected a list of names or numbers, got {_shown(names)}")
    if key in value and not names:
        raise InputError(f"{at(key)}: {key}: the list is empty; remove this line for all {key}")
    if len(names) > MOST_RULES:
        raise InputError(f"{at(key)}: {key}: expected at most {MOST_RULES} names, got {len(names)}")
    return tuple(names)


def _name(value: Mapping[str, Any], at: At) -> str:
    name = value.get("name", "")
    if not isinstance(name, str) or len(name) > LONGEST_NAME or escape_control_characters(name) != name:
        raise InputError(
            f"{at('name')}: name: expected text without control characters, of at most {LONGEST_NAME} characters, got "
            f"{_shown(name)}"
        )
    return name


def _shorten(text: str) -> str:
    return text if len(text) <= 60 else text[:60] + "..."


def _shown(value: Any) -> str:
    """Return a value for a message: a short form of text and numbers, the kind of everything else."""
    if isinstance(value, str):
        return repr(_shorten(value))
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value) if abs(value) < 10**20 else "an integer of more than 20 digits"
    if isinstance(value, float):
        return f"{value:g}"
    return {"list": "a list", "dict": "a table", "tuple": "a list"}.get(type(value).__name__, type(value).__name__)
