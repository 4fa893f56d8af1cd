"""Which output of the network is explained, for which sample."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from perdure.base.errors import InputError
from perdure.explain.adapters.arrays import check_finite


def outputs_of(model: nn.Module, x: Tensor, batch_size: int) -> Tensor:
    """Return the network's outputs, (n, classes), refusing any other shape and what is not finite."""
    parts = []
    with torch.no_grad():
        for start in range(0, len(x), batch_size):
            rows = x[start : start + batch_size]
            scores = checked_shape(model(rows.clone()), len(rows))
            check_finite(scores, start, "the network's output")
            parts.append(scores)
    return torch.cat(parts)


def checked_shape(scores: Any, rows: int) -> Tensor:
    """Return the outputs if they are one row of class scores for each sample."""
    if not isinstance(scores, Tensor):
        raise InputError(
            f"network: its output is a {type(scores).__name__}, expected one tensor (batch, classes); "
            "wrap it in a module that returns the scores alone"
        )
    if scores.dim() != 2 or len(scores) != rows:
        raise InputError(
            f"network: {rows} sample(s) give outputs of shape {tuple(scores.shape)}, expected ({rows}, classes); "
            "wrap it in a module that returns one score a class (a single output as (batch, 1))"
        )
    return scores


def resolve_targets(target: Any, scores: Tensor) -> Tensor:
    """Return one output index for each sample: one label for all, one for each, or ``"predicted"``."""
    count, classes = scores.shape
    if isinstance(target, str):
        if target != "predicted":
            raise InputError(f"target: found {target!r}, expected 'predicted', an output index, or one for each sample")
        return scores.argmax(dim=1)
    values = np.asarray(target.detach().cpu() if isinstance(target, Tensor) else target)
    if values.dtype == bool or not (np.issubdtype(values.dtype, np.integer) or _whole(values)):
        raise InputError(f"target: found {target!r}, expected output indices (whole numbers) or 'predicted'")
    if values.size == 1 and values.ndim <= 1:
        values = np.full(count, values.reshape(-1)[0])
    if values.shape != (count,):
        raise InputError(
            f"target: found shape {values.shape} for {count} sample(s), expected one index, or one for each"
        )
    values = values.astype(np.int64)
    outside = np.flatnonzero((values < 0) | (values >= classes))
    if len(outside):
        first = int(outside[0])
        raise InputError(
            f"target: sample {first} asks for output {values[first]}, the network has outputs 0 to {classes - 1}"
        )
    return torch.from_numpy(values).to(scores.device)


def _whole(values: np.ndarray[Any, Any]) -> bool:
    return bool(np.issubdtype(values.dtype, np.floating) and np.all(values == np.floor(values)))
