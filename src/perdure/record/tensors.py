"""Checkpoints in safetensors format; pickles are never loaded."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from perdure.base.errors import InputError
from perdure.base.files import write_atomically

if TYPE_CHECKING:
    from torch import Tensor, nn


def cpu_tensors(network: nn.Module | Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the tensors of a network or a state_dict as contiguous copies on the CPU."""
    state = network if isinstance(network, Mapping) else network.state_dict()
    for name, value in state.items():
        if not hasattr(value, "detach"):
            raise InputError(
                f"checkpoint: expected a tensor for {name!r}, got {type(value).__name__}. Pass a network or its state_dict."
            )
    return {name: value.detach().cpu().contiguous().clone() for name, value in state.items()}


def save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> str:
    """Write tensors atomically and return the SHA-256 of the file."""
    from safetensors.torch import save  # noqa: PLC0415  (it imports torch)

    content = save(dict(tensors))
    write_atomically(path, content)
    return hashlib.sha256(content).hexdigest()


def load_tensors(path: Path, sha256: str | None = None) -> dict[str, Tensor]:
    """Return the tensors in a safetensors file; a truncated, altered or pickled file raises `InputError`."""
    from safetensors.torch import load  # noqa: PLC0415  (it imports torch)

    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: no such checkpoint.") from None
    # A safetensors file begins with a length of eight bytes, which can equal the first bytes of a pickle.
    if content[8:9] != b"{" and (content[:2] == b"PK" or content[:1] == b"\x80"):
        raise InputError(
            f"{path}: expected a safetensors file, got a torch or pickle file, which perdure does not load. Load it with "
            "torch.load(..., weights_only=True) and save it with safetensors.torch.save_file."
        )
    if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
        raise InputError(f"{path}: the checkpoint is truncated or altered (its SHA-256 differs from the record's).")
    try:
        return load(content)
    except SafetensorError as error:
        raise InputError(f"{path}: the checkpoint is truncated or not in safetensors format ({error}).") from None
