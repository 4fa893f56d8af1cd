"""The weight-randomisation test: Gaussian noise on a network's weights, in proportion to their own spread."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import nn

from perdure.base.errors import InputError
from perdure.learners.data import derived_seed


@dataclass(frozen=True)
class Noise:
    """How much noise, and where: on all layers, or on so many of the last (``top``), counted from the output."""

    share: float = 0.0
    top: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.share < float("inf"):
            raise InputError(f"noise: expected a share of at least 0, got {self.share!r}")
        if self.top is not None and self.top < 1:
            raise InputError(f"noise: expected at least one layer from the top, got {self.top}")

    def __str__(self) -> str:
        where = "" if self.top is None else f", top {self.top}"
        return f"{100 * self.share:g} %{where}"


def with_noise(network: nn.Module, noise: Noise, seed: int) -> nn.Module:
    """Return a copy of a network whose parameters are w + N(0, (share * s)^2), s the standard deviation of w's own tensor.

    Buffers and parameters of one element are left alone. The draws depend on the seed and the parameter's place alone, so that
    a larger share moves every weight further in the same direction, whichever layers are moved. The report's Eq. 1.
    """
    moved = copy.deepcopy(network)
    chosen = None if noise.top is None else set(_names_of(layers(moved)[-noise.top :]))
    with torch.no_grad():
        for place, (name, parameter) in enumerate(moved.named_parameters()):
            if noise.share == 0 or parameter.numel() < 2 or (chosen is not None and name not in chosen):
                continue
            generator = torch.Generator().manual_seed(derived_seed(seed, "part", place))
            draws = torch.randn(parameter.shape, generator=generator).to(parameter)
            parameter.add_(draws * (noise.share * parameter.std(unbiased=False)))
    return moved


def layers(network: nn.Module) -> list[list[str]]:
    """Return the names of the parameters of each layer, layers in the order in which the network registers them."""
    found = []
    for prefix, module in network.named_modules():
        own = [f"{prefix}.{name}" if prefix else name for name, _ in module.named_parameters(recurse=False)]
        if own:
            found.append(own)
    return found


def _names_of(groups: list[list[str]]) -> list[str]:
    return [name for group in groups for name in group]


def cascade(network: nn.Module, share: float, steps: int) -> list[Noise]:
    """Return noise on ever more layers from the output down to all of them, in at most so many steps."""
    count = len(layers(network))
    places = sorted({max(1, round(count * step / steps)) for step in range(1, steps + 1)})
    return [Noise(share, top) for top in places]
