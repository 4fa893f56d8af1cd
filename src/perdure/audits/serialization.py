"""JSON forms of audit results: frozen dataclasses become plain values and back, through cattrs.

NaN is written as null and infinity as "inf", because JSON has neither. Fields annotated with `OneBased` or `OneBasedArray` are
0-based in Python and 1-based in files.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
from cattrs import Converter
from cattrs.errors import CattrsError
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn
from numpy.typing import NDArray

Result = TypeVar("Result")
ONE_BASED = "one-based in files"
OneBased = Annotated[int, ONE_BASED]
OneBasedArray = Annotated[NDArray[np.int64], ONE_BASED]


def to_json(result: object) -> dict[str, Any]:
    """Return a result as plain values that JSON can hold."""
    plain: dict[str, Any] = converter.unstructure(result)
    return plain


def from_json(value: Any, kind: type[Result]) -> Result:
    """Return the result that `to_json` wrote; a malformed value raises KeyError, TypeError or ValueError."""
    try:
        return converter.structure(value, kind)
    except CattrsError as error:
        raise ValueError(str(error)) from None


def float_to_json(value: float) -> float | str | None:
    """Return a number as JSON holds it: null for NaN, a word for infinity."""
    if math.isnan(value):
        return None
    return value if math.isfinite(value) else ("inf" if value > 0 else "-inf")


def float_from_json(value: float | str | None) -> float:
    """Return the number that `float_to_json` wrote."""
    return math.nan if value is None else float(value)


def _make_converter() -> Converter:
    converter = Converter(detailed_validation=False)
    converter.register_unstructure_hook_factory(
        is_dataclass, lambda cls: make_dict_unstructure_fn(_with_resolved_types(cls), converter)
    )
    converter.register_structure_hook_factory(
        is_dataclass, lambda cls: make_dict_structure_fn(_with_resolved_types(cls), converter)
    )
    converter.register_structure_hook_func(lambda kind: kind is object, lambda value, _: value)
    converter.register_unstructure_hook(float, float_to_json)
    converter.register_structure_hook(float, lambda value, _: float_from_json(value))
    converter.register_unstructure_hook_func(_is_array, _array_to_json)
    converter.register_structure_hook_func(_is_array, _array_from_json)
    converter.register_unstructure_hook_func(_is_one_based(int), lambda index: int(index) + 1)
    converter.register_structure_hook_func(_is_one_based(int), lambda value, _: int(value) - 1)
    converter.register_unstructure_hook_func(_is_one_based(np.ndarray), lambda array: (array + 1).tolist())
    converter.register_structure_hook_func(
        _is_one_based(np.ndarray), lambda value, _: np.array(value, dtype=np.int64) - 1
    )
    return converter


def _with_resolved_types(cls: type[Any]) -> type[Any]:
    """Resolve the annotations of a dataclass; cattrs alone would drop the metadata of postponed annotations."""
    types = get_type_hints(cls, include_extras=True)
    for field in fields(cls):
        field.type = types[field.name]
    return cls


def _is_one_based(kind: type) -> Callable[[Any], bool]:
    """Return a predicate for annotations of a type that carry `ONE_BASED`."""

    def matches(annotation: Any) -> bool:
        if get_origin(annotation) is not Annotated:
            return False
        inner, *metadata = get_args(annotation)
        return ONE_BASED in metadata and (inner is kind or get_origin(inner) is kind)

    return matches


def _is_array(annotation: Any) -> bool:
    return get_origin(annotation) is np.ndarray


def _array_to_json(array: NDArray[Any]) -> Any:
    values = array.tolist()
    return _floats_to_json(values) if array.dtype.kind == "f" else values


def _floats_to_json(values: Any) -> Any:
    return [_floats_to_json(value) for value in values] if isinstance(values, list) else float_to_json(values)


def _array_from_json(value: Any, annotation: Any) -> NDArray[Any]:
    (dtype,) = get_args(get_args(annotation)[1])
    if np.dtype(dtype).kind == "f":
        value = _floats_from_json(value)
    return np.array(value, dtype=dtype)


def _floats_from_json(values: Any) -> Any:
    return [_floats_from_json(value) for value in values] if isinstance(values, list) else float_from_json(values)


converter = _make_converter()
