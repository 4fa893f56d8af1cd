"""Weight randomization: Gaussian noise on the weights of a network, relative to their spread."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import nn

from perdure.base.errors import InputError
from perdure.learners.seeds import derived_seed


@dataclass(frozen=True)
class Noise:
    """The amount of noise, and where it is added: to all layers, or to the last ``top`` layers."""

    share: float = 0.0
    top: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.share < float("inf"):
            raise InputError(f"noise: expected a share of at least 0, got {self.share!r}")
        if self.top is not None and self.top < 1:
            raise InputError(f"noise: expected at least one layer, got {self.top}")

    def __str__(self) -> str:
        where = "" if self.top is None else f", top {self.top}"
        return f"{100 * self.share:g} %{where}"


def with_noise(network: nn.Module, noise: Noise, seed: int) -> nn.Module:
    """Return a copy of a network with parameters w + N(0, (share * s)^2), where s is the standard deviation of w's tensor.

    Buffers and parameters of one element are unchanged. The draws depend only on the seed and the index of the parameter, so a
    larger share moves every weight further in the same direction, whichever layers are changed (the report's Eq. 1).
    """
    noisy = copy.deepcopy(network)
    selected = (
        None if noise.top is None else {name for layer in weight_noise_layers(noisy)[-noise.top :] for name in layer}
    )
    with torch.no_grad():
        for index, (name, parameter) in enumerate(noisy.named_parameters()):
            if noise.share == 0 or parameter.numel() < 2 or (selected is not None and name not in selected):
                continue
            generator = torch.Generator().manual_seed(derived_seed(seed, "part", index))
            draws = torch.randn(parameter.shape, generator=generator).to(parameter)
            parameter.add_(draws * (noise.share * parameter.std(unbiased=False)))
    return noisy


def weight_noise_layers(network: nn.Module) -> list[list[str]]:
    """Return the parameter names of each layer, in the order in which the network registers the layers."""
    groups = []
    for prefix, module in network.named_modules():
        names = [f"{prefix}.{name}" if prefix else name for name, _ in module.named_parameters(recurse=False)]
        if names:
            groups.append(names)
    return groups


def weight_noise_cascade(network: nn.Module, share: float, steps: int) -> list[Noise]:
    """Return noise on a growing number of layers from the output down to all of them, in at most ``steps`` steps."""
    count = len(weight_noise_layers(network))
    tops = sorted({max(1, round(count * step / steps)) for step in range(1, steps + 1)})
    return [Noise(share, top) for top in tops]
