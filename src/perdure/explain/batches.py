"""Explaining examples in batches, with captum's warnings silenced."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from perdure.explain.explainer import Request


def in_batches(request: Request, rows: int, explain: Callable[[Tensor, Tensor, slice], Tensor]) -> Tensor:
    """Explain ``rows`` examples at a time and concatenate the maps."""
    maps = []
    for start in range(0, len(request.x), rows):
        part = slice(start, min(start + rows, len(request.x)))
        with _quiet():
            maps.append(explain(request.x[part], request.target[part], part).detach())
        request.report(part.stop)
    return torch.cat(maps)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence captum's warnings about the hooks it sets; they are always removed here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="captum")
        warnings.filterwarnings("ignore", message="Setting (forward, )?backward hooks")
        warnings.filterwarnings("ignore", message="Input Tensor . (did not|has a dtype)")
        yield


def with_copied_batch(model: nn.Module) -> Callable[[Tensor], Tensor]:
    """Return a function that passes a copy of its input to the network, so that a network may write into its input."""

    def forward(x: Tensor) -> Tensor:
        scores: Tensor = model(x.clone())
        return scores

    return forward
