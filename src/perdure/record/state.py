"""A tree of tensors and plain values in one safetensors file: what a killed run needs to go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from perdure.base.errors import InputError
from perdure.base.files import write_atomically

if TYPE_CHECKING:
    from torch import Tensor

STATE = "state/progress.safetensors"
_TENSOR = "@tensor"
_PAIRS = "@pairs"


def save_state(path: Path, tree: Any) -> None:
    """Write nested dicts, lists and tuples of tensors, numbers, strings and None, atomically."""
    from safetensors.torch import save  # noqa: PLC0415  (it imports torch)

    tensors: dict[str, Tensor] = {}
    skeleton = json.dumps(_take_out(tree, tensors, "state"))
    write_atomically(path, save(tensors, metadata={"tree": skeleton}))


def load_state(path: Path) -> Any:
    """Return the tree that `save_state` wrote; tuples come back as lists."""
    try:
        with safe_open(path, framework="pt") as file:
            skeleton = json.loads(file.metadata()["tree"])
            return _put_back(skeleton, file.get_tensor)
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: the saved state cannot be read ({error}); remove the record and run again") from None


def _take_out(value: Any, tensors: dict[str, Tensor], where: str) -> Any:
    if hasattr(value, "detach"):
        name = str(len(tensors))
        tensors[name] = value.detach().cpu().contiguous().clone()
        return {_TENSOR: name}
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            return {key: _take_out(item, tensors, f"{where}.{key}") for key, item in value.items()}
        return {_PAIRS: [[key, _take_out(item, tensors, f"{where}.{key}")] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return [_take_out(item, tensors, f"{where}[{i}]") for i, item in enumerate(value)]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{where} is a {type(value).__name__}; only tensors and plain values can be saved")


def _put_back(value: Any, tensor: Any) -> Any:
    if isinstance(value, list):
        return [_put_back(item, tensor) for item in value]
    if not isinstance(value, dict):
        return value
    if _TENSOR in value:
        return tensor(value[_TENSOR])
    if _PAIRS in value:
        return {key: _put_back(item, tensor) for key, item in value[_PAIRS]}
    return {key: _put_back(item, tensor) for key, item in value.items()}
