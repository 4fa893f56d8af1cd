"""Fingerprints of data that a user passes, without importing a numerical library."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from perdure.base.errors import InputError

BLOCK = 2**20


def data_fingerprint(data: Any) -> str:
    """Return the SHA-256 of nested lists, tuples and dictionaries of arrays, tensors, numbers and text.

    Arrays count with type, shape and values. Other objects must be iterable (a Dataset, a DataLoader); their items count.
    """
    total = hashlib.sha256()
    _add(total, data, 0)
    return total.hexdigest()


def file_fingerprint(path: Path) -> str:
    """Return the SHA-256 of a file, or of the names and contents of all files in a folder."""
    total = hashlib.sha256()
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    for file in files:
        if path.is_dir():
            total.update(file.relative_to(path).as_posix().encode() + b"\0")
        with file.open("rb") as stream:
            while block := stream.read(BLOCK):
                total.update(block)
    return total.hexdigest()


def _add(total: Any, value: Any, depth: int) -> None:
    if depth > 20:
        raise InputError("data: expected arrays in lists or dictionaries, got a structure of more than 20 levels")
    if hasattr(value, "detach"):
        tensor = value.detach().cpu()
        value = (tensor.float() if "bfloat16" in str(tensor.dtype) else tensor).numpy()
    if hasattr(value, "tobytes") and hasattr(value, "dtype"):
        total.update(f"{value.dtype}{tuple(value.shape)}".encode() + value.tobytes())
    elif value is None or isinstance(value, bool | int | float | str | bytes):
        total.update(f"{type(value).__name__}:{value!r};".encode())
    elif isinstance(value, Mapping):
        total.update(b"{")
        for key in value:
            _add(total, str(key), depth + 1)
            _add(total, value[key], depth + 1)
        total.update(b"}")
    elif hasattr(value, "__len__") and hasattr(value, "__getitem__"):
        total.update(b"[")
        for index in range(len(value)):
            _add(total, value[index], depth + 1)
        total.update(b"]")
    elif isinstance(value, Iterable):
        total.update(b"[")
        for item in value:
            _add(total, item, depth + 1)
        total.update(b"]")
    else:
        raise InputError(f"data: expected arrays, a Dataset or a DataLoader, got a {type(value).__name__}")
