"""Arrays in, arrays out: numpy, torch or lists become tensors of the network's type and go back as they came."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from perdure.base.errors import InputError

BATCH_ROWS = 1024
BATCH_ELEMENTS = 400_000  # 130 rows of 3 x 32 x 32: more no longer fit the caches and are slower


def place_of(model: nn.Module, fallback: Any = None) -> tuple[torch.device, torch.dtype]:
    """Return the device and floating type of a network; one without parameters takes those of ``fallback``."""
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.is_floating_point():
            return tensor.device, tensor.dtype
    if isinstance(fallback, Tensor) and fallback.is_floating_point():
        return fallback.device, fallback.dtype
    return torch.device("cpu"), torch.float32


def as_rows(values: Any, what: str, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return a batch as a detached tensor of its own; what is not finite is named by its row."""
    try:
        tensor = values if isinstance(values, Tensor) else torch.from_numpy(np.array(values))
    except (TypeError, ValueError) as error:
        raise InputError(f"{what}: expected an array of numbers, got {type(values).__name__} ({error})") from None
    if tensor.is_complex() or tensor.dim() < 2 or tensor.numel() == 0:
        raise InputError(
            f"{what}: found shape {tuple(tensor.shape)}, expected real numbers with a batch dimension first, "
            "(n, channels, height, width), (n, channels, length) or (n, features)"
        )
    rows = tensor.detach().to(device=device, dtype=dtype, copy=True)
    wrong = ~torch.isfinite(rows.flatten(1)).all(dim=1)
    if wrong.any():
        raise InputError(
            f"{what}: sample {int(wrong.nonzero()[0])} holds NaN or infinite values; repair or leave it out"
        )
    return rows


def like(values: Tensor, given: Any) -> Any:
    """Return ``values`` in the form in which the user gave the samples: a tensor on their device, or a numpy array."""
    if not isinstance(given, Tensor):
        return values.detach().cpu().numpy()
    return values.detach().to(device=given.device, dtype=given.dtype if given.is_floating_point() else values.dtype)


def rows_per_batch(batch_size: int | None, shape: torch.Size | tuple[int, ...]) -> int:
    """Return the rows that go through the network at once: the caller's number, or as many as are worth it."""
    if batch_size is None:
        elements = max(1, int(np.prod(shape)))
        return max(1, min(BATCH_ROWS, BATCH_ELEMENTS // elements))
    if isinstance(batch_size, bool) or not isinstance(batch_size, int | np.integer) or batch_size < 1:
        raise InputError(f"batch_size: found {batch_size!r}, expected a positive whole number, or None")
    return int(batch_size)


def check_finite(values: Tensor, first_sample: int, what: str) -> None:
    """Refuse NaN and infinite values, naming the sample they belong to; one row a sample."""
    wrong = ~torch.isfinite(values.flatten(1) if values.dim() > 1 else values[:, None]).all(dim=1)
    if wrong.any():
        index = int(wrong.nonzero()[0])
        raise InputError(
            f"sample {first_sample + index}: {what} is NaN or infinite; check the network's weights and input"
        )
