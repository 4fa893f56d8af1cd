"""The network's outputs, and the output that is explained for each example."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from perdure.base.errors import InputError
from perdure.explain.adapters.arrays import check_finite


def outputs_of(model: nn.Module, x: Tensor, batch_size: int) -> Tensor:
    """Return the network's outputs, (n, classes). Another shape, NaN or infinity raises `InputError`."""
    batches = []
    with torch.no_grad():
        for start in range(0, len(x), batch_size):
            batch = x[start : start + batch_size]
            scores = checked_shape(model(batch.clone()), len(batch))
            check_finite(scores, start, "the network's output")
            batches.append(scores)
    return torch.cat(batches)


def checked_shape(scores: Any, examples: int) -> Tensor:
    """Return the outputs unchanged if they have the shape (examples, classes); otherwise raise `InputError`."""
    if not isinstance(scores, Tensor):
        raise InputError(
            f"network: expected one output tensor (batch, classes), got a {type(scores).__name__}; "
            "wrap the network in a module that returns only the scores"
        )
    if scores.dim() != 2 or len(scores) != examples:
        raise InputError(
            f"network: expected outputs of shape ({examples}, classes) for {examples} examples, got {tuple(scores.shape)}; "
            "wrap the network in a module that returns one score per class (a single output as (batch, 1))"
        )
    return scores


def resolve_targets(target: Any, scores: Tensor) -> Tensor:
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
