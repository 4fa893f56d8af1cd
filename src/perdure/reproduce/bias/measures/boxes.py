"""How well explainers localize the object in its bounding box, which neither bias nor SHAPC measures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from perdure.audits.bias.measure import BiasSettings, Progress
from perdure.base.errors import InputError
from perdure.metrics import Interval, Missing, interval
from perdure.metrics.missing import as_floats
from perdure.reproduce.bias.measures.pixel_maps import pixel_maps, pixel_maps_entry
from perdure.reproduce.bias.measures.regions import share_inside

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class BoxScores:
    """Scores of one explainer: hit rate of the pointing game and share of positive attribution in the box.

    Higher is better. ``hits_gain`` and ``share_gain`` are the differences from chance, computed per image.
    """

    method: str
    hits: Interval
    hits_gain: Interval
    share: Interval
    share_gain: Interval


@dataclass(frozen=True)
class BoxResult:
    """Scores of all explainers and controls on the same images.

    ``chance_hits`` and ``chance_share`` are the boxes' mean relative areas; for the pointing game only, boxes are enlarged
    by ``tolerance`` pixels.
    """

    explainers: tuple[BoxScores, ...]
    refused: dict[str, str]
    chance_hits: float
    chance_share: float
    tolerance: int
    examples: int

    def __getitem__(self, method: str) -> BoxScores:
        return pixel_maps_entry(self.explainers, method)


def measure_boxes(
    network: nn.Module,
    x: Tensor,
    target: Tensor,
    boxes: Any,
    *,
    background: Tensor,
    tolerance: int = 0,
    settings: BiasSettings | None = None,
    progress: Progress | None = None,
) -> BoxResult:
    """Return how well each explainer's pixel maps localize the boxes (n, 4), with chance levels and controls.

    Boxes are (left, top, right, bottom) in 0-based pixels; right and bottom are exclusive. Grad-CAM's map is upsampled to
    the image.
    """
    sides = (x.shape[-2], x.shape[-1])
    chance_hits, chance_share = (
        box_masks(boxes, sides, margin).mean(axis=(1, 2), dtype=np.float64) for margin in (tolerance, 0)
    )
    settings = settings or BiasSettings()
    seed = settings.seed
    maps_by_method, refused = pixel_maps(
        network, x, target, background=background, settings=settings, progress=progress
    )
    scores = []
    for name, flat in maps_by_method.items():
        maps = flat.reshape(len(x), *sides)
        hits, shares = pointing_hits(maps, boxes, tolerance), inside_shares(maps, boxes)
        scores.append(
            BoxScores(
                name,
                hits=_interval_over_examples(hits, seed),
                hits_gain=_interval_over_examples(hits - chance_hits, seed),
                share=_interval_over_examples(shares, seed),
                share_gain=_interval_over_examples(shares - chance_share, seed),
            )
        )
    return BoxResult(tuple(scores), refused, float(chance_hits.mean()), float(chance_share.mean()), tolerance, len(x))


def _interval_over_examples(values: FloatArray, seed: int) -> Interval:
    known = values[~np.isnan(values)]
    return interval(known if len(known) else [Missing("no map has a positive value")], seed=seed)


def box_masks(boxes: Any, sides: tuple[int, int], tolerance: int = 0) -> NDArray[np.bool_]:
    """Return (n, height, width): the pixels in each box (left, top, right, bottom; 0-based, right and bottom exclusive).

    ``tolerance``: pixels by which each box is enlarged on every side, up to the image's border.
    """
    corners = as_floats(boxes, "boxes", ndim=2)
    if corners.shape[1] != 4:
        raise InputError(f"boxes: expected 4 numbers each (left, top, right, bottom), got {corners.shape[1]}")
    if tolerance < 0:
        raise InputError(f"tolerance: expected at least 0 pixels, got {tolerance}")
    left, top, right, bottom = (corners[:, [i], None] for i in range(4))
    empty = (left >= right) | (top >= bottom)
    if empty.any():
        row = int(empty[:, 0, 0].argmax())
        raise InputError(f"boxes: the box of example {row} is empty: {corners[row].tolist()}")
    y, x = np.arange(sides[0])[None, :, None], np.arange(sides[1])[None, None, :]
    inside: NDArray[np.bool_] = (
        (x >= left - tolerance) & (x < right + tolerance) & (y >= top - tolerance) & (y < bottom + tolerance)
    )
    return inside


def pointing_hits(maps: Any, boxes: Any, tolerance: int = 0) -> FloatArray:
    """Return for each example whether its highest pixel lies in its box (the pointing game of Zhang et al. 2016).

    1: hit; 0: miss. If several pixels share the maximum, the score is the fraction of them in the box, so that a constant
    map scores chance. Chance is the fraction of the image that the enlarged box covers. NaN for a map of zeros.
    """
    values = as_floats(maps, "maps", ndim=3)
    inside = _inside(values, boxes, tolerance)
    highest = values == values.max(axis=(1, 2), keepdims=True)
    hits: FloatArray = (highest & inside).sum(axis=(1, 2)) / highest.sum(axis=(1, 2))
    hits[np.abs(values).max(axis=(1, 2)) == 0] = np.nan
    return hits


def inside_shares(maps: Any, boxes: Any) -> FloatArray:
    """Return for each example the fraction of its positive attribution inside its box; chance is the box's relative area.

    In [0, 1]; higher is better. NaN for a map without positive values.
    """
    values = as_floats(maps, "maps", ndim=3)
    inside = _inside(values, boxes, 0)
    return share_inside(np.maximum(values, 0.0).reshape(len(values), -1), inside.reshape(len(values), -1))


def _inside(values: FloatArray, boxes: Any, tolerance: int) -> NDArray[np.bool_]:
    inside = box_masks(boxes, (values.shape[1], values.shape[2]), tolerance)
    if len(inside) != len(values):
        raise InputError(f"boxes: expected one box per map ({len(values)}), got {len(inside)}")
    return inside
