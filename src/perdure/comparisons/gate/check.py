"""`perdure.check`: does a target satisfy a policy?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache as cached
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perdure.audits import ImportOptions, ShapcSettings
from perdure.audits.shapc.values import AUTO
from perdure.base.errors import InputError
from perdure.comparisons.gate.estimates import NoEvidence
from perdure.comparisons.gate.questions import OF_EXAMPLES, Asked, Questions
from perdure.comparisons.gate.reasons import EXPLAINED, ReasonsEvidence
from perdure.comparisons.gate.sides import Side
from perdure.comparisons.gate.targets import Target, check_comparable, check_sources, load_target
from perdure.policies import CheckResult, Estimate, Question, decide
from perdure.policies.decisions import confidence_level
from perdure.policies.policy import NO_RULE
from perdure.policies.reading import PolicySource, as_policy

if TYPE_CHECKING:
    from perdure.comparisons.gate.networks import Networks
    from perdure.runs.networks import NetworkSource

Progress = Callable[[str, int, int], None]
REASONS = ("reasons", "shapc")


def check(
    target: Any,
    policy: PolicySource,
    *,
    baseline: Any = None,
    network: NetworkSource | None = None,
    data: Any = None,
    examples: int | Sequence[int] | None = None,
    until_decided: bool = False,
    explained: int = EXPLAINED,
    settings: ShapcSettings | None = None,
    seed: int = 0,
    importing: ImportOptions | None = None,
    data_dir: Path | None = None,
    device: str = "cpu",
    cache: str | Path | None = None,
    progress: Progress | None = None,
) -> CheckResult:
    """Decide whether a target satisfies a policy: pass, fail or undecided.

    Each rule is decided on an interval. It passes if the whole interval satisfies it, fails if none of it does, and is
    undecided otherwise, or without evidence. All intervals cover at once with probability 1 - false_alarm_rate (Bonferroni).

    Parameters
    ----------
    target
        a record, a folder with several seeds of one learner, results of another framework, an accuracy matrix, a file of
        weights, or a model. Intervals are over runs if there are several, otherwise over test examples.
    policy
        a policy file, a `Policy`, or a mapping with the keys of a policy file
    baseline
        what min_absolute_change, negative_flip_rate and reasons compare with, in the same forms as ``target``
    network, data
        for networks that are not named by their record, see `perdure.compare`
    examples
        test examples per task, for results that do not state it
    until_decided
        examine test examples in random order until every rule on accuracies, flips and reasons is decided, with
        confidence sequences, which are valid under optional stopping
    explained
        test examples that are explained for rules on reasons, per task for SHAPC
    settings
        settings of the explanations
    seed
        of the order of examples and of simulations
    importing
        how results of other frameworks are read
    data_dir
        where data files are
    device
        where networks run
    cache
        a folder for finished maps
    progress
        called with a description, the number of finished parts and the number of all parts

    Examples
    --------
    >>> import perdure
    >>> accuracies = [[0.95, 0.10], [0.93, 0.94]]  # 1,000 test examples per task
    >>> policy = {"rule": [{"metric": "average_accuracy", "threshold": 0.9}]}
    >>> perdure.check(accuracies, policy, examples=1000).verdict
    'pass'
    >>> perdure.check(accuracies, policy, examples=50).verdict  # too few to say
    'undecided'
    >>> policy = {"rule": [{"metric": "forgetting", "threshold": 0.01}]}
    >>> result = perdure.check(accuracies, policy, examples=100_000)
    >>> for rule in result.rules:
    ...     print(rule.title, rule.verdict, round(rule.interval.mean, 2))
    forgetting <= 0.01 fail 0.02
    """
    rules = as_policy(policy)
    if not rules.rules:
        raise InputError(f"{rules.source}: {NO_RULE}")
    new = load_target(target, examples, importing, network is not None)
    old = None if baseline is None else load_target(baseline, examples, importing, network is not None)
    for side in (new, old):
        if side is not None:
            check_sources(side, network, data)
    if old is not None:
        check_comparable(new, old)
    networks = _lazy_networks(new, old, network, data, data_dir, device)
    chosen = settings or ShapcSettings(method=AUTO, seed=seed)
    reasons = ReasonsEvidence(networks, chosen, explained, None if cache is None else Path(cache), progress)
    sides = [None if side is None else Side(side, networks, reasons, seed) for side in (new, old)]
    if sides[0] is None:
        raise InputError("target: expected a record, results, an accuracy matrix or a model, got None")
    if until_decided and not new.is_single:
        raise InputError("until_decided: expected a single run; intervals over several runs do not use examples")
    asked = Questions(sides[0], sides[1], networks, reasons, seed, until_decided).ask(rules)
    level = confidence_level([each.question for each in asked], rules.false_alarm_rate)
    used = None
    if until_decided:
        asked, used = _answered_sequentially(asked, networks, reasons, level, seed)
    return CheckResult(
        target=new.name,
        policy=rules.source,
        rules=tuple(decide(each.question, level) for each in asked),
        false_alarm_rate=rules.false_alarm_rate,
        level=level,
        baseline=None if old is None else old.name,
        notes=_notes(new, used),
        examples_used=used,
    )


def _lazy_networks(
    new: Target, old: Target | None, network: Any, data: Any, data_dir: Path | None, device: str
) -> Callable[[], Networks]:
    """Return a function that loads what networks need on first use: many checks need neither torch nor data."""

    @cached
    def networks() -> Networks:
        from perdure.comparisons.gate.networks import Networks, make_loading  # noqa: PLC0415  (it needs torch)

        return Networks(new, old, make_loading(network, data, data_dir, device))

    return networks


def _answered_sequentially(
    asked: Sequence[Asked],
    networks: Callable[[], Networks],
    reasons: ReasonsEvidence,
    level: float,
    seed: int,
) -> tuple[list[Asked], int]:
    """Return the questions with the estimates of confidence sequences, and the number of examples that were used."""
    from perdure.comparisons.gate.sequential import answer_reasons, answer_sequentially  # noqa: PLC0415  (it needs torch)

    answered = list(asked)
    about_examples = [
        index for index, each in enumerate(asked) if each.question.estimate is not None and each.stream in OF_EXAMPLES
    ]
    used = 0
    if about_examples:
        estimates, used = answer_sequentially([asked[index] for index in about_examples], networks(), level, seed)
        for position, index in enumerate(about_examples):
            answered[index] = _with_estimate(asked[index], estimates.get(position))
    for index, each in enumerate(asked):
        if each.question.estimate is not None and each.stream in REASONS:
            try:
                estimate, explained = answer_reasons(each, reasons, networks(), level, seed)
            except NoEvidence as missing:
                answered[index] = replace(each, question=replace(each.question, estimate=None, reason=str(missing)))
                continue
            answered[index], used = _with_estimate(each, estimate), max(used, explained)
    return answered, used


def _with_estimate(asked: Asked, estimate: Estimate | None) -> Asked:
    question = asked.question
    if estimate is None:
        return replace(
            asked, question=Question(question.rule, question.kind, question.group, reason="no example of it")
        )
    return replace(asked, question=replace(question, estimate=lambda _level: estimate))


def _notes(target: Target, used: int | None) -> tuple[str, ...]:
    if not target.is_single:
        return (f"Intervals are over {len(target.runs)} runs; they cover retraining.",)
    notes = ["Intervals cover the choice of test examples, not retraining (a single run)."]
    if used is not None:
        notes.append(f"{used} test examples were examined, until every rule was decided or the test set was used up.")
    return tuple(notes)
