"""Pascal VOC 2012: objects cropped from the photographs by their bounding boxes, as in the attribution-bias study."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import numpy as np

from perdure.base.errors import InputError, error_message
from perdure.base.files import shorten_text
from perdure.tasks.benchmark import Source, Split
from perdure.tasks.files.archives import Files, open_files
from perdure.tasks.files.download import Remote, fetch, verify
from perdure.tasks.files.images import MOST_PIXELS, ImageReader
from perdure.tasks.registry import Description, register_benchmark

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


_VOC = Description(
    name="voc2012",
    title="objects of Pascal VOC 2012, 64x64",
    classes=20,
    tasks=1,
    scenario="class",
    input_shape=(3, 64, 64),
    source=ARCHIVE.url,
    licence="Flickr terms of use",
    citation="Everingham et al. 2010, The Pascal visual object classes (VOC) challenge",
    download=ARCHIVE.size,
)


@register_benchmark(_VOC)
def read_voc_64(folder: Path, progress: bool) -> Source:
    """Return the objects, resized to 64 x 64 pixels."""
    return read_voc(64, folder, progress)


@register_benchmark(
    replace(_VOC, name="voc2012-224", title="objects of Pascal VOC 2012, 224x224", input_shape=(3, 224, 224))
)
def read_voc_224(folder: Path, progress: bool) -> Source:
    """Return the objects, resized to 224 x 224 pixels."""
    return read_voc(224, folder, progress)


def read_voc(side: int, folder: Path, progress: bool) -> Source:
    """Read the unpacked VOCdevkit or the tar file; download the tar file if neither is there."""
    for root in (folder / "VOCdevkit" / "VOC2012", folder / "VOC2012", folder):
        if (root / "ImageSets" / "Main" / "train.txt").is_file():
            return voc_source(open_files(root), side)
    archive = folder / ARCHIVE.path
    path = verify(archive, ARCHIVE.digest) if archive.is_file() else fetch(ARCHIVE, folder, progress)
    return voc_source(open_files(path), side)


def voc_source(files: Files, side: int) -> Source:
    """Return the objects of the official train list and, as test set, of the val list, stretched to a square.

    Objects marked difficult are left out, as in the evaluation of VOC.
    """
    listing = files.find("ImageSets/Main/train.txt")
    if listing is None:
        raise InputError(f"{files.path}: no ImageSets/Main/train.txt in it. Expected the official layout of VOC 2012.")
    root = listing.removesuffix("ImageSets/Main/train.txt")
    train, test = (_split(files, root, part, side) for part in ("train", "val"))
    present = np.intersect1d(train.y, test.y)
    for split, part in ((train, "train"), (test, "val")):
        unpaired = np.setdiff1d(split.y, present)
        if len(unpaired):
            raise InputError(
                f"{files.path}: class {CLASSES[unpaired[0]]!r} occurs only in the {part} list."
                " Every class needs training and test examples."
            )
    if len(present) < len(CLASSES):  # a subset of the data set
        train, test = (Split(np.searchsorted(present, split.y), split.take) for split in (train, test))
    return Source(
        train=train,
        test=test,
        class_names=tuple(CLASSES[label] for label in present),
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
        augmentation="crop-flip",
        provenance={"files": [files.path.name]},
    )


def _split(files: Files, root: str, part: str, side: int) -> Split:
    names, labels, crops = [], [], []
    for identity in files.text(f"{root}ImageSets/Main/{part}.txt").split():
        annotation = f"{root}Annotations/{identity}.xml"
        for label, crop in _objects(files, annotation):
            names.append(f"{root}JPEGImages/{identity}.jpg")
            labels.append(label)
            crops.append(crop)
    if not names:
        raise InputError(f"{files.path}: no objects in the images listed in {root}ImageSets/Main/{part}.txt.")
    reader = ImageReader(files, tuple(names), (side, side), fit="stretch", crops=np.array(crops, dtype=np.int64))
    return Split(y=np.array(labels, dtype=np.int64), take=reader)


def _objects(files: Files, annotation: str) -> list[tuple[int, tuple[int, int, int, int]]]:
    """Return class and box of each object. VOC counts pixels from 1 and includes the last one."""
    content = files.read(annotation)
    try:
        tree = ET.fromstring(content)  # noqa: S314  (Python's expat limits the expansion of entities)
        items = [item for item in tree.iter("object") if item.findtext("difficult", "0").strip() != "1"]
        return [(CLASSES.index(item.findtext("name", "").strip()), _box(item)) for item in items]
    except (ET.ParseError, ValueError, OverflowError, LookupError) as error:  # LookupError: an unknown encoding
        raise InputError(
            f"{files.path}: {shorten_text(annotation)} is not a VOC annotation ({error_message(error)})."
        ) from error


def _box(item: ET.Element) -> tuple[int, int, int, int]:
    left, top, right, bottom = (
        round(float(item.findtext(f"bndbox/{edge}", ""))) for edge in ("xmin", "ymin", "xmax", "ymax")
    )
    if left > right or top > bottom:
        raise ValueError(f"empty box {left}, {top}, {right}, {bottom}")
    if min(left, top) < -MOST_PIXELS or (right - left + 1) * (bottom - top + 1) > MOST_PIXELS:
        raise ValueError(f"box of more than {MOST_PIXELS} pixels")
    return left - 1, top - 1, right, bottom
