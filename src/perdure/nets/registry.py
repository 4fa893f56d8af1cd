"""Networks by name, and what all of them share: the base class, layers and initialization.

A new network is a function (shape, outputs, width) -> ``Network`` with the decorator ``@network``. Attribution methods replace
the backward pass of modules, so every operation they must handle is a module that is called once per forward pass: with
functional activations captum's DeepLift is silently wrong, and through a plain ``a + b`` its LRP diverges.
"""

from __future__ import annotations

import operator
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import torch
from torch import Tensor, nn

from perdure.base.errors import InputError
from perdure.base.registry import Registry

Inputs = Literal["images", "signals", "any"]
_LAYOUT = {
    "images": "(channels, height, width)",
    "signals": "(channels, length) or (length,)",
    "any": "any shape",
}


class Add(nn.Module):
    """The sum of two activations, as a module to which propagation rules can be attached."""

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """Return ``left + right``, both of the same shape."""
        return left + right


class Network(nn.Module):
    """A body that maps a batch to features, (batch, d), followed by one linear head."""

    def __init__(self, body: nn.Module, head: nn.Linear) -> None:
        super().__init__()
        self.body = body
        self.head = head

    @property
    def feature_size(self) -> int:
        """Length d of the feature vector."""
        return self.head.in_features

    def features(self, x: Tensor) -> Tensor:
        """Return the penultimate features, (batch, d): the input of the head."""
        return cast(Tensor, self.body(x))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, (batch, outputs)."""
        return cast(Tensor, self.head(self.features(x)))


def named_sequential(**parts: nn.Module) -> nn.Sequential:
    """Return a sequence of named modules, so that each can be addressed, for example as ``body.stage3``."""
    return nn.Sequential(OrderedDict(parts))


def convolution(inputs: int, outputs: int, kernel: int = 3, *, stride: int = 1) -> nn.Conv2d:
    """Return a convolution without bias (batch norm follows) that keeps the size of the map at stride 1."""
    return nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)


def output_side(side: int, kernel: int, *, stride: int = 1, padding: int = 0) -> int:
    """Return the side of the output map of a convolution or pooling, for an input map of this side."""
    return (side + 2 * padding - kernel) // stride + 1


def init_for_relu(network: Network) -> Network:
    """Initialize the convolutions as in He et al. 2015 (normal, variance 2 / fan-in) with zero biases; return the network.

    Deep plain networks do not start to learn from PyTorch's default initialization, which shrinks the signal at every
    ReLU.
    """
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_in", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    return network


Maker = Callable[[tuple[int, ...], int, int], Network]


@dataclass(frozen=True)
class Description:
    """A network's paper, the inputs it accepts and its default width.

    ``inputs``: ``images`` (channels, height, width), ``signals`` (channels, length) or (length,), or ``any`` shape,
    which the network flattens. ``minimum``: smallest height and width, or length, for which the network can be built;
    empty if there is no minimum. ``width``: default of the option ``width``. ``width_meaning``: what the width
    counts.
    """

    name: str
    paper: str
    inputs: Inputs
    minimum: tuple[int, ...]
    width: int
    width_meaning: str


@dataclass(frozen=True)
class NetworkEntry:
    """A registered network: its description, and the function (shape, outputs, width) that creates it."""

    description: Description
    make: Maker


NETWORKS: Registry[NetworkEntry] = Registry("network", group="perdure.networks", package="perdure.nets")


def network(
    name: str,
    *,
    paper: str,
    width: int,
    width_meaning: str,
    inputs: Inputs = "images",
    minimum: tuple[int, ...] = (),
    summary: str | None = None,
) -> Callable[[Maker], Maker]:
    """Register a function ``(input_shape, outputs, width) -> Network`` under a name.

    ``summary`` is one line for lists; by default the first line of the function's docstring.

    Examples
    --------
    >>> from torch import nn
    >>> from perdure import nets
    >>> @nets.network("tiny", paper="own", width=4, width_meaning="units", inputs="any")
    ... def tiny(input_shape, outputs, width):
    ...     "One hidden layer."
    ...     body = nn.Sequential(nn.Flatten(), nn.LazyLinear(width), nn.ReLU())
    ...     return nets.Network(body, nn.Linear(width, outputs))
    >>> nets.summaries()["tiny"]
    'One hidden layer.'
    """

    def register(make: Maker) -> Maker:
        entry = NetworkEntry(Description(name, paper, inputs, minimum, width, width_meaning), make)
        NETWORKS.add(name, entry, summary=summary or (make.__doc__ or "").partition("\n")[0])
        return make

    return register


def names() -> list[str]:
    """Return the names of all networks, sorted."""
    return NETWORKS.names()


def summaries() -> dict[str, str]:
    """Return a one-line description of each network, by name."""
    return NETWORKS.summaries()


def describe(name: str) -> Description:
    """Return a network's paper, accepted inputs and default width.

    Examples
    --------
    >>> from perdure import nets
    >>> nets.describe("mlp400").inputs, nets.describe("mlp400").width
    ('any', 400)
    """
    return NETWORKS.get(name).description


def build(name: str, *, input_shape: Sequence[int], outputs: int, seed: int = 0, width: int | None = None) -> Network:
    """Create a network on the CPU, initialized from ``seed`` alone.

    ``input_shape`` is the shape of one example, without the batch dimension. The global random state does not change. A width
    whose network does not fit into the memory of the machine is refused before anything is allocated.

    Examples
    --------
    >>> import torch
    >>> from perdure import nets
    >>> network = nets.build("mlp400", input_shape=(1, 8, 8), outputs=10, seed=0)
    >>> tuple(network(torch.zeros(2, 1, 8, 8)).shape)
    (2, 10)
    >>> nets.count_parameters("mlp400", input_shape=(1, 8, 8), outputs=10)
    190410
    >>> same = nets.build("mlp400", input_shape=(1, 8, 8), outputs=10, seed=0)
    >>> torch.equal(network.head.weight, same.head.weight)
    True
    """
    if width is not None:
        check_network_memory(name, input_shape, outputs, width)
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would also reseed the accelerators
        return _make(name, input_shape, outputs, width)


def count_parameters(name: str, *, input_shape: Sequence[int], outputs: int, width: int | None = None) -> int:
    """Return the number of trainable parameters of a network, without allocating them."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in _make(name, input_shape, outputs, width).parameters())


def _make(name: str, input_shape: Sequence[int], outputs: int, width: int | None) -> Network:
    entry = NETWORKS.get(name)
    shape = tuple(_positive_integer(name, "input_shape", side) for side in input_shape)
    _check_shape(entry.description, shape)
    return entry.make(
        shape,
        _positive_integer(name, "outputs", outputs),
        _positive_integer(name, "width", entry.description.width if width is None else width),
    )


def check_network_memory(name: str, input_shape: Sequence[int], outputs: int, width: int) -> None:
    """Refuse a network whose parameters, gradients, momentum and copies while it is saved do not fit into memory."""
    available = _available_memory()
    try:
        needed = 6 * 4 * count_parameters(name, input_shape=input_shape, outputs=outputs, width=width)
    except (RuntimeError, OverflowError, TypeError):  # more elements than a tensor can have
        needed = None
    if needed is None or (available is not None and needed > available):
        size = "more memory than any machine has" if needed is None else f"about {needed / 1e9:.1f} GB of memory"
        there = "" if available is None else f", {available / 1e9:.1f} GB are available"
        raise InputError(f"network {name!r}: width {width} needs {size}{there}; pass a smaller width")


def _available_memory() -> int | None:
    """Return the available memory in bytes, including swap, below the limit of the process; None if it is not known."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else None
    import resource  # noqa: PLC0415  (Linux has it)

    sizes = dict(line.split(":", 1) for line in lines if ":" in line)
    free = sum(1024 * int(sizes[key].split()[0]) for key in ("MemAvailable", "SwapFree") if key in sizes)
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return free if limit == resource.RLIM_INFINITY else max(0, min(free, limit - used))


def _positive_integer(name: str, parameter: str, value: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if number < 1:
        raise InputError(f"network {name!r}: {parameter}: expected a positive integer, got {value!r}")
    return number


def _check_shape(description: Description, shape: tuple[int, ...]) -> None:
    name, minimum = description.name, description.minimum
    ranks = {"images": (3,), "signals": (1, 2), "any": range(1, 9)}[description.inputs]
    if len(shape) not in ranks:
        raise InputError(f"network {name!r}: input_shape: expected {_LAYOUT[description.inputs]}, got {shape}")
    sides = shape[len(shape) - len(minimum) :]
    if any(side < least for side, least in zip(sides, minimum, strict=True)):
        size, least_size = (" x ".join(map(str, lengths)) for lengths in (sides, minimum))
        raise InputError(
            f"network {name!r}: inputs of size {size} are too small, expected at least {least_size}; "
            "enlarge or pad them, or choose a smaller network"
        )
