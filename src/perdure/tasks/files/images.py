"""Image files become arrays: several at a time, in the given rows' order, each file decoded once."""

from __future__ import annotations

import io
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from PIL import Image, UnidentifiedImageError

from perdure.base.errors import InputError
from perdure.tasks.files.wording import reason

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perdure.tasks.files.archives import Files

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


@dataclass(frozen=True, eq=False)
class Pictures:
    """Rows of images, read when asked for as uint8 (n, channels, size, size).

    ``crops`` cut each row's object (left, top, right, bottom) out of its image first. ``fit`` says how an
    image of another shape becomes ``shape``: ``exact`` refuses it, ``stretch`` ignores its aspect,
    ``cover`` scales its shorter side and cuts the middle out.
    """

    files: Files
    names: tuple[str, ...]
    shape: tuple[int, int]
    channels: Literal[1, 3] = 3
    fit: Literal["exact", "stretch", "cover"] = "exact"
    crops: NDArray[np.int64] | None = None

    def __call__(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Read the given rows."""
        out = np.empty((len(rows), self.channels, *self.shape), dtype=np.uint8)
        by_file: dict[str, list[int]] = {}
        for place, row in enumerate(rows):
            by_file.setdefault(self.names[row], []).append(place)

        def fill(name: str) -> None:
            image = open_image(self.files, name, "L" if self.channels == 1 else "RGB")
            for place in by_file[name]:
                pixels = np.asarray(self._fitted(name, self._cropped(image, rows[place])))
                out[place] = pixels.reshape(*self.shape, self.channels).transpose(2, 0, 1)

        with ThreadPoolExecutor(os.cpu_count()) as pool:  # Pillow decodes outside the interpreter's lock
            list(pool.map(fill, by_file))
        return out

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
                f"{self.files.path}: {name} is {image.width} x {image.height}, expected {width} x {height}"
            )
        if self.fit == "stretch":
            return image.resize((width, height), Image.Resampling.BILINEAR)
        scale = max(width / image.width, height / image.height)
        wide, high = max(width, round(image.width * scale)), max(height, round(image.height * scale))
        left, top = (wide - width) // 2, (high - height) // 2
        return image.resize((wide, high), Image.Resampling.BILINEAR).crop((left, top, left + width, top + height))


def open_image(files: Files, name: str, mode: str | None = None) -> Image.Image:
    """Return the decoded image, or only its header when no mode is asked for."""
    try:
        image = Image.open(io.BytesIO(files.read(name)))
        return image if mode is None else image.convert(mode)
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, SyntaxError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{files.path}: {name} is not an image that can be read ({reason(error)})") from error
