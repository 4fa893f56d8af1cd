"""Players: groups of variables of an example that are present or absent together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from skimage.segmentation import slic
from torch import Tensor

from perdure.base.errors import InputError, error_suggestion

KINDS = ("pixels", "features", "grid", "superpixels")
SHARED_BY_CHANNELS = ("pixels", "grid", "superpixels")
GRID_CELLS = 8
SUPERPIXELS = 50


@dataclass(frozen=True)
class Players:
    """A partition of the variables into players.

    ``labels`` has the shape of one example (or of a layer's output) and holds the player of each variable, 0 to count - 1.
    ``kind`` is one of `KINDS`, or ``"own"`` for labels that a user gave.
    """

    labels: Tensor
    count: int
    kind: str = "own"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the masked example or layer output."""
        return tuple(self.labels.shape)

    def spread(self, values: Tensor) -> Tensor:
        """Write each player's value to all of its variables: (..., count) becomes (..., *shape)."""
        return values[..., self.labels.to(values.device)]

    def gather(self, variables: Tensor) -> Tensor:
        """Sum the variables of each player: (m, *shape) becomes (m, count)."""
        flat = variables.flatten(1)
        total = torch.zeros(len(flat), self.count, dtype=flat.dtype, device=flat.device)
        return total.index_add_(1, self.labels.to(flat.device).flatten(), flat)


def players_from_labels(labels: Any) -> Players:
    """Return players from an integer array of labels with the shape of one example; labels are renumbered from 0.

    Examples
    --------
    >>> from perdure import explain
    >>> players = explain.players_from_labels([7, 7, 3, 3])  # two groups of columns
    >>> players.count, players.labels.tolist()
    (2, [1, 1, 0, 0])
    """
    array = np.asarray(labels.detach().cpu() if isinstance(labels, Tensor) else labels)
    if array.size == 0 or not np.issubdtype(array.dtype, np.integer):
        raise InputError(
            f"players: expected an array of integers, one label for each variable of an example, got shape {array.shape} "
            f"and type {array.dtype}"
        )
    _, numbered = np.unique(array, return_inverse=True)
    return Players(torch.from_numpy(numbered.reshape(array.shape)), int(numbered.max()) + 1)


def feature_players(shape: tuple[int, ...]) -> Players:
    """Return players for single variables, such as the columns of a table.

    Examples
    --------
    >>> from perdure import explain
    >>> players = explain.feature_players((4,))  # four columns
    >>> players.count, players.labels.tolist()
    (4, [0, 1, 2, 3])
    """
    count = int(np.prod(shape))
    return Players(torch.arange(count).reshape(shape), count, "features")


def pixel_players(shape: tuple[int, ...]) -> Players:
    """Return players for positions, each with all channels; for single variables if there are no channels.

    Examples
    --------
    >>> from perdure import explain
    >>> players = explain.pixel_players((3, 2, 2))  # three channels, 2 x 2 pixels
    >>> players.count
    4
    >>> players.labels[0].tolist()  # the same in each channel
    [[0, 1], [2, 3]]
    """
    if len(shape) < 2:
        return feature_players(shape)
    count = int(np.prod(shape[1:]))
    return Players(torch.arange(count).reshape(1, *shape[1:]).expand(shape).clone(), count, "pixels")


def grid_players(shape: tuple[int, ...], cells: int = GRID_CELLS) -> Players:
    """Return players for the cells of a grid with ``cells`` cells along height and width, or along time.

    Examples
    --------
    >>> from perdure import explain
    >>> players = explain.grid_players((1, 4, 4), cells=2)
    >>> players.count
    4
    >>> players.labels[0].tolist()
    [[0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 3, 3], [2, 2, 3, 3]]
    """
    if len(shape) < 2:
        raise InputError(f"players 'grid': an example of shape {shape} has no positions; use 'features'")
    if cells < 1 or cells > min(shape[1:]):
        raise InputError(f"players 'grid': expected 1 to {min(shape[1:])} cells per side, got {cells}")
    label = torch.zeros(shape[1:], dtype=torch.int64)
    for axis, side in enumerate(shape[1:]):
        cell = torch.arange(side) * cells // side
        label = label * cells + cell.reshape([-1 if dimension == axis else 1 for dimension in range(len(shape) - 1)])
    return Players(label[None].expand(shape).clone(), cells ** (len(shape) - 1), "grid")


def superpixel_players(image: Tensor, count: int = SUPERPIXELS) -> Players:
    """Return players for the superpixels of an image: about ``count`` segments by SLIC (Achanta et al. 2012).

    Quickshift with its default settings, which LIME's authors use, finds a single segment in a 32 x 32 image. If SLIC also
    finds only one (a constant image or pure noise), a grid of 8 x 8 cells is used.

    Examples
    --------
    >>> import torch
    >>> from perdure import explain
    >>> image = torch.zeros(3, 16, 16)
    >>> image[:, :, 8:] = 1  # a dark and a bright half
    >>> labels = explain.superpixel_players(image, count=4).labels[0]
    >>> # no segment is in both
    >>> set(labels[:, :8].flatten().tolist()) & set(labels[:, 8:].flatten().tolist())
    set()
    """
    if image.dim() != 3:
        raise InputError(
            f"players 'superpixels': expected an image (channels, height, width), got shape {tuple(image.shape)}"
        )
    array = image.detach().cpu().numpy().astype(np.float64)
    span = array.max() - array.min()
    scaled = (array - array.min()) / (span if span > 0 else 1.0)
    segments = slic(scaled, n_segments=count, channel_axis=0, start_label=0, convert2lab=len(array) == 3)
    names, numbered = np.unique(segments, return_inverse=True)
    if len(names) < 2:
        return grid_players(tuple(image.shape), min(GRID_CELLS, *image.shape[1:]))
    label = torch.from_numpy(numbered.reshape(array.shape[1:]))
    return Players(label[None].expand(image.shape).clone(), int(label.max()) + 1, "superpixels")


def players_of(kind: Players | str | Any | None, example: Tensor) -> Players:
    """Return the players of one example. ``kind``: one of `KINDS`, an array of labels, or None for pixels or columns."""
    if isinstance(kind, Players):
        players = kind
    elif kind is None:
        players = pixel_players(tuple(example.shape))
    elif not isinstance(kind, str):
        players = players_from_labels(kind)
    elif kind == "superpixels":
        players = superpixel_players(example)
    elif kind in KINDS:
        players = {"pixels": pixel_players, "features": feature_players, "grid": grid_players}[kind](
            tuple(example.shape)
        )
    else:
        raise InputError(
            f"players: unknown kind {kind!r}, {error_suggestion(kind, list(KINDS))}; or pass an array of labels"
        )
    if players.shape != tuple(example.shape):
        raise InputError(
            f"players: expected labels of shape {tuple(example.shape)}, the shape of one example, got {players.shape}"
        )
    return players


def player_count(players: Any) -> int:
    """Return the number of players as an int; anything but a positive integer raises `InputError`."""
    if isinstance(players, bool) or not isinstance(players, int | np.integer) or players < 1:
        raise InputError(f"players: expected a positive integer, got {players!r}")
    return int(players)
