"""Policies of a release gate: rules on metrics, how they are read, and the verdicts they give."""

from perdure.policies.decisions import Estimate, Question, decide
from perdure.policies.policy import Policy, Rule, make_policy
from perdure.policies.quantities import QUANTITIES, Quantity, quantity
from perdure.policies.reading import read_policy
from perdure.policies.results import CheckResult, RuleResult
from perdure.policies.verdicts import Rating, Thresholds, VerdictSettings, judge

__all__ = [
    "QUANTITIES",
    "CheckResult",
    "Estimate",
    "Policy",
    "Quantity",
    "Question",
    "Rating",
    "Rule",
    "RuleResult",
    "Thresholds",
    "VerdictSettings",
    "decide",
    "judge",
    "make_policy",
    "quantity",
    "read_policy",
]
