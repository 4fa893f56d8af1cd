"""Who plays: which variables of a sample enter and leave a coalition together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from skimage.segmentation import slic
from torch import Tensor

from perdure.base.errors import InputError, suggest

KINDS = ("pixels", "features", "grid", "superpixels")
SHARED_BY_CHANNELS = ("pixels", "grid", "superpixels")
GRID_CELLS = 8
SUPERPIXELS = 50


@dataclass(frozen=True)
class Players:
    """``labels`` has the shape of one sample (or of a layer's output) and holds each variable's player, 0..count-1."""

    labels: Tensor
    count: int
    kind: str = "own"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the thing that is masked."""
        return tuple(self.labels.shape)

    def spread(self, values: Tensor) -> Tensor:
        """Return each player's value at all of its variables: (..., count) becomes (..., *shape)."""
        return values[..., self.labels.to(values.device)]

    def gather(self, variables: Tensor) -> Tensor:
        """Return the sum over each player's variables: (m, *shape) becomes (m, count)."""
        flat = variables.flatten(1)
        total = torch.zeros(len(flat), self.count, dtype=flat.dtype, device=flat.device)
        return total.index_add_(1, self.labels.to(flat.device).flatten(), flat)


def own_players(labels: Any) -> Players:
    """Make players from an array of labels with the shape of one sample; the labels are numbered anew from 0."""
    array = np.asarray(labels.detach().cpu() if isinstance(labels, Tensor) else labels)
    if array.size == 0 or not np.issubdtype(array.dtype, np.integer):
        raise InputError("players: expected an array of whole numbers, one label for each variable of a sample")
    _, numbered = np.unique(array, return_inverse=True)
    return Players(torch.from_numpy(numbered.reshape(array.shape)), int(numbered.max()) + 1)


def features(shape: tuple[int, ...]) -> Players:
    """Every single value is a player: the columns of a table row."""
    count = int(np.prod(shape))
    return Players(torch.arange(count).reshape(shape), count, "features")


def pixels(shape: tuple[int, ...]) -> Players:
    """Every position is a player, all channels together; a table row's columns if there are no channels."""
    if len(shape) < 2:
        return features(shape)
    count = int(np.prod(shape[1:]))
    return Players(torch.arange(count).reshape(1, *shape[1:]).expand(shape).clone(), count, "pixels")


def grid(shape: tuple[int, ...], cells: int = GRID_CELLS) -> Players:
    """Every cell of a grid is a player: ``cells`` along each of height and width, or along time."""
    if len(shape) < 2:
        raise InputError(f"players 'grid': a sample of shape {shape} has no positions; use 'features'")
    if cells < 1 or cells > min(shape[1:]):
        raise InputError(f"players 'grid': {cells} cells along a side, expected 1 to {min(shape[1:])}")
    label = torch.zeros(shape[1:], dtype=torch.int64)
    for axis, side in enumerate(shape[1:]):
        place = torch.arange(side) * cells // side
        label = label * cells + place.reshape([-1 if other == axis else 1 for other in range(len(shape) - 1)])
    return Players(label[None].expand(shape).clone(), cells ** (len(shape) - 1), "grid")


def superpixels(image: Tensor, count: int = SUPERPIXELS) -> Players:
    """Every superpixel is a player: SLIC (Achanta et al. 2012) finds about ``count`` of them in one image.

    Quickshift with its defaults, as LIME's authors use it, finds a single segment on a 32 x 32 image. Where SLIC too finds only
    one (a flat or a wholly random image), a grid of 8 x 8 cells takes its place.
    """
    if image.dim() != 3:
        raise InputError(f"players 'superpixels': found a sample of shape {tuple(image.shape)}, expected an image")
    plain = image.detach().cpu().numpy().astype(np.float64)
    span = plain.max() - plain.min()
    scaled = (plain - plain.min()) / (span if span > 0 else 1.0)
    segments = slic(scaled, n_segments=count, channel_axis=0, start_label=0, convert2lab=len(plain) == 3)
    found, numbered = np.unique(segments, return_inverse=True)
    if len(found) < 2:
        return grid(tuple(image.shape), min(GRID_CELLS, *image.shape[1:]))
    label = torch.from_numpy(numbered.reshape(plain.shape[1:]))
    return Players(label[None].expand(image.shape).clone(), int(label.max()) + 1, "superpixels")


def players_of(kind: Players | str | Any | None, sample: Tensor) -> Players:
    """Return the players of one sample by word, by labels, or by its shape: pixels, or columns of a table row."""
    if isinstance(kind, Players):
        chosen = kind
    elif kind is None:
        chosen = pixels(tuple(sample.shape))
    elif not isinstance(kind, str):
        chosen = own_players(kind)
    elif kind == "superpixels":
        chosen = superpixels(sample)
    elif kind in KINDS:
        chosen = {"pixels": pixels, "features": features, "grid": grid}[kind](tuple(sample.shape))
    else:
        raise InputError(f"players: unknown kind {kind!r}, {suggest(kind, list(KINDS))}; or give an array of labels")
    if chosen.shape != tuple(sample.shape):
        raise InputError(f"players: they have shape {chosen.shape}, one sample has {tuple(sample.shape)}")
    return chosen
