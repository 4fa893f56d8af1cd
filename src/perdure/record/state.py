"""The state of an unfinished run: nested tensors and plain values in one safetensors file."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from perdure.base.errors import InputError, error_message
from perdure.base.files import DIGESTS, check_digest, write_with_digest

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

STATE = "state/progress.safetensors"
_TENSOR = "@tensor"
_PAIRS = "@pairs"


def save_state(path: Path, tree: Any) -> None:
    """Write nested dictionaries, lists and tuples of tensors, numbers, strings and None, atomically."""
    from safetensors.torch import save  # noqa: PLC0415  (it imports torch)

    tensors: dict[str, Tensor] = {}
    skeleton = json.dumps(_replace_tensors(tree, tensors, "state"))
    write_with_digest(path, save(tensors, metadata={"tree": skeleton}))


def load_state(path: Path) -> Any:
    """Return the tree that `save_state` wrote; tuples are returned as lists. A changed file raises `InputError`."""
    check_digest(path)
    try:
        with safe_open(path, framework="pt") as file:
            skeleton = json.loads(file.metadata()["tree"])
            return _restore_tensors(skeleton, file.get_tensor)
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"{path}: cannot read the saved state ({error_message(error)}). Remove the record and run again."
        ) from None


def remove_state(path: Path) -> None:
    """Remove the state of a finished run; other files in its folder stay."""
    path.unlink(missing_ok=True)
    (path.parent / DIGESTS).unlink(missing_ok=True)
    with suppress(OSError):  # the folder does not exist, or a file browser left a file in it
        path.parent.rmdir()


def _replace_tensors(value: Any, tensors: dict[str, Tensor], where: str) -> Any:
    """Return the tree with tensors replaced by their names; the tensors are added to ``tensors``."""
    if hasattr(value, "detach"):
        name = str(len(tensors))
        tensors[name] = value.detach().cpu().contiguous().clone()
        return {_TENSOR: name}
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            return {key: _replace_tensors(item, tensors, f"{where}.{key}") for key, item in value.items()}
        return {_PAIRS: [[key, _replace_tensors(item, tensors, f"{where}.{key}")] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return [_replace_tensors(item, tensors, f"{where}[{i}]") for i, item in enumerate(value)]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{where}: expected a tensor or a plain value, got {type(value).__name__}")


def _restore_tensors(value: Any, tensor: Callable[[str], Tensor]) -> Any:
    """Return the tree with names replaced by ``tensor(name)``."""
    if isinstance(value, list):
        return [_restore_tensors(item, tensor) for item in value]
    if not isinstance(value, dict):
        return value
    if _TENSOR in value:
        return tensor(value[_TENSOR])
    if _PAIRS in value:
        return {key: _restore_tensors(item, tensor) for key, item in value[_PAIRS]}
    return {key: _restore_tensors(item, tensor) for key, item in value.items()}
