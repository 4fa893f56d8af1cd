"""Do explainers point at the object, where its box is known? Neither bias nor stability sees that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from perdure.audits.bias.measure import METHODS, Progress
from perdure.metrics import Interval, Missing, interval
from perdure.reproduce.bias.measures.pixel_maps import entry_of, pixel_maps
from perdure.reproduce.bias.metrics import box_masks, inside_shares, pointing_hits

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class BoxScores:
    """One explainer: hits of the pointing game, and the share of positive attribution in the box; higher is better.

    ``hits_gain`` and ``share_gain`` are how far each is above chance, image by image.
    """

    method: str
    hits: Interval
    hits_gain: Interval
    share: Interval
    share_gain: Interval


@dataclass(frozen=True)
class BoxResult:
    """All explainers and controls on the same images; ``chance_hits`` and ``chance_share`` are the boxes' mean areas.

    The box is enlarged by ``tolerance`` pixels for the pointing game only.
    """

    explainers: tuple[BoxScores, ...]
    refused: dict[str, str]
    chance_hits: float
    chance_share: float
    tolerance: int
    samples: int

    def __getitem__(self, method: str) -> BoxScores:
        return entry_of(self.explainers, method)


def measure_boxes(
    network: nn.Module,
    x: Tensor,
    target: Tensor,
    boxes: Any,
    *,
    background: Tensor,
    methods: str | Sequence[str] = METHODS,
    tolerance: int = 0,
    budget: int = 100,
    layer: str | None = None,
    seed: int = 0,
    batch_size: int | None = None,
    progress: Progress | None = None,
) -> BoxResult:
    """Return how well each explainer's pixel maps find the boxes (n, 4), beside chance and the controls.

    Boxes are left, top, right, bottom in pixels from 0, the last two exclusive. Grad-CAM's map is the enlarged one.
    """
    sides = (x.shape[-2], x.shape[-1])
    chance_hits, chance_share = (
        box_masks(boxes, sides, wider).mean(axis=(1, 2), dtype=np.float64) for wider in (tolerance, 0)
    )
    drawn, refused = pixel_maps(
        network,
        x,
        target,
        methods,
        background=background,
        budget=budget,
        layer=layer,
        seed=seed,
        batch_size=batch_size,
        progress=progress,
    )
    found = []
    for name, flat in drawn.items():
        maps = flat.reshape(len(x), *sides)
        hits, shares = pointing_hits(maps, boxes, tolerance), inside_shares(maps, boxes)
        found.append(
            BoxScores(
                name,
                hits=_over(hits, seed),
                hits_gain=_over(hits - chance_hits, seed),
                share=_over(shares, seed),
                share_gain=_over(shares - chance_share, seed),
            )
        )
    return BoxResult(tuple(found), refused, float(chance_hits.mean()), float(chance_share.mean()), tolerance, len(x))


def _over(values: FloatArray, seed: int) -> Interval:
    known = values[~np.isnan(values)]
    return interval(known if len(known) else [Missing("no map has a positive value")], seed=seed)
