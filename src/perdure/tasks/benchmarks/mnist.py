"""MNIST and Fashion-MNIST: idx files, plain or gzipped, and the npz form of them."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from perdure.base.errors import InputError
from perdure.tasks.files.download import Remote, fetch, verify
from perdure.tasks.files.wording import reason
from perdure.tasks.own_data.arrays import read_npz
from perdure.tasks.source import Source, in_memory

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

_PARTS = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


@dataclass(frozen=True)
class Family:
    """One of the data sets in this layout; ``folders`` are where its files may lie in the data folder."""

    name: str
    remotes: tuple[Remote, ...]
    folders: tuple[str, ...]
    class_names: tuple[str, ...]
    mean: float
    std: float


def _remotes(name: str, base: str, sums: tuple[str, ...], sizes: tuple[int, ...]) -> tuple[Remote, ...]:
    return tuple(
        Remote(f"{name}/{part}.gz", f"{base}{part}.gz", f"md5:{digest}", size)
        for part, digest, size in zip(_PARTS, sums, sizes, strict=True)
    )


MNIST = Family(
    name="mnist",
    remotes=_remotes(
        "mnist",
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        (
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "d53e105ee54ea40749a09fcbcd1e9432",
            "9fb629c4189551a2d022fa330f9573f3",
            "ec29112dd5afa0611ce80d1b7f02629c",
        ),
        (9912422, 28881, 1648877, 4542),
    ),
    folders=("mnist", "MNIST/raw", "."),
    class_names=tuple(str(digit) for digit in range(10)),
    mean=0.1307,
    std=0.3081,
)
FASHION_MNIST = Family(
    name="fashion-mnist",
    remotes=_remotes(
        "fashion-mnist",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        (
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "25c81989df183df01b3e8a0aad5dffbe",
            "bef4ecab320f06d8554ea6380940ec79",
            "bb300cfdad3c16e7a12a480ee83cd310",
        ),
        (26421880, 29515, 4422102, 5148),
    ),
    # Not the data folder itself: the files have MNIST's names, and plain ones no checksum to tell them apart.
    folders=("fashion-mnist", "FashionMNIST/raw"),
    class_names=(
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ),
    mean=0.2860,
    std=0.3530,
)


def read_idx_family(family: Family, folder: Path, progress: bool) -> Source:
    """Read the data set from what is in the folder, else download the official files."""
    for place in dict.fromkeys((folder / family.name, *(folder / name for name in family.folders), folder)):
        if (place / f"{family.name}.npz").is_file():
            arrays = read_npz(place / f"{family.name}.npz")
            return _source(family, arrays.x_train, arrays.y_train, arrays.x_test, arrays.y_test)
    paths = [_find(family, remote, folder) or fetch(remote, folder, progress) for remote in family.remotes]
    x_train, y_train, x_test, y_test = (read_idx(path) for path in paths)
    for x, y, path in ((x_train, y_train, paths[0]), (x_test, y_test, paths[2])):
        if x.ndim != 3 or y.ndim != 1 or len(x) != len(y):
            raise InputError(f"{path}: {len(x)} images for {len(y)} labels, shapes {x.shape} and {y.shape}")
    return _source(family, x_train[:, None], y_train, x_test[:, None], y_test)


def _source(
    family: Family, x_train: NDArray[Any], y_train: NDArray[Any], x_test: NDArray[Any], y_test: NDArray[Any]
) -> Source:
    return Source(
        train=in_memory(x_train, y_train),
        test=in_memory(x_test, y_test),
        class_names=family.class_names,
        mean=(family.mean,),
        std=(family.std,),
    )


def _find(family: Family, remote: Remote, folder: Path) -> Path | None:
    """Return the file, gzipped or plain, if it is in one of the usual places."""
    zipped = remote.path.split("/")[-1]
    for name in family.folders:
        if (folder / name / zipped).is_file():
            return verify(folder / name / zipped, remote.digest)
        if (folder / name / zipped.removesuffix(".gz")).is_file():
            return folder / name / zipped.removesuffix(".gz")
    return None


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Read an idx file of bytes: two zeros, type 8, the number of dimensions, the dimensions, the values."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: not a gzip file that can be read to its end ({reason(error)})") from error
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise InputError(f"{path}: not an idx file of bytes, it starts with {content[:4].hex()!r}, expected '000008..'")
    start = 4 + 4 * content[3]
    shape = tuple(int(size) for size in np.frombuffer(content[4:start], dtype=">u4"))
    if len(content) - start != prod(shape):
        raise InputError(f"{path}: its header promises {prod(shape)} bytes, the file has {len(content) - start}; cut?")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


read_mnist = partial(read_idx_family, MNIST)
read_fashion_mnist = partial(read_idx_family, FASHION_MNIST)
