"""Work that the coalitions of a walk share: the first convolution is done once for each window, not for each coalition.

A walk lets one pixel enter after another, so the window of w x w pixels that one position of the first layers sees has only
w^2 + 1 states among a walk's thousand coalitions: it changes when one of its own pixels enters. The convolution is linear, so
its value in these states is a running sum of the pixels' contributions in the order of their entry. What comes right after it
position by position (an activation, pooling) is done on the states too; a coalition's map is then looked up, and only the
rest of the network runs for every coalition.
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

from perdure.explain.adapters.fast_copy import TOLERANCE, ChannelsLast, quick_copy
from perdure.explain.shapley.game import FloatArray, NetworkGame

MOST_ELEMENTS = 2**22  # of the contributions of all windows: beyond, they are not worth their memory
PROBED_STEPS = 5
_POINTWISE = (nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Sigmoid, nn.Tanh, nn.Identity)
_POOLS = (nn.MaxPool2d, nn.AvgPool2d)


def quick_game(game: NetworkGame) -> NetworkGame:
    """Return the same game, sooner evaluated: norms folded, a better layout, the first layers shared along walks.

    Each of these is used only where it moves no output that is tried by more than 1e-5.
    """
    if game.layer is not None:
        return game
    probe = torch.stack([game.sample, game.baseline, (game.sample + game.baseline) / 2])[: game.batch_size]
    model = quick_copy(game.model, probe)
    given = (game.sample, game.target, game.labels, game.baseline)
    plain = NetworkGame(model, *given, batch_size=game.batch_size, index=game.index)
    stem = _stem(model, game.sample) if game.labels.kind == "pixels" and model is not game.model else None
    if stem is None:
        return plain
    shared = SharedGame(model, *given, batch_size=game.batch_size, index=game.index)
    shared.share(stem, _without(model, stem))
    return shared if _agree(shared, plain) else plain


@dataclass(frozen=True)
class _Stem:
    """The first layers of a network: a convolution, then modules that work position by position, perhaps one pooling."""

    names: tuple[str, ...]
    convolution: nn.Conv2d
    after: tuple[nn.Module, ...]
    pool: int
    """Side of the pooling windows, 1 without pooling."""
    window: int
    """Side of the square of pixels that one position sees."""
    stride: int
    """Pixels between two positions."""


class SharedGame(NetworkGame):
    """A network's game on the pixels of an image whose walks share the first layers; other coalitions are as ever."""

    def share(self, stem: _Stem, rest: nn.Module) -> None:
        """Prepare each pixel's contribution to each window that sees it."""
        self.stem, self.rest = stem, rest
        weight = _placed(stem).to(self.sample)
        difference = self._windows(self.sample - self.baseline)
        start = self._windows(self.baseline)
        channels = len(self.sample)
        shape = (channels, stem.window**2, -1)
        with torch.no_grad():
            self.moves = torch.einsum("cpq,ocp->qpo", difference.reshape(shape), weight).contiguous()
            self.start = torch.einsum("cpq,ocp->qo", start.reshape(shape), weight)
            if stem.convolution.bias is not None:
                self.start = self.start + stem.convolution.bias.repeat(stem.pool**2)

    def walks(self, ranks: NDArray[np.int64], steps: NDArray[np.int64]) -> FloatArray:
        """Return F along each order after so many players have entered, (orders, steps)."""
        device = self.sample.device
        orders, after = (torch.from_numpy(array).to(device, torch.float32) for array in (ranks, steps))  # exact to 2^24
        with torch.inference_mode():
            found = [torch.cat(list(self._walk(order, after))) for order in orders]
        return torch.stack(found).cpu().double().numpy()

    def _walk(self, ranks: Tensor, steps: Tensor) -> Iterator[Tensor]:
        entries, states = self._states(ranks)
        height, width = (
            (side + 2 * padding - self.stem.window) // self.stem.stride + 1
            for side, padding in zip(self.sample.shape[1:], _padding(self.stem.convolution), strict=True)
        )
        first = torch.arange(len(entries), device=entries.device)[:, None] * states.shape[1]
        flat = states.flatten(0, 1)
        for some in torch.split(steps, self.batch_size):
            entered = torch.searchsorted(entries, some.expand(len(entries), -1).contiguous())
            maps = flat[(first + entered).T.flatten()].reshape(len(some), height, width, -1)
            yield self._checked(self.rest(maps.permute(0, 3, 1, 2)))  # channels come last in memory already

    def _states(self, ranks: Tensor) -> tuple[Tensor, Tensor]:
        """Return when the pixels of each window enter, in order, and what the stem puts out after each entry."""
        stem, channels = self.stem, self.stem.convolution.out_channels
        places = self._windows(ranks.reshape(1, *self.sample.shape[1:]), float(self.players)).T.contiguous()
        entries, order = places.sort(dim=1)
        moves = self.moves.gather(1, order[..., None].expand_as(self.moves))
        states = torch.cat([self.start[:, None], moves], dim=1).cumsum(dim=1)
        states = states.reshape(*states.shape[:2], stem.pool**2, channels)
        for module in stem.after:
            if isinstance(module, nn.MaxPool2d):
                states = states.amax(dim=2, keepdim=True)
            elif isinstance(module, nn.AvgPool2d):
                states = states.mean(dim=2, keepdim=True)
            else:
                states = module(states)
        return entries, states[:, :, 0]

    def _windows(self, image: Tensor, outside: float = 0.0) -> Tensor:
        """Return (channels * window^2, positions): what each position sees of an image."""
        high, wide = _padding(self.stem.convolution)
        padded = F.pad(image[None], (wide, wide, high, high), value=outside)
        return F.unfold(padded, self.stem.window, stride=self.stem.stride)[0]


def _padding(convolution: nn.Conv2d) -> tuple[int, int]:
    return convolution.padding  # type: ignore[return-value]  # a word is refused by _fits


def _placed(stem: _Stem) -> Tensor:
    """Return the kernel at each place of a pooling window, (places * outputs, channels, window^2)."""
    weight = stem.convolution.weight.detach()
    side, step = weight.shape[-1], int(stem.convolution.stride[0])
    placed = weight.new_zeros(stem.pool, stem.pool, *weight.shape[:2], stem.window, stem.window)
    for row in range(stem.pool):
        for column in range(stem.pool):
            top, left = row * step, column * step
            placed[row, column, :, :, top : top + side, left : left + side] = weight
    return placed.reshape(-1, weight.shape[1], stem.window**2)


def _agree(shared: SharedGame, plain: NetworkGame) -> bool:
    """Say whether both games agree along the start, the middle and the end of a walk."""
    players = plain.players
    ranks = np.random.default_rng(0).permutation(players)
    steps = np.unique(np.linspace(1, players - 1, PROBED_STEPS).astype(int))
    expected = plain(ranks[None] < steps[:, None])
    try:
        found = shared.walks(ranks[None], steps)[0]
    except (RuntimeError, ValueError, TypeError):  # the rest of the network does not take the stem's map for an input
        return False
    return bool(np.abs(found - expected).max() <= TOLERANCE)


def _stem(model: nn.Module, sample: Tensor) -> _Stem | None:
    """Return the layers to share, if the network begins with a convolution that sees small windows."""
    if sample.dim() != 3:
        return None
    inner = model.model if isinstance(model, ChannelsLast) else model
    chain = _chain(inner, sample[None])
    if not chain or not _fits(chain[0][1]):
        return None
    convolution: Any = chain[0][1]
    pool, pool_stride, names, after = 1, 1, [chain[0][0]], []
    for name, module in chain[1:]:
        if isinstance(module, _POOLS) and pool == 1 and _square(module):
            pool, pool_stride = int(_side(module.kernel_size)), int(_side(module.stride))
        elif not isinstance(module, _POINTWISE):
            break
        names.append(name)
        after.append(module)
    step = convolution.stride[0]
    window = (pool - 1) * step + convolution.kernel_size[0]
    stem = _Stem(tuple(names), convolution, tuple(after), pool, window, step * pool_stride)
    looked_up = sample[0].numel() // stem.stride**2 * convolution.out_channels
    # Looking up a map that is larger than the image takes longer than a convolution (measured on ResNet-18's first one).
    worth_it = looked_up < sample.numel() and looked_up * window**2 * pool**2 <= MOST_ELEMENTS
    return stem if worth_it else None


def _fits(module: nn.Module) -> bool:
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


def _square(pool: Any) -> bool:
    sizes = [pool.kernel_size, pool.stride]
    plain = _side(pool.padding) == 0 and not pool.ceil_mode and _side(getattr(pool, "dilation", 1)) == 1
    return plain and all(isinstance(size, int) or size[0] == size[1] for size in sizes)


def _chain(model: nn.Module, rows: Tensor) -> list[tuple[str, nn.Module]]:
    """Return the first modules, each fed by the one before and called once; the first is fed by the network's input."""
    calls: list[tuple[str, nn.Module, Any, Any]] = []
    point = rows.clone()

    def note(name: str, module: nn.Module, inputs: Any, output: Any) -> None:
        calls.append((name, module, inputs, output))

    handles = [
        module.register_forward_hook(lambda module, inputs, output, name=name: note(name, module, inputs, output))
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
        if len(inputs) != 1 or inputs[0] is not point or sum(other is module for _, other, _, _ in calls) > 1:
            break
        chain.append((name, module))
        point = output
    return chain


def _without(model: nn.Module, stem: _Stem) -> nn.Module:
    """Return a copy of the network that takes the stem's map for its input."""
    rest = copy.deepcopy(model.model if isinstance(model, ChannelsLast) else model)
    for name in stem.names:
        rest.set_submodule(name, nn.Identity())
    return rest
