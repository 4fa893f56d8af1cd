"""Errors of a network's first forward pass as one line that names the problem and the remedy."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from perdure.base.errors import InputError, error_message

_ERRORS = (RuntimeError, TypeError, ValueError, IndexError, AssertionError)
ONE_INPUT = (
    "only networks with one input tensor are supported: wrap the network in a module that takes its inputs concatenated, "
    "and splits them"
)
TOKENS = (
    "wrap the network in a module that casts its input with .long(), and use 'shapley' or 'lime' with baseline= the id of "
    "the mask or padding token; or in a module that takes the embeddings"
)


@contextmanager
def rejected_input(model: nn.Module, x: Tensor) -> Iterator[None]:
    """Raise an error of the network's forward pass on ``x`` as an `InputError` with the probable cause."""
    try:
        yield
    except InputError:
        raise
    except _ERRORS as error:
        raise InputError(_explanation(model, x, error)) from error


def _explanation(model: nn.Module, x: Tensor, error: Exception) -> str:
    reason = error_message(error, 150)
    required = _required_inputs(model)
    if len(required) > 1:
        return f"the network takes {len(required)} inputs ({', '.join(required)}); {ONE_INPUT}"
    if "indices" in reason and "Long" in reason:
        return f"the network takes token ids (integers), which have no gradient and no mean; {TOKENS}"
    if any(word in reason for word in ("dtype", "scalar type", "Half", "BFloat16")):
        return (
            f"the network does not run in {str(x.dtype).removeprefix('torch.')} ({reason}); remove casts to a fixed "
            "floating-point type from its forward method"
        )
    return (
        f"the network does not accept inputs of shape {tuple(x.shape[1:])} ({reason}); "
        "pass x as the network takes it, with the shape of its training inputs"
    )


def _required_inputs(model: nn.Module) -> list[str]:
    """Return the names of the arguments that the network's forward method cannot do without."""
    try:
        parameters = inspect.signature(model.forward).parameters.values()
    except (TypeError, ValueError):
        return []
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [entry.name for entry in parameters if entry.kind in positional and entry.default is entry.empty]
