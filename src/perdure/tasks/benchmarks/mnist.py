"""MNIST and Fashion-MNIST, from idx files (plain or gzipped) or from an npz file; also permuted and rotated MNIST."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from perdure.base.errors import InputError
from perdure.tasks.benchmark import Source, examples_in_memory
from perdure.tasks.files.bounded import read_idx
from perdure.tasks.files.download import Remote, fetch, verify
from perdure.tasks.registry import Description, register_benchmark
from perdure.tasks.sequence import permuted_sequence, rotated_sequence
from perdure.tasks.user_data.arrays import read_npz

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
class IdxDataset:
    """A data set in the layout of MNIST; ``folders`` lists the subfolders of the data folder that may hold its files."""

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


MNIST = IdxDataset(
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
FASHION_MNIST = IdxDataset(
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
    # Not the data folder itself: the files have the same names as MNIST's, and plain files have no checksum.
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


def read_idx_dataset(dataset: IdxDataset, folder: Path, progress: bool) -> Source:
    """Read the data set from the files in the folder; download official files that are missing."""
    subfolders = (folder / dataset.name, *(folder / name for name in dataset.folders), folder)
    for subfolder in dict.fromkeys(subfolders):
        if (subfolder / f"{dataset.name}.npz").is_file():
            arrays = read_npz(subfolder / f"{dataset.name}.npz")
            source = _source(dataset, arrays.x_train, arrays.y_train, arrays.x_test, arrays.y_test)
            _check_labels(dataset, subfolder / f"{dataset.name}.npz", source)
            return source
    paths = [_find(dataset, remote, folder) or fetch(remote, folder, progress) for remote in dataset.remotes]
    x_train, y_train, x_test, y_test = (read_idx(path) for path in paths)
    for x, y, path in ((x_train, y_train, paths[0]), (x_test, y_test, paths[2])):
        if x.ndim != 3 or y.ndim != 1 or len(x) != len(y):
            raise InputError(f"{path}: images have shape {x.shape}, labels {y.shape}. Expected one label per image.")
    source = _source(dataset, x_train[:, None], y_train, x_test[:, None], y_test)
    _check_labels(dataset, paths[1], source)
    return source


def _check_labels(dataset: IdxDataset, path: Path, source: Source) -> None:
    for labels in (source.train.y, source.test.y):
        if not len(labels) or labels.max() >= len(dataset.class_names):
            largest = labels.max() if len(labels) else "none"
            raise InputError(f"{path}: expected labels from 0 to {len(dataset.class_names) - 1}, got {largest}.")


def _source(
    dataset: IdxDataset, x_train: NDArray[Any], y_train: NDArray[Any], x_test: NDArray[Any], y_test: NDArray[Any]
) -> Source:
    return Source(
        train=examples_in_memory(x_train, y_train),
        test=examples_in_memory(x_test, y_test),
        class_names=dataset.class_names,
        mean=(dataset.mean,),
        std=(dataset.std,),
    )


def _find(dataset: IdxDataset, remote: Remote, folder: Path) -> Path | None:
    """Return the path of the gzipped or plain file if one of the subfolders holds it."""
    zipped = remote.path.split("/")[-1]
    for name in dataset.folders:
        if (folder / name / zipped).is_file():
            return verify(folder / name / zipped, remote.digest)
        if (folder / name / zipped.removesuffix(".gz")).is_file():
            return folder / name / zipped.removesuffix(".gz")
    return None


_SPLIT_MNIST = Description(
    name="split-mnist",
    title="28x28 digits of MNIST",
    classes=10,
    tasks=5,
    scenario="class",
    input_shape=(1, 28, 28),
    source=MNIST.remotes[0].url.rsplit("/", 1)[0],
    licence="CC BY-SA 3.0",
    citation="LeCun, Bottou, Bengio & Haffner 1998, Gradient-based learning applied to document recognition",
    download=sum(remote.size for remote in MNIST.remotes),
)
_PERMUTED_MNIST = replace(
    _SPLIT_MNIST, name="permuted-mnist", title="MNIST with permuted pixels", tasks=10, scenario="domain"
)
_ROTATED_MNIST = replace(_SPLIT_MNIST, name="rotated-mnist", title="rotated MNIST", tasks=10, scenario="domain")
_SPLIT_FASHION_MNIST = replace(
    _SPLIT_MNIST,
    name="split-fashion-mnist",
    title="28x28 images of clothing (Fashion-MNIST)",
    source=FASHION_MNIST.remotes[0].url.rsplit("/", 1)[0],
    licence="MIT",
    citation="Xiao, Rasul & Vollgraf 2017, Fashion-MNIST",
    download=sum(remote.size for remote in FASHION_MNIST.remotes),
)


@register_benchmark(_SPLIT_MNIST)
@register_benchmark(_PERMUTED_MNIST, split=permuted_sequence)
@register_benchmark(_ROTATED_MNIST, split=rotated_sequence)
def read_mnist(folder: Path, progress: bool) -> Source:
    """Return MNIST: 60000 training and 10000 test digits."""
    return read_idx_dataset(MNIST, folder, progress)


@register_benchmark(_SPLIT_FASHION_MNIST)
def read_fashion_mnist(folder: Path, progress: bool) -> Source:
    """Return Fashion-MNIST: 60000 training and 10000 test images."""
    return read_idx_dataset(FASHION_MNIST, folder, progress)
