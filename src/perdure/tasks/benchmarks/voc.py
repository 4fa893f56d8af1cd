"""Pascal VOC 2012: objects cut out of the photographs by their boxes, as in the attribution-bias study."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import numpy as np

from perdure.base.errors import InputError
from perdure.tasks.files.archives import Files, open_files
from perdure.tasks.files.download import Remote, fetch, verify
from perdure.tasks.files.images import Pictures
from perdure.tasks.files.wording import reason
from perdure.tasks.source import Source, Split

if TYPE_CHECKING:
    from pathlib import Path

ARCHIVE = Remote(
    path="VOCtrainval_11-May-2012.tar",
    url="http://host.robots.ox.ac.uk/pascal/VOC/voc2012/VOCtrainval_11-May-2012.tar",
    digest="md5:6cd6e144f989b92b3379bac3b3de84fd",
    size=1999639040,
)
CLASSES = (
    "aeroplane",
    "bicycle",
    "bird",
    "boat",
    "bottle",
    "bus",
    "car",
    "cat",
    "chair",
    "cow",
    "diningtable",
    "dog",
    "horse",
    "motorbike",
    "person",
    "pottedplant",
    "sheep",
    "sofa",
    "train",
    "tvmonitor",
)


def read_voc(side: int, folder: Path, progress: bool) -> Source:
    """Read the unpacked VOCdevkit if it is there, else the tar file, else download it."""
    for place in (folder / "VOCdevkit" / "VOC2012", folder / "VOC2012", folder):
        if (place / "ImageSets" / "Main" / "train.txt").is_file():
            return voc_source(open_files(place), side)
    archive = folder / ARCHIVE.path
    path = verify(archive, ARCHIVE.digest) if archive.is_file() else fetch(ARCHIVE, folder, progress)
    return voc_source(open_files(path), side)


def voc_source(files: Files, side: int) -> Source:
    """Return the objects of the official train and val lists, the latter as test set, stretched to a square.

    Objects marked difficult are left out, as in VOC's own evaluation.
    """
    listing = files.find("ImageSets/Main/train.txt")
    if listing is None:
        raise InputError(f"{files.path}: no ImageSets/Main/train.txt in it, expected VOC 2012's official layout")
    root = listing.removesuffix("ImageSets/Main/train.txt")
    train, test = (_split(files, root, part, side) for part in ("train", "val"))
    present = np.intersect1d(train.y, test.y)
    for split, part in ((train, "train"), (test, "val")):
        lonely = np.setdiff1d(split.y, present)
        if len(lonely):
            raise InputError(f"{files.path}: {CLASSES[lonely[0]]!r} is in the {part} list only, every class needs both")
    if len(present) < len(CLASSES):  # a part of the data set, in its layout
        train, test = (Split(np.searchsorted(present, split.y), split.take) for split in (train, test))
    return Source(
        train=train,
        test=test,
        class_names=tuple(CLASSES[label] for label in present),
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
        augmentation="crop-flip",
        about={"files": [files.path.name]},
    )


def _split(files: Files, root: str, part: str, side: int) -> Split:
    names, labels, crops = [], [], []
    for identity in files.read(f"{root}ImageSets/Main/{part}.txt").decode().split():
        annotation = f"{root}Annotations/{identity}.xml"
        for label, crop in _objects(files, annotation):
            names.append(f"{root}JPEGImages/{identity}.jpg")
            labels.append(label)
            crops.append(crop)
    if not names:
        raise InputError(f"{files.path}: no objects in the images that {root}ImageSets/Main/{part}.txt names")
    pictures = Pictures(files, tuple(names), (side, side), fit="stretch", crops=np.array(crops, dtype=np.int64))
    return Split(y=np.array(labels, dtype=np.int64), take=pictures)


def _objects(files: Files, annotation: str) -> list[tuple[int, tuple[int, int, int, int]]]:
    """Return class and box of each object; VOC counts pixels from 1 and includes the last one."""
    content = files.read(annotation)
    try:
        tree = ET.fromstring(content)  # noqa: S314  (Python's expat refuses documents that grow by expansion)
        items = [item for item in tree.iter("object") if item.findtext("difficult", "0").strip() != "1"]
        return [(CLASSES.index(item.findtext("name", "").strip()), _box(item)) for item in items]
    except (ET.ParseError, ValueError) as error:
        raise InputError(f"{files.path}: {annotation} is not a VOC annotation ({reason(error)})") from error


def _box(item: ET.Element) -> tuple[int, int, int, int]:
    left, top, right, bottom = (
        round(float(item.findtext(f"bndbox/{edge}", ""))) for edge in ("xmin", "ymin", "xmax", "ymax")
    )
    if left > right or top > bottom:
        raise ValueError(f"an empty box {left}, {top}, {right}, {bottom}")
    return left - 1, top - 1, right, bottom


read_voc_64 = partial(read_voc, 64)
read_voc_224 = partial(read_voc, 224)
