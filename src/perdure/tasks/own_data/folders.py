"""A user's own images: train/<class>/* and test/<class>/* (or val/), in a folder or a zip file."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Literal

import numpy as np

from perdure.base.errors import InputError
from perdure.tasks.files.images import SUFFIXES, Pictures, open_image
from perdure.tasks.source import Source, Split

if TYPE_CHECKING:
    from perdure.tasks.files.archives import Files

_SIDE = 64  # of images that come in several sizes


def folder_source(files: Files) -> Source:
    """Return the images, classes in the order of their folders' names.

    Images that all have one size keep it; otherwise the shorter side becomes 64 pixels and the middle is
    cut out. If all are grey there is one channel, else three.
    """
    names = [name for name in files.names if name.lower().endswith(SUFFIXES)]
    by_side = {side: _by_class(names, side) for side in ("train", "test", "val")}
    train, test = by_side["train"], by_side["test"] or by_side["val"]
    for what, found in (("train/<class>/", train), ("test/<class>/ or val/<class>/", test)):
        if not found:
            raise InputError(f"{files.path}: no images in {what}, expected {' '.join(SUFFIXES)} files there")
    for label in sorted(train.keys() ^ test.keys()):
        side = "training" if label in test else "test"
        raise InputError(f"{files.path}: class {label!r} has no {side} images, every class needs both")
    shape, channels, fit = _common_form(
        files, [name for side in (train, test) for part in side.values() for name in part]
    )
    classes = sorted(train)

    def split(images: dict[str, list[str]]) -> Split:
        rows = [(number, name) for number, label in enumerate(classes) for name in images[label]]
        pictures = Pictures(files, tuple(name for _, name in rows), shape, channels, fit)
        return Split(y=np.array([number for number, _ in rows], dtype=np.int64), take=pictures)

    return Source(
        train=split(train),
        test=split(test),
        class_names=tuple(classes),
        about={"files": [files.path.name], **({"resized_to": list(shape)} if fit == "cover" else {})},
    )


def _by_class(names: list[str], side: str) -> dict[str, list[str]]:
    """Return the images of one side by class; one folder above train/ and test/ is ignored."""
    found: dict[str, list[str]] = {}
    for name in sorted(names):
        parts = PurePosixPath(name).parts
        if side in parts[:2] and len(parts) > parts.index(side) + 2:
            found.setdefault(parts[parts.index(side) + 1], []).append(name)
    return found


def _common_form(files: Files, names: list[str]) -> tuple[tuple[int, int], Literal[1, 3], Literal["exact", "cover"]]:
    """Look at the headers: one size or several, all grey or not."""
    sizes, modes = set(), set()
    for name in names:
        header = open_image(files, name)
        sizes.add((header.height, header.width))
        modes.add(header.mode)
    channels: Literal[1, 3] = 1 if modes <= {"1", "L"} else 3
    return (next(iter(sizes)), channels, "exact") if len(sizes) == 1 else ((_SIDE, _SIDE), channels, "cover")
