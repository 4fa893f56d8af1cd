"""Typed JSON: frozen dataclasses become plain values and back, through cattrs.

NaN is written as null and infinity as "inf", because JSON has neither. Fields annotated with `OneBased` are 0-based in Python and
1-based in files.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, get_args, get_origin

from cattrs import Converter

ONE_BASED = "one-based in files"
OneBased = Annotated[int, ONE_BASED]


def make_converter() -> Converter:
    """Return a converter for dataclasses of numbers, strings, tuples and dictionaries."""
    converter = Converter(detailed_validation=False)
    converter.register_unstructure_hook(float, float_to_json)
    converter.register_structure_hook(float, lambda value, _: float_from_json(value))
    converter.register_unstructure_hook_func(is_one_based(int), lambda value: int(value) + 1)
    converter.register_structure_hook_func(is_one_based(int), lambda value, _: int(value) - 1)
    return converter


def float_to_json(value: float) -> float | str | None:
    """Return a number as JSON holds it: null for NaN, a word for infinity."""
    if math.isnan(value):
        return None
    return value if math.isfinite(value) else ("inf" if value > 0 else "-inf")


def float_from_json(value: float | str | None) -> float:
    """Return the number that `float_to_json` wrote."""
    return math.nan if value is None else float(value)


def is_one_based(kind: type) -> Callable[[Any], bool]:
    """Return a predicate for annotations of a type that carry `ONE_BASED`."""

    def matches(annotation: Any) -> bool:
        if get_origin(annotation) is not Annotated:
            return False
        inner, *metadata = get_args(annotation)
        return ONE_BASED in metadata and (inner is kind or get_origin(inner) is kind)

    return matches
