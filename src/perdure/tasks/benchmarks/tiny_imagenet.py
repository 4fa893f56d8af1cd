"""Tiny ImageNet with its bounding boxes, in the official layout: a folder or a zip file."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import numpy as np

from perdure.base.errors import InputError
from perdure.base.files import LONGEST_NAME
from perdure.tasks.benchmark import Source, Split
from perdure.tasks.files.archives import Files, open_files
from perdure.tasks.files.download import Remote, fetch, verify
from perdure.tasks.files.images import ImageReader
from perdure.tasks.registry import Description, register_benchmark

if TYPE_CHECKING:
    from collections.abc import Sequence

ARCHIVE = Remote(
    path="tiny-imagenet-200.zip",
    url="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
    digest="md5:90528d7ca1a48142e341f4ef8d21d0de",
    size=248100043,
)
_SIDE = 64
_COORDINATE = re.compile(r"-?[0-9]{1,5}")

Box = tuple[int, int, int, int]


@register_benchmark(
    Description(
        name="split-tiny-imagenet",
        title="64x64 photographs of Tiny ImageNet",
        classes=200,
        tasks=10,
        scenario="class",
        input_shape=(3, _SIDE, _SIDE),
        source=ARCHIVE.url,
        licence="ImageNet terms of access: non-commercial research",
        citation="Le & Yang 2015, Tiny ImageNet visual recognition challenge",
        download=ARCHIVE.size,
    )
)
def read_tiny_imagenet(folder: Path, progress: bool) -> Source:
    """Read the unpacked folder or the zip file; download the zip file if neither is there."""
    for root in (folder / "tiny-imagenet-200", folder):
        if (root / "wnids.txt").is_file():
            return tiny_imagenet_source(open_files(root))
    archive = folder / ARCHIVE.path
    path = verify(archive, ARCHIVE.digest) if archive.is_file() else fetch(ARCHIVE, folder, progress)
    return tiny_imagenet_source(open_files(path))


def tiny_imagenet_source(files: Files) -> Source:
    """Return the classes in the order of wnids.txt, with the labeled validation images as test set.

    The official test set has no labels. Gray images get three equal channels.
    """
    root = _root(files)
    wnids = files.text(f"{root}wnids.txt").split()
    class_words = dict(line.split("\t", 1) for line in _lines(files, f"{root}words.txt") if "\t" in line)
    train_names, train_labels = [], []
    images_by_folder = _images_by_folder(files)
    for number, wnid in enumerate(wnids):
        images = images_by_folder.get(f"{root}train/{wnid}/images", [])
        if not images:
            raise InputError(
                f"{files.path}: no images in {root}train/{wnid[:80]}/images, but wnids.txt lists this class."
            )
        train_names += images
        train_labels += [number] * len(images)
    numbers = {wnid: number for number, wnid in enumerate(wnids)}
    rows = [line.split("\t") for line in _lines(files, f"{root}val/val_annotations.txt")]
    rows = [row for row in rows if len(row) > 1 and row[1] in numbers]
    if {row[1] for row in rows} != set(wnids):
        raise InputError(f"{files.path}: expected at least one image of every class in {root}val/val_annotations.txt.")
    boxes = read_tiny_imagenet_boxes(files)
    if not wnids or len(numbers) < len(wnids):
        raise InputError(f"{files.path}: expected one class per line in {root}wnids.txt, each once.")
    names = [class_words.get(wnid, wnid).split(",")[0][:LONGEST_NAME] for wnid in wnids]
    counts = Counter(names)
    return Source(
        train=_split(files, train_names, train_labels, boxes),
        test=_split(files, [f"{root}val/images/{row[0]}" for row in rows], [numbers[row[1]] for row in rows], boxes),
        class_names=tuple(
            name if counts[name] == 1 else f"{name} ({wnid})" for name, wnid in zip(names, wnids, strict=True)
        ),
        mean=(0.4802, 0.4480, 0.3975),
        std=(0.2770, 0.2691, 0.2821),
        augmentation="crop-flip",
        provenance={"files": [files.path.name]},
    )


def read_tiny_imagenet_boxes(files: Files | str | Path) -> dict[str, Box]:
    """Return the bounding box of each image by file name: left, top, right, bottom from 0; right and bottom exclusive."""
    opened = files if isinstance(files, Files) else open_files(Path(files))
    root = _root(opened)
    lists = [(name, 1) for name in opened.under(f"{root}train/") if name.endswith("_boxes.txt")]
    boxes: dict[str, Box] = {}
    for listing, first in [*lists, (f"{root}val/val_annotations.txt", 2)]:
        for number, line in enumerate(_lines(opened, listing), 1):
            cells = line.split("\t")
            edges = [int(cell) for cell in cells[first : first + 4] if _COORDINATE.fullmatch(cell)]
            if len(edges) != 4:
                raise InputError(
                    f"{opened.path}: {listing}, line {number}: expected four integers for the box, got {line[:80]!r}."
                )
            left, top, right, bottom = edges
            boxes[cells[0]] = (left, top, right + 1, bottom + 1)
    return boxes


def is_tiny_imagenet(files: Files) -> bool:
    """Return whether wnids.txt is at the top, or one folder below it as in the official zip file."""
    listing = files.find("wnids.txt")
    return listing is not None and listing.count("/") <= 1


def _root(files: Files) -> str:
    listing = files.find("wnids.txt")
    if listing is None:
        raise InputError(f"{files.path}: no wnids.txt in it. Expected the official layout of Tiny ImageNet.")
    return listing.removesuffix("wnids.txt")


def _lines(files: Files, name: str) -> list[str]:
    return [line for line in files.text(name).splitlines() if line.strip()]


def _images_by_folder(files: Files) -> dict[str, list[str]]:
    """Return the names of the JPEG files of each folder, in the order of their numbers."""
    by_folder: dict[str, list[str]] = {}
    for name in files.names:
        if name.endswith(".JPEG"):
            by_folder.setdefault(str(PurePosixPath(name).parent), []).append(name)
    for names in by_folder.values():
        names.sort(key=lambda name: (len(name), name))
    return by_folder


def _split(files: Files, names: Sequence[str], labels: list[int], boxes: dict[str, Box]) -> Split:
    full_image = (0, 0, _SIDE, _SIDE)
    corners = [boxes.get(PurePosixPath(name).name, full_image) for name in names]
    return Split(
        y=np.array(labels, dtype=np.int64),
        take=ImageReader(files, tuple(names), (_SIDE, _SIDE)),
        boxes=np.array(corners, dtype=np.int64),
    )
