"""The consistency of two networks' reasons on some samples, with the references without which it cannot be read.

Each budget is drawn as two independent halves A and B, the same two for every network. From the same evaluations come

    shapc        the same half on both networks (common random numbers): mean of A-A and B-B
    independent  A of one with B of the other, and the reverse
    ceiling      A with B of the same network, mean of the two networks: what sampling noise leaves of a perfect score
    floor        independent with the positions of the second map shuffled: what chance gives
    doubled      the mean of both halves on both networks: what twice the budget of a half gives
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from perdure import explain
from perdure.audits.shapc.settings import FloatArray, Settings
from perdure.metrics.shapc import shapc_at_shares

Halves = tuple[NDArray[Any], NDArray[Any]]


def halves(network: nn.Module, x: Tensor, target: Any, background: Tensor, settings: Settings) -> Halves:
    """Return the maps of both halves of the budget, (n, channels, height, width) or (n, features)."""
    half = settings.samples // 2 if settings.draws else settings.samples
    maps = [
        explain.attribute(
            network,
            x,
            target,
            settings.method,
            background=background,
            samples=half,
            seed=2 * settings.seed + which,
            layer=settings.layer,
            batch_size=settings.batch_size,
        )
        for which in range(2 if settings.draws else 1)
    ]
    arrays = [_as_planes(found) for found in maps]
    return arrays[0], arrays[-1]


def _as_planes(maps: Tensor) -> NDArray[Any]:
    array: NDArray[Any] = maps.detach().cpu().numpy()
    return array[:, :, None, :] if array.ndim == 3 else array


def pair_values(before: Halves, after: Halves, keys: NDArray[np.int64], settings: Settings) -> dict[str, FloatArray]:
    """Return every quantity for each sample, and ``shapc`` at each share of the sensitivity table as ``shapc@0.1``.

    ``keys`` name the samples: the shuffled positions of the floor depend on them and the seed alone.
    """
    top = (settings.top,)
    same = (_consistency(before[0], after[0], settings.all_shares, settings)
            + _consistency(before[1], after[1], settings.all_shares, settings)) / 2  # fmt: skip
    shuffled = _shuffled(after, keys, settings.seed)
    values = {
        "shapc": same[:, 0],
        "independent": _crossed(before, after, top, settings),
        "ceiling": (ceiling(before, settings) + ceiling(after, settings)) / 2,
        "floor": _crossed(before, shuffled, top, settings),
        "doubled": _consistency(sum(before) / 2, sum(after) / 2, top, settings)[:, 0],
    }
    return values | {f"shapc@{share:g}": same[:, place] for place, share in enumerate(settings.all_shares)}


def ceiling(maps: Halves, settings: Settings) -> FloatArray:
    """Return the consistency of the two halves of one network."""
    return _consistency(maps[0], maps[1], (settings.top,), settings)[:, 0]


def _crossed(before: Halves, after: Halves, shares: tuple[float, ...], settings: Settings) -> FloatArray:
    there = _consistency(before[0], after[1], shares, settings)[:, 0]
    back = _consistency(before[1], after[0], shares, settings)[:, 0]
    return (there + back) / 2


def _consistency(first: Any, second: Any, shares: tuple[float, ...], settings: Settings) -> FloatArray:
    if settings.variant == "authors":
        return shapc_at_shares(first, second, shares, channels="sum", normalise="range")
    return shapc_at_shares(first, second, shares)


def _shuffled(maps: Halves, keys: NDArray[np.int64], seed: int) -> Halves:
    """Return both maps with the positions of every sample in a random order of its own, all channels alike."""
    first, second = (found.reshape(*found.shape[:-2], -1) if found.ndim == 4 else found[:, None] for found in maps)
    order = np.stack([np.random.default_rng([seed, int(key)]).permutation(first.shape[-1]) for key in keys])[:, None]
    moved = (np.take_along_axis(found, np.broadcast_to(order, found.shape), axis=-1) for found in (first, second))
    one, other = (found.reshape(maps[0].shape) for found in moved)
    return one, other


def predictions(network: nn.Module, x: Tensor, candidates: list[int] | None) -> NDArray[np.int64]:
    """Return the class the network decides for, among the candidates."""
    with torch.inference_mode():
        scores = network(x)
    if candidates is not None:
        allowed = torch.tensor(candidates, device=scores.device)
        return np.asarray(allowed[scores[:, allowed].argmax(dim=1)].cpu().numpy(), dtype=np.int64)
    return np.asarray(scores.argmax(dim=1).cpu().numpy(), dtype=np.int64)
