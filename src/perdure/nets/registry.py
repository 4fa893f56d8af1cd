"""Networks by name: a new one is a function (shape, outputs, width) -> ``Network`` under ``@network``."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch

from perdure.base.errors import InputError, suggest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from perdure.nets.layers import Network

    Maker = Callable[[tuple[int, ...], int, int], Network]

Inputs = Literal["images", "signals", "any"]
_LAYOUT = {
    "images": "(channels, height, width)",
    "signals": "(channels, length) or (length,)",
    "any": "any shape",
}


@dataclass(frozen=True)
class Description:
    """What a network is and what it takes.

    ``inputs``: ``images`` (channels, height, width), ``signals`` (channels, length) or (length,), or ``any``
    shape, which the network flattens. ``minimum`` is the smallest height and width, or length, it can be
    built for; empty when there is none. ``width`` is the default of the option of that name and ``width_is``
    says what it counts.
    """

    name: str
    paper: str
    inputs: Inputs
    minimum: tuple[int, ...]
    width: int
    width_is: str


@dataclass(frozen=True)
class _Entry:
    description: Description
    make: Maker


_NETWORKS: dict[str, _Entry] = {}


def network(
    name: str,
    *,
    paper: str,
    width: int,
    width_is: str,
    inputs: Inputs = "images",
    minimum: tuple[int, ...] = (),
) -> Callable[[Maker], Maker]:
    """Register a function ``(input_shape, outputs, width) -> Network`` under a name."""

    def register(make: Maker) -> Maker:
        _NETWORKS[name] = _Entry(Description(name, paper, inputs, minimum, width, width_is), make)
        return make

    return register


def names() -> list[str]:
    """Names of all networks, sorted."""
    return sorted(_NETWORKS)


def describe(name: str) -> Description:
    """Paper, inputs and default width of a network."""
    return _entry(name).description


def build(name: str, *, input_shape: Sequence[int], outputs: int, seed: int = 0, width: int | None = None) -> Network:
    """Make a network on the CPU, its parameters drawn from ``seed`` alone.

    ``input_shape`` is the shape of one example, without the batch dimension. The global random state is left
    as it was.
    """
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would reseed the accelerators too
        return _make(name, input_shape, outputs, width)


def count_parameters(name: str, *, input_shape: Sequence[int], outputs: int, width: int | None = None) -> int:
    """Count the trainable parameters a network would have, without allocating them."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in _make(name, input_shape, outputs, width).parameters())


def _make(name: str, input_shape: Sequence[int], outputs: int, width: int | None) -> Network:
    entry = _entry(name)
    shape = tuple(_positive(name, "input_shape", side) for side in input_shape)
    _check_shape(entry.description, shape)
    return entry.make(
        shape,
        _positive(name, "outputs", outputs),
        _positive(name, "width", entry.description.width if width is None else width),
    )


def _entry(name: str) -> _Entry:
    if name not in _NETWORKS:
        raise InputError(f"network: unknown name {name!r}, {suggest(name, names())}")
    return _NETWORKS[name]


def _positive(name: str, what: str, value: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if number < 1:
        raise InputError(f"network {name!r}: {what} holds {value!r}, expected a positive whole number")
    return number


def _check_shape(about: Description, shape: tuple[int, ...]) -> None:
    ranks = {"images": (3,), "signals": (1, 2), "any": range(1, 9)}[about.inputs]
    if len(shape) not in ranks:
        raise InputError(f"network {about.name!r}: input_shape is {shape}, expected {_LAYOUT[about.inputs]}")
    sides = shape[len(shape) - len(about.minimum) :]
    if any(side < least for side, least in zip(sides, about.minimum, strict=True)):
        found, least = (" x ".join(map(str, lengths)) for lengths in (sides, about.minimum))
        raise InputError(
            f"network {about.name!r}: inputs of {found} are too small, expected at least {least}; "
            "enlarge or pad them, or choose a smaller network"
        )
