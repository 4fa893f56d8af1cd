"""JSON forms of audit results: the shared converter with NumPy arrays."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar, get_args, get_origin

import numpy as np
from numpy.typing import NDArray

from perdure.base.serialization import ONE_BASED, float_from_json, float_to_json, is_one_based, make_converter

Result = TypeVar("Result")
OneBasedArray = Annotated[NDArray[np.int64], ONE_BASED]
"""An array of indices that are 0-based in Python and 1-based in files."""


def to_json(result: object) -> dict[str, Any]:
    """Return a result as plain values that JSON can hold."""
    plain: dict[str, Any] = converter.unstructure(result)
    return plain


def from_json(value: Any, kind: type[Result]) -> Result:
    """Return the result that `to_json` wrote; a malformed value raises KeyError, TypeError or ValueError."""
    return converter.structure(value, kind)


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


converter = make_converter()
converter.register_unstructure_hook_func(_is_array, _array_to_json)
converter.register_structure_hook_func(_is_array, _array_from_json)
converter.register_unstructure_hook_func(is_one_based(np.ndarray), lambda array: (array + 1).tolist())
converter.register_structure_hook_func(is_one_based(np.ndarray), lambda value, _: np.array(value, dtype=np.int64) - 1)
