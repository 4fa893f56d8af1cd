"""The pictures of the viewer: samples with their attribution maps under every learner and step, as compact PNG."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from perdure.audits import ViewedSample

ByteArray = NDArray[np.uint8]

LEVELS = 31  # shades on either side of zero: 63 in all, finer than the eye tells apart and small on disk
CLIPPED = 0.995  # of a sample's magnitudes lie within its colour scale; single pixels would make all others pale
MOST_BYTES = 9_000_000  # of encoded pictures, so that the page stays under 15 MB
_RED, _BLUE = (178, 24, 43), (33, 102, 172)  # ends of a scale that colour-blind readers can tell apart


def viewer_data(samples: Sequence[ViewedSample], most_bytes: int = MOST_BYTES) -> dict[str, Any] | None:
    """Return what the page's viewer needs, as JSON values; None without samples.

    All maps of a sample share one signed colour scale. Where the pictures would be too large together, samples are left
    out evenly and ``left_out`` says how many.
    """
    if not samples:
        return None
    learners = list(dict.fromkeys(learner for sample in samples for learner, _ in sample.maps))
    steps = sorted({step for sample in samples for _, step in sample.maps})
    encoded = [_sample_json(sample, learners, steps) for sample in samples]
    total = sum(len(one["image"]) + len(one["sheet"]) for one in encoded)
    kept = encoded
    if total > most_bytes:
        count = max(1, int(len(encoded) * most_bytes / total))
        kept = [encoded[place] for place in np.linspace(0, len(encoded) - 1, count).astype(int)]
    return {
        "learners": learners,
        "steps": [step + 1 for step in steps],
        "colours": ["#{:02x}{:02x}{:02x}".format(*_colour(place)) for place in (-LEVELS, 0, LEVELS)],
        "samples": kept,
        "left_out": len(encoded) - len(kept),
    }


def _sample_json(sample: ViewedSample, learners: Sequence[str], steps: Sequence[int]) -> dict[str, Any]:
    height, width = sample.image.shape[:2]
    limit = float(np.quantile(np.abs(list(sample.maps.values())), CLIPPED)) or 1.0
    sheet = np.full((height * len(learners), width * len(steps)), LEVELS, dtype=np.uint8)
    for (learner, step), values in sample.maps.items():
        row, column = learners.index(learner), steps.index(step)
        place = np.clip(np.rint(values / limit * LEVELS), -LEVELS, LEVELS) + LEVELS
        sheet[row * height : (row + 1) * height, column * width : (column + 1) * width] = place
    return {
        "label": sample.label,
        "task": sample.task + 1,
        "limit": limit,
        "image": _png(Image.fromarray(sample.image)),
        "sheet": _png(_coloured(sheet)),
        "size": [width, height],
        "predictions": [[sample.predictions.get((learner, step)) for step in steps] for learner in learners],
        "present": [[(learner, step) in sample.maps for step in steps] for learner in learners],
    }


def _coloured(sheet: ByteArray) -> Image.Image:
    """Return indices as a picture with a palette: one byte a pixel before compression instead of three."""
    picture = Image.fromarray(sheet, mode="P")
    picture.putpalette([part for place in range(-LEVELS, LEVELS + 1) for part in _colour(place)])
    return picture


def _colour(place: int) -> tuple[int, int, int]:
    """Return the colour of a level: blue takes away, white is nothing, red adds."""
    end, share = (_RED if place > 0 else _BLUE), abs(place) / LEVELS
    red, green, blue = (round(255 + (part - 255) * share) for part in end)
    return red, green, blue


def _png(picture: Image.Image) -> str:
    held = io.BytesIO()
    picture.save(held, format="PNG", optimize=True)
    return base64.b64encode(held.getvalue()).decode("ascii")
