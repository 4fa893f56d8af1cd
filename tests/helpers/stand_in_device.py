"""A stand-in for a GPU: tensors on the device ``meta`` that hold real values and refuse to be mixed with those of the CPU.

There is no accelerator on the machines that run the tests. Within `stand_in_device()`, a tensor that is created on ``meta`` or
moved there computes on the CPU, so results are those of the CPU. As on a GPU, an operation on tensors of two devices raises an
error (except scalars, copies, and indices on the CPU), random numbers cannot be drawn on the device from a generator of the
CPU, and ``numpy()`` needs ``cpu()`` first.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map

DEVICE = torch.device("meta")
_COPIES = ("aten::copy_", "aten::_to_copy")
_INDEXING = ("aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_", "aten::_unsafe_index")


class _DeviceTensor(torch.Tensor):
    """A tensor that says it is on the device; ``inner`` has its values."""

    inner_tensor: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> "_DeviceTensor":
        return torch.Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=DEVICE,
        )

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner_tensor = inner

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"on the device: {self.inner_tensor!r}"

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Convert lists used as indices to tensors of the CPU: PyTorch would put them on ``meta``, without values."""
        if func in (torch.Tensor.__getitem__, torch.Tensor.__setitem__):
            args = (args[0], _index(args[1]), *args[2:])
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _run(func, args, kwargs or {})


class _Mode(TorchDispatchMode):
    """Catches operations that create tensors on the device."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


class _FromLists(TorchFunctionMode):
    """Gives ``torch.tensor(values, device=...)`` its values, which PyTorch does not keep on ``meta``."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in (torch.tensor, torch.as_tensor) and kwargs.get("device") is not None:
            device = kwargs.pop("device")
            return func(*args, **kwargs).to(device)
        return func(*args, **kwargs)


@contextmanager
def stand_in_device() -> Iterator[torch.device]:
    """Make ``meta`` a device that holds real values, and yield it."""
    with _Mode(), _FromLists(), patch.object(torch, "autocast", _autocast), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "for .*: copying from a non-meta parameter")  # here it has an effect
        yield DEVICE


def _autocast(device: str, **options: Any) -> Any:
    """Return ``torch.autocast``, which ``meta`` does not have, for the CPU."""
    return torch.amp.autocast("cpu" if device == "meta" else device, **options)


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    tensors = [value for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)]
    if any(value.device == DEVICE and not isinstance(value, _DeviceTensor) for value in tensors):
        raise NotImplementedError(f"{func}: a tensor on the stand-in device has no values")
    on_device = any(isinstance(value, _DeviceTensor) for value in tensors)
    if func._schema.name == "aten::_has_compatible_shallow_copy_type":
        return False
    target = kwargs.get("device")
    target = None if target is None else torch.device(target)
    name = func._schema.name
    _check_devices(name, tensors)
    goes_to_device = target == DEVICE or (target is None and on_device)
    if name == "aten::copy_":
        goes_to_device = isinstance(args[0], _DeviceTensor)
    if goes_to_device and isinstance(kwargs.get("generator"), torch.Generator):
        raise RuntimeError(f"{name}: expected a generator of the device, got one of the CPU")
    plain_args, plain_kwargs = tree_map(_inner, (args, kwargs))
    if target == DEVICE:
        plain_kwargs["device"] = torch.device("cpu")
    result = func(*plain_args, **plain_kwargs)
    if not goes_to_device:
        return result
    wrapped = tree_map(lambda value: _DeviceTensor(value) if isinstance(value, torch.Tensor) else value, result)
    if name == "aten::_to_copy" or not on_device:
        return wrapped
    return return_and_correct_aliasing(func, args, kwargs, wrapped)


def _index(index: Any) -> Any:
    if isinstance(index, list):
        return torch.tensor(index)
    return tuple(map(_index, index)) if isinstance(index, tuple) else index


def _inner(value: Any) -> Any:
    return value.inner_tensor if isinstance(value, _DeviceTensor) else value


def _check_devices(name: str, tensors: list[torch.Tensor]) -> None:
    """Raise an error where a GPU would: tensors of both devices in one operation."""
    on_device = [value for value in tensors if isinstance(value, _DeviceTensor)]
    on_cpu = [value for value in tensors if not isinstance(value, _DeviceTensor) and value.dim() > 0]
    if not on_device or not on_cpu or name in _COPIES:
        return
    if name in _INDEXING and isinstance(tensors[0], _DeviceTensor):
        integers = (torch.int64, torch.int32, torch.bool, torch.uint8)
        if all(value.dtype in integers for value in on_cpu):
            return
    raise RuntimeError(
        f"{name}: expected all tensors to be on the same device, got tensors of the device and of the CPU"
    )
