"""The release gate: does a target satisfy a policy? Networks are loaded only if a rule needs them."""

from perdure.comparisons.gate.check import check
from perdure.comparisons.gate.initial import initial_policy, write_initial_policy

__all__ = ["check", "initial_policy", "write_initial_policy"]
