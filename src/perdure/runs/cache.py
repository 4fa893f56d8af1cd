"""A content-addressed cache: every entry is named by a digest of what determines its values.

Maps, Shapley values, comparisons and trained folds take long to compute and are reused. An entry is a folder
``<cache>/<kind>/<digest>`` with ``key.json``, which lists what determines the values, next to the files of the entry. A changed
setting, checkpoint or data set has another digest, so an entry is never out of date.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from perdure.base.errors import InputError
from perdure.base.files import read_json, write_json
from perdure.record.reader import load_tensors, save_tensors

FOLDER = "cache"
KEY = "key.json"
DIGITS = 16


@dataclass(frozen=True)
class CacheEntry:
    """The folder of one entry."""

    folder: Path

    def file(self, name: str) -> Path:
        """Return the path of a file of this entry."""
        return self.folder / name

    def tensors(self, name: str, compute: Callable[[], Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """Return the tensors stored under a name; compute and store them when they are missing.

        Several processes may do so at the same time: files are written atomically.
        """
        file = self.file(f"{name}.safetensors")
        if not file.exists():
            save_tensors(file, dict(compute()), digest=True)
        return load_tensors(file)

    def has_tensors(self, name: str) -> bool:
        """Return whether tensors are stored under a name."""
        return self.file(f"{name}.safetensors").exists()


@dataclass(frozen=True)
class Cache:
    """All entries below one folder."""

    folder: Path

    def entry(self, kind: str, key: Mapping[str, Any]) -> CacheEntry:
        """Return the entry of a kind for a key of JSON values, and create its folder."""
        plain = json.loads(json.dumps({"kind": kind, **key}, sort_keys=True))
        entry = CacheEntry(self.folder / kind / cache_digest(plain)[:DIGITS])
        file = entry.file(KEY)
        if not file.exists():
            write_json(file, plain)
        elif read_json(file) != plain:
            raise InputError(
                f"{file}: the stored key differs from the key of this entry; delete the folder and run the command again"
            )
        return entry


def record_cache(record: Path) -> Cache:
    """Return the cache inside a record, or inside a folder of checkpoints."""
    return Cache(record / FOLDER)


def cache_digest(*parts: Any) -> str:
    """Return the SHA-256 of arrays, tensors and JSON values."""
    total = hashlib.sha256()
    for part in parts:
        total.update(_bytes(part) + b"|")
    return total.hexdigest()


def weights_digest(model: nn.Module) -> str:
    """Return the digest of all parameters and buffers of a network."""
    return cache_digest(*(part for name, tensor in sorted(model.state_dict().items()) for part in (name, tensor)))


def _bytes(part: Any) -> bytes:
    if isinstance(part, Tensor | np.ndarray):
        array: NDArray[Any] = part.detach().cpu().numpy() if isinstance(part, Tensor) else part
        array = np.ascontiguousarray(array)
        return f"{array.dtype.str}{array.shape}".encode() + array.tobytes()
    return json.dumps(part, sort_keys=True, default=str).encode()
