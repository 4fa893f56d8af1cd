"""The glossary of the report: what each number means, how it was computed and what it must not be used for."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from types import MappingProxyType

from perdure.audits import METRICS
from perdure.base.errors import InputError, error_suggestion
from perdure.report.glossary import comparisons, performance, reasons, trust, variants
from perdure.report.glossary.abbreviations import ABBREVIATIONS
from perdure.report.glossary.terms import OVER_RUNS, Term

__all__ = ["ABBREVIATIONS", "GLOSSARY", "Term", "term"]

_PARTS = (performance, variants, reasons, trust, comparisons)
GLOSSARY: Mapping[str, Term] = MappingProxyType({entry.key: entry for part in _PARTS for entry in part.TERMS})
"""All entries by key."""


def term(key: str) -> Term:
    """Return the entry of a number; a metric of another package has one made from its registration and its docstring."""
    if key in GLOSSARY:
        return GLOSSARY[key]
    if key not in METRICS:
        raise InputError(f"term: unknown name {key[:80]!r}, {error_suggestion(key[:80], [*GLOSSARY, *METRICS])}")
    metric = METRICS.get(key)
    module = getattr(metric.function, "__module__", None) or "an unknown module"
    described = _first_paragraph(metric.function) or "Its package does not describe how it is computed."
    return Term(
        key=key,
        name=metric.label,
        meaning=f"{_sentence(metric.meaning)} {_range_and_direction(metric.bounds, metric.higher_is_better)}",
        computed=f"{described} {OVER_RUNS}",
        not_for=f"This metric comes from another package ({module}), and its limits are not described here. Do not base a "
        "decision on it before you have read that package's documentation.",
        short=metric.label,
        source=module,
    )


def _range_and_direction(bounds: tuple[float, float], higher_is_better: bool) -> str:
    direction = "higher is better" if higher_is_better else "lower is better"
    low, high = bounds
    if math.isfinite(low) and math.isfinite(high):
        return f"From {low:g} to {high:g}, {direction}."
    if math.isfinite(low):
        return f"At least {low:g}, {direction}."
    if math.isfinite(high):
        return f"At most {high:g}, {direction}."
    return f"{direction.capitalize()}; there is no fixed range."


def _first_paragraph(function: object) -> str:
    """Return the first paragraph of a docstring as one line without markup."""
    paragraph = (inspect.getdoc(function) or "").partition("\n\n")[0]
    return _sentence(" ".join(paragraph.replace("`", "").split()))


def _sentence(text: str) -> str:
    """Return a text with a capital letter at the start and a period at the end."""
    stripped = text.strip().rstrip(".")
    return f"{stripped[:1].upper()}{stripped[1:]}." if stripped else ""
