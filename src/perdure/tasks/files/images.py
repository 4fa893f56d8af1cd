"""Reading of image files as arrays, in parallel; each file is decoded once."""

from __future__ import annotations

import io
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from PIL import Image

from perdure.base.errors import InputError, error_message
from perdure.base.files import shorten_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perdure.tasks.files.archives import Files

MOST_PIXELS = 2**25
"""Pixels of an image: 100 MB in color."""
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")  # Pillow has readers that start other programs
SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


@dataclass(frozen=True, eq=False)
class ImageReader:
    """Reads rows of images on request, as uint8 (n, channels, height, width).

    ``crops`` holds one box (left, top, right, bottom) per row, which is cropped from the image first. ``fit`` says what
    happens to an image whose size is not ``shape``: ``exact`` raises an error, ``stretch`` resizes it without keeping the
    aspect ratio, ``cover`` scales it until it covers ``shape`` and crops the center.
    """

    files: Files
    names: tuple[str, ...]
    shape: tuple[int, int]
    channels: Literal[1, 3] = 3
    fit: Literal["exact", "stretch", "cover"] = "exact"
    crops: NDArray[np.int64] | None = None

    def __call__(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return the images of these rows, in this order."""
        images = np.empty((len(rows), self.channels, *self.shape), dtype=np.uint8)
        positions: dict[str, list[int]] = {}
        for position, row in enumerate(rows):
            positions.setdefault(self.names[row], []).append(position)

        def fill(name: str) -> None:
            image = open_image(self.files, name, "L" if self.channels == 1 else "RGB")
            for position in positions[name]:
                pixels = np.asarray(self._fitted(name, self._cropped(image, rows[position])))
                images[position] = pixels.reshape(*self.shape, self.channels).transpose(2, 0, 1)

        with ThreadPoolExecutor(os.cpu_count()) as pool:  # Pillow releases the global interpreter lock while decoding
            list(pool.map(fill, positions))
        return images

    def _cropped(self, image: Image.Image, row: np.int64) -> Image.Image:
        if self.crops is None:
            return image
        left, top, right, bottom = self.crops[row].tolist()
        return image.crop((left, top, right, bottom))

    def _fitted(self, name: str, image: Image.Image) -> Image.Image:
        height, width = self.shape
        if image.size == (width, height):
            return image
        if self.fit == "exact":
            raise InputError(
                f"{self.files.path}: expected {shorten_text(name)} to have {width} x {height} pixels, got {image.width} x"
                f" {image.height}."
            )
        if self.fit == "stretch":
            return image.resize((width, height), Image.Resampling.BILINEAR)
        scale = max(width / image.width, height / image.height)
        scaled = max(width, round(image.width * scale)), max(height, round(image.height * scale))
        left, top = (scaled[0] - width) // 2, (scaled[1] - height) // 2
        return image.resize(scaled, Image.Resampling.BILINEAR).crop((left, top, left + width, top + height))


def _check_pixels(expected: str, image: Image.Image) -> None:
    if image.width * image.height > MOST_PIXELS:
        raise InputError(f"{expected} to have at most {MOST_PIXELS} pixels, got {image.width} x {image.height}.")


def open_image(files: Files, name: str, mode: str | None = None) -> Image.Image:
    """Return the image converted to ``mode``; without a mode, only its header is read."""
    try:
        image = Image.open(io.BytesIO(files.read(name)), formats=_FORMATS)
        _check_pixels(f"{files.path}: expected {shorten_text(name)}", image)
        return image if mode is None else image.convert(mode)
    except InputError:
        raise
    except Exception as error:  # Pillow raises many kinds for damaged files
        raise InputError(
            f"{files.path}: {shorten_text(name)} is not a readable image ({error_message(error)})."
        ) from error
