"""From a policy to questions: one decision for each rule, group and bound, with the evidence that answers it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from perdure.base.errors import InputError, error_suggestion
from perdure.comparisons.gate.estimates import (
    Estimator,
    NoEvidence,
    calibration_change_estimate,
    count_estimate,
    difference_estimate,
    paired_average_estimate,
    paired_estimate,
    paired_runs_estimate,
)
from perdure.comparisons.gate.sides import Group, Side, require_networks
from perdure.policies import Estimate, Policy, Question, Rule

if TYPE_CHECKING:
    from perdure.comparisons.gate.networks import Networks
    from perdure.comparisons.gate.reasons import ReasonsEvidence

NO_BASELINE = "no baseline was given (--baseline)"
PAIRED = ("accuracy", "average_accuracy", "expected_calibration_error")
"""Quantities of single examples, whose changes are paired on the same examples."""
StreamKind = Literal["accuracy", "average", "change", "average_change", "flips", "reasons", "shapc"]
COMPARES: tuple[StreamKind, ...] = ("change", "average_change", "flips")
OF_EXAMPLES: tuple[StreamKind, ...] = ("accuracy", "average", *COMPARES)
"""Streams of predictions for single examples; the others are of explanations."""


@dataclass(frozen=True)
class Asked:
    """A question, and which stream of examples answers it in a sequential check; None if it is not of examples."""

    question: Question
    group: Group
    stream: StreamKind | None = None


class Questions:
    """Asks the rules of a policy about a target and, if given, a baseline."""

    def __init__(
        self,
        new: Side,
        old: Side | None,
        networks: Callable[[], Networks],
        reasons: ReasonsEvidence,
        seed: int,
        sequential: bool = False,
    ) -> None:
        self.new, self.old, self.networks, self.reasons, self.seed = new, old, networks, reasons, seed
        self.sequential = sequential
        """Whether questions about single examples are answered one batch after the other, by somebody else."""

    def ask(self, policy: Policy) -> list[Asked]:
        """Return all questions of a policy in the order of its rules."""
        return [asked for rule in policy.rules for asked in self._ask(rule, policy.source)]

    def _ask(self, rule: Rule, source: str) -> list[Asked]:
        kinds: list[Literal["threshold", "change"]] = []
        if rule.threshold is not None:
            kinds.append("threshold")
        if rule.min_absolute_change is not None:
            kinds.append("change")
        place = source if rule.line is None else f"{source}, line {rule.line}"
        try:
            groups = self._groups(rule, place)
        except NoEvidence as missing:
            return [Asked(Question(rule, kind, reason=str(missing)), Group()) for kind in kinds]
        return [self._asked(rule, kind, group) for kind in kinds for group in groups]

    def _asked(self, rule: Rule, kind: Literal["threshold", "change"], group: Group) -> Asked:
        stream = _stream(rule, kind)
        try:
            if self.sequential and stream in OF_EXAMPLES:
                estimator = self._answered_later(stream)
            else:
                estimator = self._estimator(rule, kind, group)
        except NoEvidence as missing:
            return Asked(Question(rule, kind, group.label, reason=str(missing)), group)
        exact = rule.quantity.is_cost and kind == "threshold" and self.new.target.is_single
        return Asked(Question(rule, kind, group.label, estimator, exact=exact), group, stream)

    def _answered_later(self, stream: StreamKind | None) -> Estimator:
        """Check that a question can be answered from networks, without using any example."""
        if stream in COMPARES and self.old is None:
            raise NoEvidence(NO_BASELINE)
        networks = self.networks()
        _ = networks.pair if stream in COMPARES else networks.version(self.new.target)

        def estimate(_level: float) -> Estimate:
            raise AssertionError("the sequential check replaces this estimate before it is used")

        return estimate

    def _groups(self, rule: Rule, place: str) -> list[Group]:
        """Return the groups of a rule; an unknown name in its list raises `InputError`."""
        if rule.per == "overall":
            return [Group()]
        if rule.per == "task":
            names = self._task_names()
            chosen = _chosen(rule.tasks, names, f"{place}: tasks")
            return [Group(f"task {names[task]}", task=task) for task in chosen]
        names = self._class_names()
        chosen = _chosen(rule.classes, names, f"{place}: classes")
        return [Group(f"class {names[unit]}", unit=unit) for unit in chosen]

    def _task_names(self) -> dict[int, str]:
        target = self.new.target
        if target.runs:
            return {task: target.task_names[task] for task in target.learned}
        from perdure.comparisons.gate.networks import version_task_names  # noqa: PLC0415  (it needs torch)

        return version_task_names(self._version())

    def _class_names(self) -> dict[int, str]:
        require_networks(self.new.target)
        from perdure.comparisons.gate.networks import class_names  # noqa: PLC0415  (it needs torch)

        return class_names(self._version())

    def _version(self) -> Any:
        try:
            return self.networks().version(self.new.target)
        except InputError as error:
            raise NoEvidence(f"the classes of the examples are unknown: {error}") from None

    def _estimator(self, rule: Rule, kind: str, group: Group) -> Estimator:
        if (kind == "change" or rule.quantity.compares) and self.old is None:
            raise NoEvidence(NO_BASELINE)
        if rule.metric == "negative_flip_rate":
            return self._flips(group)
        if rule.metric == "reasons":
            return self.reasons.reasons_estimator()
        if kind == "threshold":
            return self.new.estimator(rule.metric, group)
        return self._change(rule.metric, group)

    @cached_property
    def _correct(self) -> tuple[Any, Any]:
        """The predictions of baseline and target for the same examples; the data must be the same."""
        if self.old is None:
            raise NoEvidence(NO_BASELINE)
        require_networks(self.new.target, self.old.target)
        from perdure.comparisons.gate.networks import predict  # noqa: PLC0415  (it needs torch)

        networks = self.networks()
        for side in (self.new, self.old):
            try:
                networks.version(side.target)
            except InputError as error:
                raise NoEvidence(f"the predictions for single examples are unknown: {error}") from None
        if not (self.new.target.is_single and self.old.target.is_single):
            raise NoEvidence("it needs one run of the target and one of the baseline")
        old, new, tasks = networks.pair
        return predict(old, tasks), predict(new, tasks)

    def _flips(self, group: Group) -> Estimator:
        before, after = self._correct
        mask = _mask(group, before)
        flips = before.correct[mask] & ~after.correct[mask]
        if not len(flips):
            raise NoEvidence("there are no test examples of it")
        return count_estimate(int(flips.sum()), len(flips))

    def _change(self, metric: str, group: Group) -> Estimator:
        """Return the change of a metric: paired on examples or seeds if possible."""
        old = self.old
        if old is None:
            raise NoEvidence(NO_BASELINE)
        if not self.new.target.is_single and not old.target.is_single:
            return self._change_over_runs(metric, group, old)
        why = "these numbers are not of single examples"
        if metric in PAIRED:
            try:
                return self._paired(metric, group)
            except NoEvidence as missing:
                why = str(missing)
        return difference_estimate(self.new.estimator(metric, group), old.estimator(metric, group), why)

    def _change_over_runs(self, metric: str, group: Group, old: Side) -> Estimator:
        after, before = (
            dict(zip(side.target.seeds, side.run_values(metric, group), strict=True)) for side in (self.new, old)
        )
        if None not in after and after.keys() == before.keys():
            return paired_runs_estimate([after[seed] for seed in after], [before[seed] for seed in after])
        return difference_estimate(
            self.new.estimator(metric, group), old.estimator(metric, group), "the runs have different seeds"
        )

    def _paired(self, metric: str, group: Group) -> Estimator:
        before, after = self._correct
        if metric == "expected_calibration_error":
            return calibration_change_estimate(
                (after.confidence, after.correct), (before.confidence, before.correct), self.seed
            )
        if metric == "average_accuracy":
            return paired_average_estimate(before.correct, after.correct, before.tasks)
        mask = _mask(group, before)
        if not mask.any():
            raise NoEvidence("there are no test examples of it")
        return paired_estimate(before.correct[mask], after.correct[mask])


def _stream(rule: Rule, kind: str) -> StreamKind | None:
    """Return which examples answer a question one after the other."""
    if rule.metric in ("accuracy", "average_accuracy"):
        names: dict[tuple[str, str], StreamKind] = {
            ("accuracy", "threshold"): "accuracy",
            ("accuracy", "change"): "change",
            ("average_accuracy", "threshold"): "average",
            ("average_accuracy", "change"): "average_change",
        }
        return names[rule.metric, kind]
    others: dict[str, StreamKind] = {
        "negative_flip_rate": "flips",
        "reasons": "reasons",
        "shapc_calibrated": "shapc",
    }
    return others.get(rule.metric) if kind == "threshold" else None


def _mask(group: Group, predictions: Any) -> Any:
    if group.unit is not None:
        return predictions.labels == group.unit
    if group.task is not None:
        return predictions.tasks == group.task
    return np.ones(len(predictions.labels), dtype=bool)


def _chosen(wanted: Sequence[str | int], names: dict[int, str], place: str) -> list[int]:
    """Return the indices of names or 1-based numbers; all of them for an empty list."""
    if not wanted:
        return list(names)
    indices = {name: index for index, name in names.items()}
    chosen = []
    for name in wanted:
        if isinstance(name, int):
            index = name - 1
        elif name in indices:
            index = indices[name]
        else:
            raise InputError(f"{place}: unknown name {name[:80]!r}, {error_suggestion(name[:80], list(indices))}")
        if index not in names:
            raise InputError(f"{place}: expected a number from 1 to {max(names) + 1}, got {name}")
        chosen.append(index)
    return list(dict.fromkeys(chosen))
