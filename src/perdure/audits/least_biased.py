"""The explainer that the comparison of a record recommends."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from perdure.audits.bias.results import FILE, BiasResult, Verdict
from perdure.audits.controls import CONTROLS
from perdure.base.errors import InputError


def least_biased_explainer(record: str | Path) -> Verdict:
    """Return the verdict stored in a record: the explainer to use, and the evidence for it.

    An explainer that is not significantly less biased than both controls raises `InputError`.
    """
    file = Path(record) / FILE
    if not file.exists():
        raise InputError(
            f"{record}: its explainers have not been compared yet. Run `perdure trust bias {record}` first, or pass --method"
        )
    verdict = BiasResult.load(file).verdict
    if verdict is None:
        raise InputError(f"{file}: no explainer could be ranked on this network; pass --method")
    if controls := [name for name in verdict.tied if name in CONTROLS]:
        raise InputError(
            f"{file}: {verdict.least} has the lowest bias, but not significantly lower than the control "
            f"{' and '.join(controls)}. Compare on more examples, or pass --method"
        )
    return verdict


def common_least_biased_explainer(records: Sequence[str | Path]) -> Verdict:
    """Return the verdict that all records share: learners are compared under one explainer."""
    verdicts = {str(record): least_biased_explainer(record) for record in records}
    methods = {verdict.least for verdict in verdicts.values()}
    if len(methods) > 1:
        choices = "; ".join(f"{record}: {verdict.least}" for record, verdict in verdicts.items())
        raise InputError(f"the records recommend different explainers ({choices}); pass one with --method")
    return next(iter(verdicts.values()))
