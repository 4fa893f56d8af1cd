"""CIFAR-10 and CIFAR-100 in the binary or python layout, unpacked or in the official archive."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from perdure.base.errors import InputError
from perdure.base.files import LONGEST_NAME
from perdure.tasks.benchmark import Source, examples_in_memory
from perdure.tasks.files.archives import read_members
from perdure.tasks.files.download import Remote, fetch, verify
from perdure.tasks.files.plain_pickle import read_plain_pickle
from perdure.tasks.registry import Description, register_benchmark

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

_PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class Layout:
    """File names of one layout. ``labels`` is the number of label bytes per record, or the key of the list of labels."""

    archive: Remote
    folder: str
    train: tuple[str, ...]
    test: str
    names: str
    labels: int | str


@dataclass(frozen=True)
class Cifar:
    """CIFAR-10 or CIFAR-100 in both layouts; the first one (binary) is downloaded."""

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
    """Read the data set in the first layout that the folder holds; otherwise download the binary archive."""
    path, layout = _locate(cifar, folder) or (fetch(cifar.layouts[0].archive, folder, progress), cifar.layouts[0])
    contents = read_members(path, {*layout.train, layout.test, layout.names})
    missing = [name for name in (*layout.train, layout.test) if name not in contents]
    if missing:
        raise InputError(f"{path}: no {missing[0]} in it. Expected {', '.join((*layout.train, layout.test))}.")
    decode = partial(_records, cifar, layout) if isinstance(layout.labels, int) else partial(_batch, cifar, layout)
    batches = [decode(f"{path}: {name}", contents[name]) for name in layout.train]
    x_test, y_test = decode(f"{path}: {layout.test}", contents[layout.test])
    return Source(
        train=examples_in_memory(np.concatenate([x for x, _ in batches]), np.concatenate([y for _, y in batches])),
        test=examples_in_memory(x_test, y_test),
        class_names=_class_names(cifar, layout, f"{path}: {layout.names}", contents.get(layout.names)),
        mean=cifar.mean,
        std=cifar.std,
        augmentation="crop-flip",
        provenance={"files": [path.name]},
    )


def _locate(cifar: Cifar, folder: Path) -> tuple[Path, Layout] | None:
    """Return the unpacked folder or the archive with its layout; the checksum of an archive is verified."""
    for layout in cifar.layouts:
        for path in (folder / layout.folder, folder):
            if (path / layout.test).is_file():
                return path, layout
    for layout in cifar.layouts:
        if (folder / layout.archive.path).is_file():
            return verify(folder / layout.archive.path, layout.archive.digest), layout
    return None


def _records(cifar: Cifar, layout: Layout, file: str, content: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Decode the binary layout: label bytes (the fine label last), then 1024 red, 1024 green and 1024 blue bytes."""
    width = int(layout.labels) + _PIXELS
    if not content or len(content) % width:
        raise InputError(
            f"{file}: expected a multiple of {width} bytes, got {len(content)}. The file is truncated or not a CIFAR file."
        )
    rows = np.frombuffer(content, dtype=np.uint8).reshape(-1, width)
    labels = _check_labels(cifar, file, rows[:, int(layout.labels) - 1].astype(np.int64))
    return rows[:, int(layout.labels) :].reshape(-1, 3, 32, 32), labels


def _batch(cifar: Cifar, layout: Layout, file: str, content: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Decode the python layout: a pickled dictionary of plain values; any other object is rejected."""
    batch = read_plain_pickle(file, content)
    data, labels = batch.get("data"), batch.get(str(layout.labels))
    if isinstance(labels, np.ndarray):
        labels = labels.tolist()
    if (
        not isinstance(data, np.ndarray)
        or (data.ndim, data.shape[1:], data.dtype) != (2, (_PIXELS,), np.uint8)
        or not isinstance(labels, list)
    ):
        raise InputError(
            f"{file}: expected the keys 'data', with {_PIXELS} bytes per row, and {layout.labels!r}, got {str([*batch])[:200]}."
        )
    if not all(isinstance(label, int) and 0 <= label < cifar.classes for label in labels):
        invalid = next(label for label in labels if not isinstance(label, int) or not 0 <= label < cifar.classes)
        raise InputError(f"{file}: expected labels from 0 to {cifar.classes - 1}, got {str(invalid)[:80]}.")
    if not labels or len(labels) != len(data):
        raise InputError(f"{file}: expected {len(data)} labels, one per image, got {len(labels)}.")
    return data.reshape(-1, 3, 32, 32), _check_labels(cifar, file, np.asarray(labels, dtype=np.int64))


def _check_labels(cifar: Cifar, file: str, labels: NDArray[np.int64]) -> NDArray[np.int64]:
    if labels.min() < 0 or labels.max() >= cifar.classes:
        invalid = labels[(labels < 0) | (labels >= cifar.classes)][0]
        raise InputError(f"{file}: expected labels from 0 to {cifar.classes - 1}, got {invalid}.")
    return labels


def _class_names(cifar: Cifar, layout: Layout, file: str, content: bytes | None) -> tuple[str, ...]:
    """Return the class names in the file of names, or numbers if there is no such file."""
    names: list[str] = []
    if content is not None and isinstance(layout.labels, int):
        names = re.findall(r"\S+", content.decode("utf-8", "replace"))
    elif content is not None:
        listed = read_plain_pickle(file, content).get(str(layout.labels).removesuffix("s") + "_names", [])
        names = [name[:LONGEST_NAME] for name in listed if isinstance(name, str)] if isinstance(listed, list) else []
    return tuple(names) if len(names) == cifar.classes else tuple(str(number) for number in range(cifar.classes))


_SPLIT_CIFAR10 = Description(
    name="split-cifar10",
    title="32x32 photographs of CIFAR-10",
    classes=10,
    tasks=5,
    scenario="class",
    input_shape=(3, 32, 32),
    source=CIFAR10.layouts[0].archive.url,
    licence="not stated by its authors",
    citation="Krizhevsky 2009, Learning multiple layers of features from tiny images",
    download=CIFAR10.layouts[0].archive.size,
)
_SPLIT_CIFAR100 = replace(
    _SPLIT_CIFAR10,
    name="split-cifar100",
    title="32x32 photographs of CIFAR-100",
    classes=100,
    tasks=10,
    source=CIFAR100.layouts[0].archive.url,
    download=CIFAR100.layouts[0].archive.size,
)


@register_benchmark(_SPLIT_CIFAR10)
def read_cifar10(folder: Path, progress: bool) -> Source:
    """Return CIFAR-10: 50000 training and 10000 test images."""
    return read_cifar(CIFAR10, folder, progress)


@register_benchmark(_SPLIT_CIFAR100)
@register_benchmark(replace(_SPLIT_CIFAR100, name="split-cifar100-5x20", tasks=5))
def read_cifar100(folder: Path, progress: bool) -> Source:
    """Return CIFAR-100 with its fine labels: 50000 training and 10000 test images."""
    return read_cifar(CIFAR100, folder, progress)
