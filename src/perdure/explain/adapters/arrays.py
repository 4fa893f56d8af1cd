"""A user's arrays as tensors and back, and the outputs and targets of a network."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from perdure.base.errors import InputError, error_message

_ERRORS = (RuntimeError, TypeError, ValueError, IndexError, AssertionError)
SEVERAL_INPUTS = "pass several inputs as a tuple (positional arguments) or a dictionary (keyword arguments) of arrays"
TOKENS = "describe them: perdure.adapt(model, perdure.explain.Tokens(mask=...)), with the id of a mask or padding token"


@contextmanager
def rejected_input(model: nn.Module, x: Tensor) -> Iterator[None]:
    """Raise an error of the network's forward pass on ``x`` as an `InputError` with the probable cause."""
    try:
        yield
    except InputError:
        raise
    except _ERRORS as error:
        raise InputError(_explanation(model, x, error)) from error


def _explanation(model: nn.Module, x: Tensor, error: Exception) -> str:
    reason = error_message(error, 150)
    required = _required_inputs(model)
    if len(required) > 1:
        return f"the network takes {len(required)} inputs ({', '.join(required)}); {SEVERAL_INPUTS}"
    if "indices" in reason and "Long" in reason:
        return f"the network takes token ids (integers), which have no gradient and no mean; {TOKENS}"
    if any(word in reason for word in ("dtype", "scalar type", "Half", "BFloat16")):
        return (
            f"the network does not run in {str(x.dtype).removeprefix('torch.')} ({reason}); remove casts to a fixed "
            "floating-point type from its forward method"
        )
    return (
        f"the network does not accept inputs of shape {tuple(x.shape[1:])} ({reason}); "
        "pass x as the network takes it, with the shape of its training inputs"
    )


def _required_inputs(model: nn.Module) -> list[str]:
    """Return the names of the arguments that the network's forward method cannot do without."""
    try:
        parameters = inspect.signature(model.forward).parameters.values()
    except (TypeError, ValueError):
        return []
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [entry.name for entry in parameters if entry.kind in positional and entry.default is entry.empty]


BATCH_ROWS = 1024
BATCH_ELEMENTS = 400_000  # 130 rows of 3 x 32 x 32; larger batches exceed the CPU caches and are slower


def as_batch_array(values: Any, name: str, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return a detached copy of a batch of examples as a tensor. NaN and infinite values raise `InputError`."""
    check_one_array(values, name)
    try:
        tensor = values if isinstance(values, Tensor) else torch.from_numpy(np.array(values))
    except (TypeError, ValueError) as error:
        raise InputError(f"{name}: expected an array of numbers, got {type(values).__name__} ({error})") from None
    if tensor.is_complex() or tensor.dim() < 2 or tensor.numel() == 0:
        raise InputError(
            f"{name}: expected real numbers with a batch dimension first, (n, channels, height, width), "
            f"(n, channels, length) or (n, features), got shape {tuple(tensor.shape)}"
        )
    batch = tensor.detach().to(device=device, dtype=dtype, copy=True)
    invalid = ~torch.isfinite(batch.flatten(1)).all(dim=1)
    if invalid.any():
        raise InputError(f"{name}: example {int(invalid.nonzero()[0])} contains NaN or infinity; correct or remove it")
    return batch


def check_one_array(values: Any, name: str) -> None:
    """Refuse the inputs of a network with several arguments: a dictionary, or arrays of different shapes."""
    sequence = isinstance(values, list | tuple) and all(hasattr(value, "shape") for value in values)
    if isinstance(values, dict) or (sequence and len({tuple(value.shape) for value in values}) > 1):
        raise InputError(
            f"{name}: expected one array, got a {type(values).__name__} of {len(values)}; {SEVERAL_INPUTS}"
        )


def convert_like(values: Tensor, template: Any) -> Tensor | NDArray[Any]:
    """Return ``values`` in the form of ``template``: a tensor with its device and floating-point type, or a numpy array.

    Values that a half-precision template cannot hold raise `InputError`.
    """
    if not isinstance(template, Tensor):
        array: NDArray[Any] = values.detach().cpu().numpy()
        return array
    dtype = template.dtype if template.is_floating_point() else values.dtype
    converted = values.detach().to(device=template.device, dtype=dtype)
    if dtype in (torch.float16, torch.bfloat16):
        _check_range(values.detach(), dtype)
    return converted


def _check_range(values: Tensor, dtype: torch.dtype) -> None:
    """Refuse rows whose largest magnitude a type cannot represent, or only with less than its full precision."""
    limits = torch.finfo(dtype)
    largest = values.flatten(1).abs().nan_to_num(0.0).amax(dim=1)
    outside = (largest > limits.max) | ((largest < limits.smallest_normal) & (largest > 0))
    if outside.any():
        index = int(outside.nonzero()[0])
        raise InputError(
            f"example {index}: the map's largest value, {float(largest[index]):.2g}, is outside the range of "
            f"{str(dtype).removeprefix('torch.')}; pass x as float32"
        )


def array_batch_size(batch_size: int | None, shape: torch.Size | tuple[int, ...]) -> int:
    """Return the number of rows per forward pass: ``batch_size``, or a default for examples of this shape."""
    if batch_size is None:
        elements = max(1, int(np.prod(shape)))
        return max(1, min(BATCH_ROWS, BATCH_ELEMENTS // elements))
    if isinstance(batch_size, bool) or not isinstance(batch_size, int | np.integer) or batch_size < 1:
        raise InputError(f"batch_size: expected a positive integer or None, got {batch_size!r}")
    return int(batch_size)


def check_finite_array(values: Tensor, first_example: int, what: str) -> None:
    """Raise `InputError` for NaN and infinite values. Each row belongs to one example, the first to ``first_example``."""
    invalid = ~torch.isfinite(values.flatten(1) if values.dim() > 1 else values[:, None]).all(dim=1)
    if invalid.any():
        index = int(invalid.nonzero()[0])
        raise InputError(
            f"example {first_example + index}: {what} is NaN or infinite; check the network's weights and input"
        )


def targets_as_array(target: Any, scores: Tensor) -> Tensor:
    """Return one output index per example. ``target`` is one index for all, one per example, or ``"predicted"``."""
    count, classes = scores.shape
    if isinstance(target, str):
        if target != "predicted":
            raise InputError(f"target: expected 'predicted', an output index or one index per example, got {target!r}")
        return scores.argmax(dim=1)
    indices = np.asarray(target.detach().cpu() if isinstance(target, Tensor) else target)
    if indices.dtype == bool or not (np.issubdtype(indices.dtype, np.integer) or _are_integers(indices)):
        raise InputError(f"target: expected output indices (integers) or 'predicted', got {target!r}")
    if indices.size == 1 and indices.ndim <= 1:
        indices = np.full(count, indices.reshape(-1)[0])
    if indices.shape != (count,):
        raise InputError(
            f"target: expected one index, or one for each of the {count} examples, got an array of shape {indices.shape}"
        )
    indices = indices.astype(np.int64)
    outside = np.flatnonzero((indices < 0) | (indices >= classes))
    if len(outside):
        first = int(outside[0])
        raise InputError(
            f"target: example {first}: expected an output index from 0 to {classes - 1}, got {indices[first]}"
        )
    return torch.from_numpy(indices).to(scores.device)


def _are_integers(values: np.ndarray[Any, Any]) -> bool:
    return bool(np.issubdtype(values.dtype, np.floating) and np.all(values == np.floor(values)))
