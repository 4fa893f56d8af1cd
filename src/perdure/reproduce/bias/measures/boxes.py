"""How well explainers localize the object in its bounding box, which neither bias nor SHAPC measures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from perdure.audits.bias.measure import BiasSettings, Progress
from perdure.metrics import Interval, Missing, interval
from perdure.reproduce.bias.measures.pixel_maps import entry_of, pixel_maps
from perdure.reproduce.bias.metrics import box_masks, inside_shares, pointing_hits

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
        return entry_of(self.explainers, method)


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
