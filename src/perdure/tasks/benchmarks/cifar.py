"""CIFAR-10 and CIFAR-100 in their binary and python layouts, unpacked or as the official archive."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from perdure.base.errors import InputError
from perdure.tasks.files.archives import read_through
from perdure.tasks.files.download import Remote, fetch, verify
from perdure.tasks.files.plain_pickle import read_plain_pickle
from perdure.tasks.source import Source, in_memory

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

_PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class Layout:
    """File names of one layout; ``labels``: label bytes of a record, or the key of the label list."""

    archive: Remote
    folder: str
    train: tuple[str, ...]
    test: str
    names: str
    labels: int | str


@dataclass(frozen=True)
class Cifar:
    """One of the two data sets, in both layouts; the binary one is downloaded."""

    classes: int
    layouts: tuple[Layout, Layout]
    mean: tuple[float, ...]
    std: tuple[float, ...]


def _archive(name: str, md5: str, size: int) -> Remote:
    return Remote(name, f"https://www.cs.toronto.edu/~kriz/{name}", f"md5:{md5}", size)


CIFAR10 = Cifar(
    classes=10,
    layouts=(
        Layout(
            archive=_archive("cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", 170052171),
            folder="cifar-10-batches-bin",
            train=tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
            test="test_batch.bin",
            names="batches.meta.txt",
            labels=1,
        ),
        Layout(
            archive=_archive("cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a", 170498071),
            folder="cifar-10-batches-py",
            train=tuple(f"data_batch_{number}" for number in range(1, 6)),
            test="test_batch",
            names="batches.meta",
            labels="labels",
        ),
    ),
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2615),
)
CIFAR100 = Cifar(
    classes=100,
    layouts=(
        Layout(
            archive=_archive("cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8", 168513733),
            folder="cifar-100-binary",
            train=("train.bin",),
            test="test.bin",
            names="fine_label_names.txt",
            labels=2,
        ),
        Layout(
            archive=_archive("cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85", 169001437),
            folder="cifar-100-python",
            train=("train",),
            test="test",
            names="meta",
            labels="fine_labels",
        ),
    ),
    mean=(0.5071, 0.4867, 0.4408),
    std=(0.2675, 0.2565, 0.2761),
)


def read_cifar(cifar: Cifar, folder: Path, progress: bool) -> Source:
    """Read the data set from the first layout found in the folder, else download its binary archive."""
    place, layout = _locate(cifar, folder) or (
        fetch(cifar.layouts[0].archive, folder, progress),
        cifar.layouts[0],
    )
    found = read_through(place, {*layout.train, layout.test, layout.names})
    missing = [name for name in (*layout.train, layout.test) if name not in found]
    if missing:
        raise InputError(f"{place}: no {missing[0]} in it, expected {', '.join((*layout.train, layout.test))}")
    decode = partial(_records, cifar, layout) if isinstance(layout.labels, int) else partial(_batch, cifar, layout)
    parts = [decode(f"{place}: {name}", found[name]) for name in layout.train]
    x_test, y_test = decode(f"{place}: {layout.test}", found[layout.test])
    return Source(
        train=in_memory(np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])),
        test=in_memory(x_test, y_test),
        class_names=_class_names(cifar, layout, f"{place}: {layout.names}", found.get(layout.names)),
        mean=cifar.mean,
        std=cifar.std,
        augmentation="crop-flip",
        about={"files": [place.name]},
    )


def _locate(cifar: Cifar, folder: Path) -> tuple[Path, Layout] | None:
    """Return the unpacked folder or the archive that is there; an archive must have its checksum."""
    for layout in cifar.layouts:
        for place in (folder / layout.folder, folder):
            if (place / layout.test).is_file():
                return place, layout
    for layout in cifar.layouts:
        if (folder / layout.archive.path).is_file():
            return verify(folder / layout.archive.path, layout.archive.digest), layout
    return None


def _records(cifar: Cifar, layout: Layout, place: str, content: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Decode the binary layout: label bytes (the fine one last), then 1024 red, green and blue bytes each."""
    width = int(layout.labels) + _PIXELS
    if not content or len(content) % width:
        raise InputError(f"{place}: {len(content)} bytes, expected a multiple of {width}; the file is cut or another")
    rows = np.frombuffer(content, dtype=np.uint8).reshape(-1, width)
    labels = _checked(cifar, place, rows[:, int(layout.labels) - 1].astype(np.int64))
    return rows[:, int(layout.labels) :].reshape(-1, 3, 32, 32), labels


def _batch(cifar: Cifar, layout: Layout, place: str, content: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Decode the python layout: a pickled mapping of plain values, of which nothing else is admitted."""
    batch = read_plain_pickle(place, content)
    data, labels = batch.get("data"), batch.get(str(layout.labels))
    if not isinstance(data, np.ndarray) or data.ndim != 2 or data.shape[1] != _PIXELS or labels is None:
        raise InputError(f"{place}: expected 'data' of {_PIXELS} bytes a row and {layout.labels!r}; it has {[*batch]}")
    if len(labels) != len(data):
        raise InputError(f"{place}: {len(labels)} labels for {len(data)} images")
    return data.reshape(-1, 3, 32, 32), _checked(cifar, place, np.asarray(labels, dtype=np.int64))


def _checked(cifar: Cifar, place: str, labels: NDArray[np.int64]) -> NDArray[np.int64]:
    if labels.min() < 0 or labels.max() >= cifar.classes:
        wrong = labels[(labels < 0) | (labels >= cifar.classes)][0]
        raise InputError(f"{place}: label {wrong}, expected 0 to {cifar.classes - 1}")
    return labels


def _class_names(cifar: Cifar, layout: Layout, place: str, content: bytes | None) -> tuple[str, ...]:
    """Return the names that lie beside the data; numbers if they are not there."""
    names: list[str] = []
    if content is not None and isinstance(layout.labels, int):
        names = re.findall(r"\S+", content.decode("utf-8", "replace"))
    elif content is not None:
        listed = read_plain_pickle(place, content).get(str(layout.labels).removesuffix("s") + "_names", [])
        names = [str(name) for name in listed]
    return tuple(names) if len(names) == cifar.classes else tuple(str(number) for number in range(cifar.classes))


read_cifar10 = partial(read_cifar, CIFAR10)
read_cifar100 = partial(read_cifar, CIFAR100)
