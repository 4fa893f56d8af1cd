"""Faster evaluation of the coalitions of one order of pixels: the first layers are computed once per window.

In an order, pixels are added one after another. The window of w x w pixels that one position of the first convolution reads
changes only when one of its own pixels is added, so it has only w^2 + 1 states in all coalitions of the order. The
convolution is linear: its values in these states are a cumulative sum of the pixels' contributions in the order in which they
are added. Elementwise activations and pooling directly after the convolution are computed on the states too. The feature map
of a coalition is then looked up, and only the rest of the network runs for each coalition.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from perdure.explain.adapters.models import TOLERANCE, ChannelsLast, fast_model_copy
from perdure.explain.shapley.game import FloatArray, NetworkGame

MOST_ELEMENTS = 2**22  # of the contributions in all windows; more need too much memory
PROBED_STEPS = 5
_POINTWISE = (nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Sigmoid, nn.Tanh, nn.Identity)
_POOLS = (nn.MaxPool2d, nn.AvgPool2d)


def fast_game(game: NetworkGame) -> NetworkGame:
    """Return an equivalent game that is faster: batch norm folded, channels-last layout, first layers shared in an order.

    Each change is used only if it changes no tested output by more than 1e-5.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from perdure import explain
    >>> features = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    >>> network = nn.Sequential(features, nn.Flatten(), nn.Linear(36, 2)).eval()
    >>> image = torch.rand(1, 5, 5)
    >>> players = explain.pixel_players((1, 5, 5))
    >>> game = explain.NetworkGame(network, image, 0, players, torch.zeros_like(image))
    >>> fast = explain.fast_game(game)
    >>> coalitions = torch.rand(8, 25).numpy() > 0.5
    >>> bool(abs(fast(coalitions) - game(coalitions)).max() < 1e-5)
    True
    """
    if game.layer is not None:
        return game
    probe = torch.stack([game.example, game.baseline, (game.example + game.baseline) / 2])[: game.batch_size]
    model = fast_model_copy(game.model, probe)
    arguments = (game.example, game.target, game.partition, game.baseline)
    plain = NetworkGame(model, *arguments, batch_size=game.batch_size, index=game.index)
    stem = _stem(model, game.example) if game.partition.kind == "pixels" and model is not game.model else None
    if stem is None:
        return plain
    shared = SharedGame(model, *arguments, batch_size=game.batch_size, index=game.index)
    shared.share(stem, _without_stem(model, stem))
    return shared if _agree(shared, plain) else plain


@dataclass(frozen=True)
class _Stem:
    """The first layers of a network: a convolution, elementwise modules and at most one pooling layer."""

    names: tuple[str, ...]
    convolution: nn.Conv2d
    after: tuple[nn.Module, ...]
    pool: int
    """Side of the pooling windows; 1 without pooling."""
    window: int
    """Side of the window of pixels that one output position depends on."""
    stride: int
    """Distance in pixels between the windows of neighboring positions."""


class SharedGame(NetworkGame):
    """A network's game on the pixels of an image that shares the first layers between the coalitions of an order."""

    def share(self, stem: _Stem, rest: nn.Module) -> None:
        """Compute the contribution of each pixel to each window that contains it."""
        self.stem, self.rest = stem, rest
        weight = _shifted_kernels(stem).to(self.example)
        difference = self._windows(self.example - self.baseline)
        start = self._windows(self.baseline)
        channels = len(self.example)
        shape = (channels, stem.window**2, -1)
        with torch.no_grad():
            self.contributions = torch.einsum("cpq,ocp->qpo", difference.reshape(shape), weight).contiguous()
            self.start = torch.einsum("cpq,ocp->qo", start.reshape(shape), weight)
            if stem.convolution.bias is not None:
                self.start = self.start + stem.convolution.bias.repeat(stem.pool**2)

    def values_along_orders(self, ranks: NDArray[np.int64], steps: NDArray[np.int64]) -> FloatArray:
        """Return the value of each order after these numbers of added players, (orders, steps)."""
        device = self.example.device
        # float32 holds integers exactly up to 2^24.
        orders, counts = (torch.from_numpy(array).to(device, torch.float32) for array in (ranks, steps))
        with torch.inference_mode():
            values = [torch.cat(list(self._values_along_order(order, counts))) for order in orders]
        return torch.stack(values).cpu().double().numpy()

    def _values_along_order(self, ranks: Tensor, steps: Tensor) -> Iterator[Tensor]:
        pixel_ranks, states = self._states(ranks)
        height, width = (
            (side + 2 * padding - self.stem.window) // self.stem.stride + 1
            for side, padding in zip(self.example.shape[1:], _padding(self.stem.convolution), strict=True)
        )
        first = torch.arange(len(pixel_ranks), device=pixel_ranks.device)[:, None] * states.shape[1]
        flat = states.flatten(0, 1)
        for batch in torch.split(steps, self.batch_size):
            present = torch.searchsorted(pixel_ranks, batch.expand(len(pixel_ranks), -1).contiguous())
            maps = flat[(first + present).T.flatten()].reshape(len(batch), height, width, -1)
            yield self._checked(self.rest(maps.permute(0, 3, 1, 2)))  # the memory layout is channels-last

    def _states(self, ranks: Tensor) -> tuple[Tensor, Tensor]:
        """Return, for each window, the sorted ranks of its pixels and the stem's output after each of them is added."""
        stem, channels = self.stem, self.stem.convolution.out_channels
        window_ranks = self._windows(ranks.reshape(1, *self.example.shape[1:]), float(self.players)).T.contiguous()
        pixel_ranks, order = window_ranks.sort(dim=1)
        contributions = self.contributions.gather(1, order[..., None].expand_as(self.contributions))
        states = torch.cat([self.start[:, None], contributions], dim=1).cumsum(dim=1)
        states = states.reshape(*states.shape[:2], stem.pool**2, channels)
        for module in stem.after:
            if isinstance(module, nn.MaxPool2d):
                states = states.amax(dim=2, keepdim=True)
            elif isinstance(module, nn.AvgPool2d):
                states = states.mean(dim=2, keepdim=True)
            else:
                states = module(states)
        return pixel_ranks, states[:, :, 0]

    def _windows(self, image: Tensor, padding_value: float = 0.0) -> Tensor:
        """Return the window of each output position, (channels * window^2, positions)."""
        vertical, horizontal = _padding(self.stem.convolution)
        padded = F.pad(image[None], (horizontal, horizontal, vertical, vertical), value=padding_value)
        return F.unfold(padded, self.stem.window, stride=self.stem.stride)[0]


def _padding(convolution: nn.Conv2d) -> tuple[int, int]:
    return convolution.padding  # type: ignore[return-value]  # _is_supported excludes strings


def _shifted_kernels(stem: _Stem) -> Tensor:
    """Return the kernel at each position of a pooling window, (positions * outputs, channels, window^2)."""
    weight = stem.convolution.weight.detach()
    side, step = weight.shape[-1], int(stem.convolution.stride[0])
    shifted = weight.new_zeros(stem.pool, stem.pool, *weight.shape[:2], stem.window, stem.window)
    for row in range(stem.pool):
        for column in range(stem.pool):
            top, left = row * step, column * step
            shifted[row, column, :, :, top : top + side, left : left + side] = weight
    return shifted.reshape(-1, weight.shape[1], stem.window**2)


def _agree(shared: SharedGame, plain: NetworkGame) -> bool:
    """Return whether both games agree at steps from the start to the end of one order."""
    players = plain.players
    ranks = np.random.default_rng(0).permutation(players)
    steps = np.unique(np.linspace(1, players - 1, PROBED_STEPS).astype(int))
    expected = plain(ranks[None] < steps[:, None])
    try:
        values = shared.values_along_orders(ranks[None], steps)[0]
    except (RuntimeError, ValueError, TypeError):  # the rest of the network does not accept the stem's output as input
        return False
    return bool(np.abs(values - expected).max() <= TOLERANCE * np.abs(expected).max())


def _stem(model: nn.Module, example: Tensor) -> _Stem | None:
    """Return the layers to share, or None if the network does not start with a convolution of small windows."""
    if example.dim() != 3:
        return None
    inner = model.model if isinstance(model, ChannelsLast) else model
    chain = _first_modules(inner, example[None])
    if not chain or not _is_supported(chain[0][1]):
        return None
    convolution: Any = chain[0][1]
    pool, pool_stride, names, after = 1, 1, [chain[0][0]], []
    for name, module in chain[1:]:
        if isinstance(module, _POOLS) and pool == 1 and _is_square(module):
            pool, pool_stride = int(_side(module.kernel_size)), int(_side(module.stride))
        elif not isinstance(module, _POINTWISE):
            break
        names.append(name)
        after.append(module)
    step = convolution.stride[0]
    window = (pool - 1) * step + convolution.kernel_size[0]
    stem = _Stem(tuple(names), convolution, tuple(after), pool, window, step * pool_stride)
    map_size = example[0].numel() // stem.stride**2 * convolution.out_channels
    # The lookup of a map larger than the image is slower than a convolution (measured on ResNet-18's first layer).
    is_faster = map_size < example.numel() and map_size * window**2 * pool**2 <= MOST_ELEMENTS
    return stem if is_faster else None


def _is_supported(module: nn.Module) -> bool:
    return (
        isinstance(module, nn.Conv2d)
        and module.groups == 1
        and module.dilation == (1, 1)
        and module.padding_mode == "zeros"
        and not isinstance(module.padding, str)
        and module.kernel_size[0] == module.kernel_size[1]
        and module.stride[0] == module.stride[1]
    )


def _side(value: Any) -> Any:
    return value if isinstance(value, int) else value[0]


def _is_square(pool: Any) -> bool:
    sizes = [pool.kernel_size, pool.stride]
    plain = _side(pool.padding) == 0 and not pool.ceil_mode and _side(getattr(pool, "dilation", 1)) == 1
    return plain and all(isinstance(size, int) or size[0] == size[1] for size in sizes)


def _first_modules(model: nn.Module, x: Tensor) -> list[tuple[str, nn.Module]]:
    """Return the first modules: each is called once, on the output of the previous one or on the network's input."""
    calls: list[tuple[str, nn.Module, Any, Any]] = []
    point = x.clone()

    def record(name: str, module: nn.Module, inputs: Any, output: Any) -> None:
        calls.append((name, module, inputs, output))

    handles = [
        module.register_forward_hook(lambda module, inputs, output, name=name: record(name, module, inputs, output))
        for name, module in model.named_modules()
        if next(module.children(), None) is None
    ]
    try:
        with torch.no_grad():
            model(point)
    finally:
        for handle in handles:
            handle.remove()
    chain: list[tuple[str, nn.Module]] = []
    for name, module, inputs, output in calls:
        if len(inputs) != 1 or inputs[0] is not point or sum(called is module for _, called, _, _ in calls) > 1:
            break
        chain.append((name, module))
        point = output
    return chain


def _without_stem(model: nn.Module, stem: _Stem) -> nn.Module:
    """Return a copy of the network that takes the stem's output as its input."""
    rest = copy.deepcopy(model.model if isinstance(model, ChannelsLast) else model)
    for name in stem.names:
        rest.set_submodule(name, nn.Identity())
    return rest
