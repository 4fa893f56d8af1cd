"""Labelled examples in the forms people have them: arrays, a Dataset or a DataLoader."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.base.errors import InputError
from perdure.explain.adapters.inputs import input_array

LABEL_KEYS = ("labels", "label", "target", "targets", "y")
"""Keys of a dictionary of one example or batch that hold the label, as in Hugging Face datasets."""


def labelled_arrays(examples: Any, name: str = "data") -> tuple[Any, NDArray[Any]]:
    """Return (inputs, labels) of labelled examples as arrays; several inputs as a dictionary or tuple of arrays.

    ``examples``: a pair (inputs, labels); a DataLoader that yields pairs, or dictionaries with a label; or a Dataset of
    them. The examples must have a fixed order, so a DataLoader that shuffles is refused.
    """
    if isinstance(examples, Mapping):
        return _from_mapping(examples, name)
    if isinstance(examples, tuple | list):
        if len(examples) != 2:
            raise InputError(
                f"{name}: expected a pair (inputs, labels), got a {type(examples).__name__} of {len(examples)}"
            )
        return examples[0], _labels(examples[1], name)
    if not isinstance(examples, Iterable) and not (hasattr(examples, "__getitem__") and hasattr(examples, "__len__")):
        raise InputError(
            f"{name}: expected a pair (inputs, labels), a Dataset or a DataLoader, got a {type(examples).__name__}"
        )
    _check_order(examples, name)
    is_loader = hasattr(examples, "batch_size") and hasattr(examples, "dataset")
    rows = examples if isinstance(examples, Iterable) else (examples[index] for index in range(len(examples)))
    if not is_loader and hasattr(examples, "__len__") and hasattr(examples, "__getitem__"):
        rows = (examples[index] for index in range(len(examples)))  # a Dataset whose iteration never ends is legal
    pairs = [_pair(row, name) for row in rows]
    if not pairs:
        raise InputError(f"{name}: the {type(examples).__name__} holds no examples")
    join = _concatenated if is_loader else _stacked
    return join([inputs for inputs, _ in pairs], name), np.asarray(join([labels for _, labels in pairs], name))


def _from_mapping(examples: Mapping[Any, Any], name: str) -> tuple[Any, NDArray[Any]]:
    inputs, labels = _pair(examples, name)
    return inputs, _labels(labels, name)


def _labels(values: Any, name: str) -> NDArray[Any]:
    try:
        return input_array(values, f"{name}: labels")
    except InputError:
        array = np.asarray(values)
        raise InputError(
            f"{name}: labels of type {array.dtype} and shape {array.shape}; expected output units, integers from 0, or numbers "
            "for regression"
        ) from None


def _check_order(examples: Any, name: str) -> None:
    """Refuse a DataLoader that draws its examples in a random order."""
    sampler = getattr(examples, "sampler", None)
    if type(sampler).__name__ in ("RandomSampler", "WeightedRandomSampler", "SubsetRandomSampler"):
        raise InputError(
            f"{name}: the DataLoader shuffles its examples; test examples need a fixed order. Pass shuffle=False"
        )


def _pair(row: Any, name: str) -> tuple[Any, Any]:
    """Return the inputs and the label of one example or batch."""
    if isinstance(row, Mapping):
        key = next((key for key in LABEL_KEYS if key in row), None)
        if key is None:
            raise InputError(
                f"{name}: expected one of the keys {', '.join(LABEL_KEYS)} for the label, got {', '.join(map(str, row))}"
            )
        inputs = {str(other): value for other, value in row.items() if other != key}
        return (next(iter(inputs.values())) if len(inputs) == 1 else inputs), row[key]
    if isinstance(row, Sequence) and not isinstance(row, str) and len(row) >= 2:
        return (row[0] if len(row) == 2 else tuple(row[:-1])), row[-1]
    raise InputError(f"{name}: expected examples (input, label), got a {type(row).__name__}")


def _concatenated(batches: list[Any], name: str) -> Any:
    return _joined(batches, name, np.concatenate)


def _stacked(rows: list[Any], name: str) -> Any:
    return _joined(rows, name, np.stack)


def _joined(parts: list[Any], name: str, join: Any) -> Any:
    """Return the parts of all batches or examples as one array, or as a dictionary or tuple of arrays."""
    first = parts[0]
    if isinstance(first, Mapping):
        return {key: _joined([part[key] for part in parts], f"{name}[{key!r}]", join) for key in first}
    if isinstance(first, tuple):
        return tuple(_joined([part[i] for part in parts], f"{name}[{i}]", join) for i in range(len(first)))
    arrays = [_array(part) for part in parts]
    if any(array.dtype.kind not in "fiub" for array in arrays):
        kind = next(array.dtype for array in arrays if array.dtype.kind not in "fiub")
        raise InputError(
            f"{name}: expected examples of numbers, got type {kind}; convert them in the Dataset (transform)"
        )
    try:
        joined: NDArray[Any] = join(arrays)
    except ValueError:
        shapes = sorted({array.shape for array in arrays})
        raise InputError(
            f"{name}: expected examples of one shape, got {shapes[0]} and {shapes[-1]}; pad or resize them"
        ) from None
    return joined


def _array(value: Any) -> NDArray[Any]:
    """Return a tensor, number or array as an array."""
    if hasattr(value, "detach"):
        tensor = value.detach().cpu()
        value = tensor.float().numpy() if str(tensor.dtype) == "torch.bfloat16" else tensor.numpy()
    return np.asarray(value)
