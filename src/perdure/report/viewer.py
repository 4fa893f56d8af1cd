"""The data of the viewer: test examples with the attribution maps of every learner and step, as compact PNG images."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from perdure.audits import ExampleView

ByteArray = NDArray[np.uint8]

LEVELS = 31  # color levels on either side of zero, 63 in all: visually smooth and small on disk
CLIP_QUANTILE = 0.995  # of an example's magnitudes; without clipping, a few extreme pixels make all others pale
MAX_BYTES = 9_000_000  # of encoded images, so that the page stays below 15 MB
_RED, _BLUE = (178, 24, 43), (33, 102, 172)  # ends of the scale, distinguishable for color-blind readers


def viewer_data(
    examples: Sequence[ExampleView], order: Sequence[str] = (), max_bytes: int = MAX_BYTES
) -> dict[str, Any] | None:
    """Return the data of the page's viewer as JSON values; None if there are no examples. ``order``: learners, first to last.

    All maps of an example share one signed color scale. If the images exceed ``max_bytes``, an evenly spaced subset of the
    examples is used and ``left_out`` counts the others.
    """
    if not examples:
        return None
    found = list(dict.fromkeys(learner for example in examples for learner, _ in example.maps))
    learners = [name for name in dict.fromkeys(order) if name in found] + [name for name in found if name not in order]
    steps = sorted({step for example in examples for _, step in example.maps})
    encoded = [_example_json(example, learners, steps) for example in examples]
    total = sum(_bytes(example) for example in encoded)
    included = encoded
    if total > max_bytes:
        count = max(1, int(len(encoded) * max_bytes / total))
        included = [encoded[index] for index in np.linspace(0, len(encoded) - 1, count).astype(int)]
    return {
        "learners": learners,
        "steps": [step + 1 for step in steps],
        "colors": ["#{:02x}{:02x}{:02x}".format(*_level_color(level)) for level in (-LEVELS, 0, LEVELS)],
        "examples": included,
        "left_out": len(encoded) - len(included),
    }


def _bytes(example: dict[str, Any]) -> int:
    """Return about how much space an example takes on the page."""
    if "names" in example:
        return sum(map(len, example["names"])) + 4 * sum(len(row or ()) for rows in example["levels"] for row in rows)
    return len(example["image"]) + len(example["sheet"])


def _example_json(example: ExampleView, learners: Sequence[str], steps: Sequence[int]) -> dict[str, Any]:
    limit = float(np.quantile(np.abs(list(example.maps.values())), CLIP_QUANTILE)) or 1.0
    shared = {
        "label": example.label,
        "task": example.task + 1,
        "limit": limit,
        "kind": example.kind,
        "predictions": [[example.predictions.get((learner, step)) for step in steps] for learner in learners],
        "present": [[(learner, step) in example.maps for step in steps] for learner in learners],
    }
    if example.image is None:
        named = [
            [
                color_levels(example.maps[learner, step], limit) if (learner, step) in example.maps else None
                for step in steps
            ]
            for learner in learners
        ]
        return {**shared, "names": list(example.names), "levels": named}
    height, width = example.image.shape[:2]
    sheet = np.full((height * len(learners), width * len(steps)), LEVELS, dtype=np.uint8)
    for (learner, step), values in example.maps.items():
        row, column = learners.index(learner), steps.index(step)
        levels = np.clip(np.rint(values / limit * LEVELS), -LEVELS, LEVELS) + LEVELS
        sheet[row * height : (row + 1) * height, column * width : (column + 1) * width] = levels
    return {
        **shared,
        "image": png_text(Image.fromarray(example.image)),
        "sheet": png_text(palette_image(sheet)),
        "size": [width, height],
    }


def color_levels(values: NDArray[np.float64], limit: float) -> list[int]:
    """Return the color levels of words or features, from -100 to 100."""
    return [int(level) for level in np.clip(np.rint(values / limit * 100), -100, 100)]


def palette_image(sheet: ByteArray) -> Image.Image:
    """Return the levels as an image with a palette, which needs one byte per pixel instead of three."""
    image = Image.fromarray(sheet, mode="P")
    image.putpalette([part for level in range(-LEVELS, LEVELS + 1) for part in _level_color(level)])
    return image


def _level_color(level: int) -> tuple[int, int, int]:
    """Return the color of a level: red for positive, white for zero, blue for negative attribution."""
    end, share = (_RED if level > 0 else _BLUE), abs(level) / LEVELS
    red, green, blue = (round(255 + (part - 255) * share) for part in end)
    return red, green, blue


def png_text(image: Image.Image) -> str:
    """Return an image as base64 text of a PNG file."""
    buffer = io.BytesIO()
    image.save(buffer, format="PNG", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode("ascii")
