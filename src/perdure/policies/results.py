"""The result of a release gate: the decision on each rule with its evidence, and the verdict."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

from perdure.base.errors import InputError, error_message
from perdure.base.files import read_versioned_file, write_json
from perdure.metrics import Interval
from perdure.policies.policy import SEVERITIES, Rule
from perdure.policies.quantities import GROUPS, QUANTITIES

SCHEMA = 1
Verdict = Literal["pass", "fail", "undecided"]
_BOUNDS = ("threshold", "min_absolute_change")
EXIT_CODES: Mapping[Verdict, int] = {"pass": 0, "fail": 1, "undecided": 2}


@dataclass(frozen=True)
class RuleResult:
    """The decision on a rule for one group.

    ``interval`` is that of the metric, or of its change (target minus baseline). It must be at least ``bound`` if
    ``is_minimum``, otherwise at most.
    """

    rule: Rule
    kind: Literal["threshold", "change"]
    group: str
    """The task or the class; empty for a rule over all examples."""
    interval: Interval
    bound: float
    is_minimum: bool
    verdict: Verdict
    reason: str | None = None
    """Why it is undecided."""
    additional_examples: int | None = None
    """Estimated number of further examples that would decide it; None if it is decided, or they would not decide it."""
    additional_runs: int | None = None
    """The same for an interval over runs."""
    how: str = ""
    """How the interval was made, and what it covers."""
    level: float = 0.95
    examples: int | None = None
    """Number of test examples; None if the interval is not over examples."""

    @property
    def threshold(self) -> float:
        """The bound of the value: the threshold, or the largest allowed change."""
        return self.bound

    @property
    def title(self) -> str:
        """The rule and its group in words: "accuracy (class 3) >= 0.8"."""
        change = "change of " if self.kind == "change" else ""
        group = f" ({self.group})" if self.group else ""
        text = f"{change}{self.rule.quantity.label}{group} {'>=' if self.is_minimum else '<='} {self.bound:g}"
        return f"{self.rule.name}: {text}" if self.rule.name else text

    @property
    def evidence(self) -> str:
        """The value with its interval, or "no evidence"; calibrated scores are clipped to [0, 1]."""
        mean, low, high = self.interval.mean, self.interval.low, self.interval.high
        if math.isnan(mean):
            return "no evidence"
        if self.rule.quantity.is_calibrated and self.kind == "threshold":
            mean, low, high = (value if math.isnan(value) else min(max(value, 0.0), 1.0) for value in (mean, low, high))
        if math.isnan(low):
            return f"{mean:.4f}, no interval"
        return f"{mean:.4f} [{low:.4f}, {high:.4f}]"

    @property
    def next_step(self) -> str:
        """What would decide an undecided rule; empty if nothing is known to decide it."""
        if self.additional_examples is not None:
            plural = "s" if self.additional_examples != 1 else ""
            return f"about {self.additional_examples:,} more example{plural} would decide it"
        if self.additional_runs is not None:
            return f"about {self.additional_runs} more run{'s' if self.additional_runs != 1 else ''} would decide it"
        return ""

    def __str__(self) -> str:
        notes = [note for note in (self.reason, self.next_step) if note]
        warning = ", warning" if self.rule.severity == "warning" else ""
        ending = f" ({'; '.join(notes)})" if notes else ""
        return f"{self.verdict}{warning}: {self.title}: {self.evidence}{ending}"


@dataclass(frozen=True)
class CheckResult:
    """The verdict on a target: fail if a rule with the severity "error" fails, undecided if one is undecided, else pass."""

    target: str
    policy: str
    """The policy file."""
    rules: tuple[RuleResult, ...]
    false_alarm_rate: float
    level: float
    """Confidence level of each interval, so that all of them cover at once with probability 1 - false_alarm_rate."""
    baseline: str | None = None
    notes: tuple[str, ...] = ()
    """What must be known to read the result."""
    examples_used: int | None = None
    """With until_decided: the number of test examples that were examined."""

    @property
    def verdict(self) -> Verdict:
        """Pass, fail or undecided; warnings do not count."""
        verdicts = {result.verdict for result in self.rules if result.rule.severity == "error"}
        if "fail" in verdicts:
            return "fail"
        return "undecided" if "undecided" in verdicts else "pass"

    @property
    def exit_code(self) -> int:
        """0 for pass, 1 for fail, 2 for undecided."""
        return EXIT_CODES[self.verdict]

    def with_verdict(self, verdict: Verdict) -> tuple[RuleResult, ...]:
        """Return the decisions with a verdict."""
        return tuple(result for result in self.rules if result.verdict == verdict)

    @property
    def sentence(self) -> str:
        """The verdict in one sentence."""
        words = {"pass": "passed", "fail": "failed", "undecided": "undecided"}
        counts = {word: sum(result.verdict == verdict for result in self.rules) for verdict, word in words.items()}
        parts = [f"{count} {word}" for word, count in counts.items() if count]
        total = f"{len(self.rules)} decision{'s' if len(self.rules) != 1 else ''}"
        return f"{self.verdict.upper()}: {self.target}: {', '.join(parts)} of {total}"

    @property
    def rate_sentence(self) -> str:
        """What the false-alarm rate means here, in one sentence."""
        return (
            f"The probability of any wrong decision is at most {100 * self.false_alarm_rate:g} %: each interval has a "
            f"confidence level of {100 * self.level:.4g} % (Bonferroni)."
        )

    def __str__(self) -> str:
        order = {"fail": 0, "undecided": 1, "pass": 2}
        ranked = sorted(self.rules, key=lambda result: order[result.verdict])
        lines = [self.sentence, *(f"  {result}" for result in ranked), self.rate_sentence, *self.notes]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON: NaN becomes null. The verdict and the exit code are included."""
        plain = {"schema": SCHEMA, "verdict": self.verdict, "exit_code": self.exit_code, **asdict(self)}
        for rule, result in zip(plain["rules"], self.rules, strict=True):
            rule["title"] = result.title
        checked: dict[str, Any] = _without_nan(plain)
        return checked

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> CheckResult:
        """Return the result that `to_json` wrote; a malformed value raises KeyError, TypeError or ValueError."""
        return cls(
            target=_typed(value["target"], str),
            policy=_typed(value["policy"], str),
            rules=tuple(_rule_result_from_json(rule) for rule in _typed(value["rules"], list)),
            false_alarm_rate=_number(value["false_alarm_rate"]),
            level=_number(value["level"]),
            baseline=_typed(value["baseline"], str, type(None)),
            notes=tuple(_typed(note, str) for note in _typed(value["notes"], list)),
            examples_used=_typed(value["examples_used"], int, type(None)),
        )

    def save(self, path: str | Path) -> None:
        """Write the result as JSON."""
        write_json(Path(path), self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> CheckResult:
        """Read the result that `save` wrote."""
        value = read_versioned_file(Path(path), "check result", SCHEMA)
        try:
            return cls.from_json(value)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise InputError(f"{path}: a field is missing or malformed ({error_message(error)})") from None


def _without_nan(value: Any) -> Any:
    """Return nested values with None in place of NaN and words in place of infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return float(value) if isinstance(value, float) else value


def _typed(value: Any, *kinds: type) -> Any:
    """Return a value of one of some types; a boolean is not a number."""
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise TypeError(f"expected {' or '.join(kind.__name__ for kind in kinds)}, got {type(value).__name__}")
    return value


def _number(value: Any) -> float:
    """Return a number that `_without_nan` wrote."""
    if value is None:
        return math.nan
    return float(value) if value in ("inf", "-inf") else float(_typed(value, int, float))


def _one_of(value: Any, choices: Iterable[str]) -> Any:
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"expected {' or '.join(choices)}")
    return value


def _rule_result_from_json(value: Any) -> RuleResult:
    optional = {
        name: _typed(value[name], int, type(None)) for name in ("additional_examples", "additional_runs", "examples")
    }
    return RuleResult(
        rule=_rule_from_json(value["rule"]),
        kind=_one_of(value["kind"], ("threshold", "change")),
        group=_typed(value["group"], str),
        interval=_interval_from_json(value["interval"]),
        bound=_number(value["bound"]),
        is_minimum=_typed(value["is_minimum"], bool),
        verdict=_one_of(value["verdict"], EXIT_CODES),
        reason=_typed(value["reason"], str, type(None)),
        how=_typed(value["how"], str),
        level=_number(value["level"]),
        **optional,
    )


def _rule_from_json(value: Any) -> Rule:
    bounds = {name: None if value[name] is None else _number(value[name]) for name in _BOUNDS}
    return Rule(
        metric=_one_of(value["metric"], QUANTITIES),
        greater_is_better=_typed(value["greater_is_better"], bool),
        per=_one_of(value["per"], GROUPS),
        tasks=tuple(_typed(name, str, int) for name in _typed(value["tasks"], list)),
        classes=tuple(_typed(name, str, int) for name in _typed(value["classes"], list)),
        severity=_one_of(value["severity"], SEVERITIES),
        name=_typed(value["name"], str),
        line=_typed(value["line"], int, type(None)),
        **bounds,
    )


def _interval_from_json(value: Any) -> Interval:
    mean, low, high = (_number(value[name]) for name in ("mean", "low", "high"))
    method = _one_of(value["method"], get_args(get_type_hints(Interval)["method"]))
    reason = _typed(value["reason"], str, type(None))
    return Interval(mean, low, high, _typed(value["n"], int), method, reason, _number(value["level"]))
