"""Images of a user: train/<class>/* and test/<class>/* (or val/), in a folder or a zip file."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from perdure.base.errors import InputError
from perdure.tasks.benchmark import Source, Split
from perdure.tasks.files.archives import open_files
from perdure.tasks.files.images import SUFFIXES, ImageReader, open_image

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perdure.tasks.files.archives import Files

_SIDE = 64  # pixels, if the images differ in size


def image_folder_source(files: Files) -> Source:
    """Return the images with classes in the order of the folder names.

    Images of one common size keep it. Otherwise the shorter side is scaled to 64 pixels and the center is cropped. There
    is one channel if all images are gray, otherwise three.
    """
    names = [name for name in files.names if name.lower().endswith(SUFFIXES)]
    parts = {part: _by_class(names, part) for part in ("train", "test", "val")}
    train, test = parts["train"], parts["test"] or parts["val"]
    for pattern, images in (("train/<class>/", train), ("test/<class>/ or val/<class>/", test)):
        if not images:
            raise InputError(f"{files.path}: no images in {pattern}. Expected files with suffix {' '.join(SUFFIXES)}.")
    for label in sorted(train.keys() ^ test.keys()):
        part = "training" if label in test else "test"
        raise InputError(
            f"{files.path}: class {label!r} has no {part} images. Every class needs training and test images."
        )
    shape, channels, fit = _common_format(
        files, [name for images in (train, test) for class_images in images.values() for name in class_images]
    )
    classes = sorted(train)

    def split(images: dict[str, list[str]]) -> Split:
        rows = [(number, name) for number, label in enumerate(classes) for name in images[label]]
        reader = ImageReader(files, tuple(name for _, name in rows), shape, channels, fit)
        return Split(y=np.array([number for number, _ in rows], dtype=np.int64), take=reader)

    return Source(
        train=split(train),
        test=split(test),
        class_names=tuple(classes),
        provenance={"files": [files.path.name], **({"resized_to": list(shape)} if fit == "cover" else {})},
    )


def labelled_images(path: Path) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the images of ``<class>/*`` in a folder as float32 from 0 to 1, and the number of each image's class.

    Classes are numbered from 0 in the order of the folder names. All images must have one size.
    """
    files = open_files(path)
    names = sorted(name for name in files.names if name.lower().endswith(SUFFIXES))
    classes = sorted({PurePosixPath(name).parts[-2] for name in names if len(PurePosixPath(name).parts) > 1})
    labelled = [(classes.index(PurePosixPath(name).parts[-2]), name) for name in names if "/" in name]
    if len(classes) < 1 or not labelled:
        raise InputError(f"{path}: no images in <class>/. Expected files with suffix {' '.join(SUFFIXES)}.")
    shape, channels, fit = _common_format(files, [name for _, name in labelled])
    if fit != "exact":
        raise InputError(f"{path}: expected images of one size. Resize them, or pass a function that reads them.")
    reader = ImageReader(files, tuple(name for _, name in labelled), shape, channels, fit)
    images = np.asarray(reader(np.arange(len(labelled))), dtype=np.float32) / 255
    return images, np.array([number for number, _ in labelled], dtype=np.int64)


def _by_class(names: list[str], part: str) -> dict[str, list[str]]:
    """Return the images of one part by class. The folders train/ and test/ may be inside one common folder."""
    images: dict[str, list[str]] = {}
    for name in sorted(names):
        folders = PurePosixPath(name).parts
        if part in folders[:2] and len(folders) > folders.index(part) + 2:
            images.setdefault(folders[folders.index(part) + 1], []).append(name)
    return images


def _common_format(files: Files, names: list[str]) -> tuple[tuple[int, int], Literal[1, 3], Literal["exact", "cover"]]:
    """Return size, channels and fit that suit all images, from their headers."""
    sizes, modes = set(), set()
    for name in names:
        header = open_image(files, name)
        sizes.add((header.height, header.width))
        modes.add(header.mode)
    channels: Literal[1, 3] = 1 if modes <= {"1", "L"} else 3
    return (next(iter(sizes)), channels, "exact") if len(sizes) == 1 else ((_SIDE, _SIDE), channels, "cover")
