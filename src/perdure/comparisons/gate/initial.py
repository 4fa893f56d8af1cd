"""A first policy from a record that a user is satisfied with."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.audits import ImportOptions, ShapcSettings
from perdure.base.errors import InputError
from perdure.base.files import write_atomically
from perdure.comparisons.gate.estimates import Estimator, NoEvidence
from perdure.comparisons.gate.reasons import ReasonsEvidence
from perdure.comparisons.gate.sides import Group, Side
from perdure.comparisons.gate.targets import load_target
from perdure.metrics import Interval
from perdure.policies.policy import FALSE_ALARM_RATE, SCHEMA
from perdure.policies.quantities import QUANTITIES

METRICS = ("average_accuracy", "forgetting")
"""Metrics of the first rules; one that a record does not have is left out."""
MOST_TASKS = 50
"""Rules for single tasks; more tasks get one rule for all of them."""


@dataclass(frozen=True)
class _Draft:
    """A rule to be written: its metric, its group, and the interval of the record."""

    metric: str
    group: Group
    estimator: Estimator


def initial_policy(
    record: Any, *, examples: int | Sequence[int] | None = None, importing: ImportOptions | None = None, seed: int = 0
) -> str:
    """Return a policy file with comments that a record, or other results, satisfy.

    The thresholds are the ends of the intervals that `perdure.check` computes for the record, rounded outwards: a similar run
    satisfies them, too, and a run that is worse by more than the choice of test examples explains does not.
    """
    target = load_target(record, examples, importing)
    if not target.runs:
        raise InputError(f"{target.name}: expected a record or results with accuracies after each step")
    side = Side(target, _no_networks, ReasonsEvidence(_no_networks, ShapcSettings()), seed)
    groups = [Group(target.task_names[task], task=task) for task in target.learned]
    wanted = [(metric, Group()) for metric in METRICS]
    wanted += [("accuracy", group) for group in groups] if len(groups) <= MOST_TASKS else [("accuracy", Group())]
    drafts, reasons = [], []
    for metric, group in wanted:
        try:
            drafts.append(_Draft(metric, group, side.estimator(metric, group)))
        except NoEvidence as missing:
            reasons.append(f"{metric}: {missing}")
    if not drafts:
        raise InputError(f"{target.name}: no rule can be written: {reasons[0]}")
    level = 1 - FALSE_ALARM_RATE / len(drafts)
    rules = [_rule(draft, draft.estimator(level).interval) for draft in drafts]
    head = _HEAD.format(target=_comment(target.name), schema=SCHEMA, rate=FALSE_ALARM_RATE, level=100 * level)
    return head + "\n".join(rule for rule in rules if rule) + _TAIL


def write_initial_policy(path: str | Path, text: str) -> Path:
    """Write a policy to a new file; an existing file raises `InputError`."""
    file = Path(path)
    if file.exists() or file.is_symlink():
        raise InputError(f"{file}: the file exists; delete it, or choose another file with --policy")
    write_atomically(file, text.encode())
    return file


def _no_networks() -> Any:
    raise NoEvidence("a first policy has rules on accuracies only")


def _rule(draft: _Draft, interval: Interval) -> str:
    """Return a rule in TOML; empty if the record has no interval."""
    if math.isnan(interval.low) or math.isnan(interval.high):
        return ""
    about = QUANTITIES[draft.metric]
    threshold = _rounded(interval.low, math.floor) if about.higher_is_better else _rounded(interval.high, math.ceil)
    threshold = min(max(threshold, about.bounds[0]), about.bounds[1])
    better = "at least" if about.higher_is_better else "at most"
    lines = [f"# {about.label}: {interval.mean:.3f} now, {better} {threshold:g} from now on", "[[rule]]"]
    lines.append(f'metric = "{draft.metric}"')
    if draft.group.task is not None:
        lines += ['per = "task"', f"tasks = [{_quoted(draft.group.label)}]"]
    return "\n".join([*lines, f"threshold = {threshold:g}", ""])


def _rounded(value: float, rounding: Callable[[float], int]) -> float:
    return rounding(value * 1000) / 1000


def _quoted(name: str) -> str:
    """Return a string of TOML; it is written as in JSON, except for the character DEL."""
    return json.dumps(name, ensure_ascii=False).replace("\x7f", "\\u007f")


def _comment(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)


_HEAD = """\
# Policy of a release gate, written by perdure check --init from {target}.
# perdure check TARGET --policy policy.toml exits with 0 (pass), 1 (fail) or 2 (undecided).
# The thresholds are the ends of {level:.4g} % intervals of that record. Edit them: they should say what you need.
schema = {schema}
false_alarm_rate = {rate}  # probability of any wrong decision, over all rules together

"""
_TAIL = """
# Further rules, relative to a baseline (perdure check TARGET --policy policy.toml --baseline OLD):
#
# [[rule]]
# metric = "accuracy"
# min_absolute_change = -0.02  # at most 0.02 worse than the baseline
#
# [[rule]]
# metric = "negative_flip_rate"  # share of examples that the baseline gets right and the target does not
# threshold = 0.05
# severity = "warning"
"""
