"""Release decisions for the learners of an audit: the rules of a policy, or the comparison with a baseline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from perdure.audits import Audit, ImportOptions, LearnerAudit
from perdure.base.errors import InputError
from perdure.comparisons.gate.check import check
from perdure.comparisons.results import Comparison
from perdure.metrics.prediction_tests import FEWEST_REFERENCES
from perdure.policies import CheckResult, Policy
from perdure.record import find_records

if TYPE_CHECKING:
    from perdure.comparisons.maps import Progress

ReleaseVerdict = Literal["pass", "fail", "unchanged", "changed", "undecided"]


@dataclass(frozen=True)
class ReleaseDecision:
    """The decision on one learner: of a policy (pass, fail, undecided) or of a comparison (unchanged, changed, undecided)."""

    verdict: ReleaseVerdict
    sentence: str
    details: tuple[str, ...] = ()
    source: str = ""
    """The policy file, or the baseline."""


def release_decisions(
    audit: Audit,
    policy: Policy | None,
    baseline: str | Path | None,
    *,
    importing: ImportOptions | None = None,
    data_dir: Path | None = None,
    device: str = "cpu",
    progress: Progress | None = None,
) -> dict[int, ReleaseDecision]:
    """Return the decision on each learner, by its position in the audit; empty without rules and baseline.

    With rules, `perdure.check` decides on the runs of each learner. Without rules, `perdure.compare` compares the first run of
    each learner with the first run of the baseline; the baseline's other runs are the references, if there are enough. A
    learner that cannot be decided on is undecided with the reason.
    """
    entries = [(index, entry) for index, entry in enumerate(audit.learners) if not entry.is_reference]
    if policy is not None and policy.rules:
        rules = policy

        def decide_rules(entry: LearnerAudit) -> ReleaseDecision:
            result = check(
                list(entry.runs),
                rules,
                baseline=baseline,
                importing=importing,
                data_dir=data_dir,
                device=device,
                progress=progress,
            )
            return _of_check(result)

        return {index: _decided(decide_rules, entry, rules.source) for index, entry in entries}
    if baseline is None:
        return {}
    old, references = _baseline_runs(Path(baseline))

    def decide_change(entry: LearnerAudit) -> ReleaseDecision:
        from perdure.comparisons.comparison import compare  # noqa: PLC0415  (it needs torch)

        result = compare(
            old, entry.runs[0], reference=references or None, data_dir=data_dir, device=device, progress=progress
        )
        return _of_comparison(result, str(baseline))

    return {index: _decided(decide_change, entry, str(baseline)) for index, entry in entries}


def _decided(decide: Callable[[LearnerAudit], ReleaseDecision], entry: LearnerAudit, source: str) -> ReleaseDecision:
    missing = [run for run in entry.runs if not Path(run).exists()]
    if missing:
        return ReleaseDecision("undecided", f"Undecided: {missing[0]} was not found.", source=source)
    try:
        return decide(entry)
    except InputError as error:
        return ReleaseDecision("undecided", f"Undecided: {error}", source=source)


def _baseline_runs(baseline: Path) -> tuple[Path, Sequence[Path]]:
    """Return the record to compare with, and its references if there are enough."""
    records = find_records([baseline])
    others = records[1:]
    return records[0], others if len(others) >= FEWEST_REFERENCES else ()


def _of_check(result: CheckResult) -> ReleaseDecision:
    order = {"fail": 0, "undecided": 1, "pass": 2}
    rules = sorted(result.rules, key=lambda rule: order[rule.verdict])
    return ReleaseDecision(
        result.verdict, result.sentence, (*(str(rule) for rule in rules), result.rate_sentence), result.policy
    )


def _of_comparison(result: Comparison, baseline: str) -> ReleaseDecision:
    details = tuple(f"{label}: {value}" for label, value in result.rows())
    return ReleaseDecision(result.verdict, f"{result.verdict.capitalize()}: {result.because}", details, baseline)
