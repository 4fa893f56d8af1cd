"""The readers of official files: official files if available, otherwise the same layouts served on the loopback."""

from __future__ import annotations

import gzip
import hashlib
import io
import pickle
import tarfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from perdure import tasks
from perdure.base.errors import InputError
from perdure.tasks import registry
from perdure.tasks.benchmark import Source
from perdure.tasks.benchmarks.cifar import CIFAR10, CIFAR100, Cifar, read_cifar
from perdure.tasks.benchmarks.mnist import FASHION_MNIST, MNIST, read_idx_dataset
from perdure.tasks.files.bounded import read_idx
from perdure.tasks.files.download import Remote
from perdure.tasks.files.plain_pickle import read_plain_pickle
from tests.helpers.image_files import cifar_records, small_images
from tests.helpers.loopback import Site, serve

DATA = Path(__file__).parents[3] / "shared" / "data"
CACHE = Path(__file__).parents[3] / "data-cache"
needs_data = pytest.mark.skipif(not DATA.exists(), reason="the folder of shared data is missing")
needs_cifar = pytest.mark.skipif(
    not (CACHE / "cifar-10-batches-bin" / "test_batch.bin").exists() or not DATA.exists(),
    reason="data-cache does not hold the official CIFAR-10",
)


def md5(content: bytes) -> str:
    return "md5:" + hashlib.md5(content, usedforsecurity=False).hexdigest()


def idx_bytes(array: NDArray[np.uint8]) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def replace_reader(monkeypatch: pytest.MonkeyPatch, name: str, read: Callable[[Path, bool], Source]) -> None:
    """Let a registered benchmark read the files that the test serves, which have other checksums."""
    entry = registry.BENCHMARKS.get(name)
    monkeypatch.setitem(registry.BENCHMARKS._entries, name, replace(entry, read=read))


def tar_gz(folder: str, files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=1) as archive:
        for name, content in reversed(files.items()):  # the members of the official archives are not in order either
            info = tarfile.TarInfo(f"{folder}/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def moments_by_histogram(benchmark: tasks.Benchmark) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    counts = np.zeros((benchmark.input_shape[0], 256))
    for task in benchmark.tasks:
        for channel in range(len(counts)):
            counts[channel] += np.bincount(task.train.x[:, channel].ravel(), minlength=256)
    values = np.arange(256) / 255
    mean = counts @ values / counts.sum(axis=1)
    return mean, np.sqrt(counts @ values**2 / counts.sum(axis=1) - mean**2)


# MNIST and Fashion-MNIST

COUNTS = {
    "train": (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
    "test": (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
}


@needs_data
def test_split_mnist_has_the_published_counts_of_every_digit() -> None:
    benchmark = tasks.load("split-mnist", data_dir=DATA)
    for side, counts in COUNTS.items():
        labels = np.concatenate([getattr(task, side).y for task in benchmark.tasks])
        assert tuple(np.bincount(labels)) == counts
    assert benchmark.input_shape == (1, 28, 28)
    mean, std = moments_by_histogram(benchmark)
    assert benchmark.mean == pytest.approx(mean, abs=1e-4)
    assert benchmark.std == pytest.approx(std, abs=1e-4)


@needs_data
def test_domain_split_mnist_is_five_binary_tasks() -> None:
    benchmark = tasks.load("split-mnist", data_dir=DATA, scenario="domain")
    assert [task.name for task in benchmark.tasks] == ["0, 1", "2, 3", "4, 5", "6, 7", "8, 9"]
    assert {task.classes for task in benchmark.tasks} == {(0, 1)}
    assert benchmark.outputs == 2
    assert np.bincount(benchmark.tasks[2].test.y).tolist() == [982, 892]  # fours and fives


@needs_data
def test_idx_files_gzipped_or_plain_give_the_same_benchmark_as_the_npz(tmp_path: Path) -> None:
    with np.load(DATA / "mnist.npz") as archive:
        arrays = [archive[name][:3000] for name in ("x_train", "y_train", "x_test", "y_test")]
        np.savez(tmp_path / "mnist.npz", x_train=arrays[0], y_train=arrays[1], x_test=arrays[2], y_test=arrays[3])
    expected = tasks.load("split-mnist", data_dir=tmp_path).fingerprint()
    (tmp_path / "mnist.npz").unlink()
    raw = tmp_path / "MNIST" / "raw"  # where torchvision puts them
    raw.mkdir(parents=True)
    for remote, array in zip(MNIST.remotes, arrays, strict=True):
        (raw / Path(remote.path).stem).write_bytes(idx_bytes(array))
    assert tasks.load("split-mnist", data_dir=tmp_path).fingerprint() == expected
    zipped = raw / Path(MNIST.remotes[0].path).name
    zipped.write_bytes(gzip.compress(idx_bytes(arrays[0]), 1))
    assert np.array_equal(read_idx(zipped), arrays[0])
    with pytest.raises(InputError, match="f68b3c2dcbeaaa9fbdd348bbdeb94873"):  # not the official file
        tasks.load("split-mnist", data_dir=tmp_path)


def test_fashion_mnist_is_downloaded_as_four_idx_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (x, y), (x_test, y_test) = small_images(0, 200, 10, 28, 28), small_images(1, 100, 10, 28, 28)
    served = {
        remote.path: gzip.compress(idx_bytes(array))
        for remote, array in zip(FASHION_MNIST.remotes, (x, y, x_test, y_test), strict=True)
    }
    remotes = tuple(replace(remote, digest=md5(served[remote.path])) for remote in FASHION_MNIST.remotes)
    replace_reader(
        monkeypatch, "split-fashion-mnist", partial(read_idx_dataset, replace(FASHION_MNIST, remotes=remotes))
    )
    with serve(Site(files=served)) as site:
        monkeypatch.setenv("PERDURE_MIRROR", site.address)
        benchmark = tasks.load("split-fashion-mnist", data_dir=tmp_path)
        assert len(site.requests) == 4
    monkeypatch.setenv("PERDURE_MIRROR", "http://127.0.0.1:1")  # no network from here on
    assert tasks.load("split-fashion-mnist", data_dir=tmp_path).fingerprint() == benchmark.fingerprint()
    assert benchmark.class_names[:2] == ("T-shirt/top", "Trouser")
    task = benchmark.tasks[1]
    assert task.name == "Pullover, Dress"
    mask = (y == 2) | (y == 3)
    assert np.array_equal(task.train.x[:, 0], x[mask])
    assert np.array_equal(task.train.y, y[mask])


def test_every_official_file_has_its_own_address_and_checksum() -> None:
    remotes = [*MNIST.remotes, *FASHION_MNIST.remotes]
    remotes += [layout.archive for cifar in (CIFAR10, CIFAR100) for layout in cifar.layouts]
    for remote in remotes:
        assert remote.url.endswith(Path(remote.path).name)
        assert remote.digest is not None
        assert len(remote.digest) == len("md5:") + 32
    assert len({remote.path for remote in remotes}) == len(remotes) == len({remote.digest for remote in remotes})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not an idx file"),
        (b"\0\0\x0d\x01\0\0\0\x01\0\0\0\0", "got '00000d01'"),
        (idx_bytes(np.zeros((2, 3), np.uint8))[:-1], "expected 6 bytes after the header, got 5"),
    ],
)
def test_invalid_idx_files_are_named(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_idx(tmp_path / "file")


def test_a_gzip_file_that_ends_early_is_named(tmp_path: Path) -> None:
    whole = gzip.compress(idx_bytes(np.arange(200, dtype=np.uint8)))
    (tmp_path / "cut.gz").write_bytes(whole[:-20])
    with pytest.raises(InputError, match=r"cut\.gz"):
        read_idx(tmp_path / "cut.gz")


# CIFAR


@needs_cifar
def test_official_cifar10_agrees_pixel_for_pixel_with_an_independent_copy() -> None:
    benchmark = tasks.load("split-cifar10", data_dir=CACHE)
    assert len(benchmark.tasks) == 5
    assert benchmark.class_names[:3] == ("airplane", "automobile", "bird")
    assert benchmark.augmentation == "crop-flip"
    for side, each in (("train", 5000), ("test", 1000)):
        assert np.bincount(np.concatenate([getattr(task, side).y for task in benchmark.tasks])).tolist() == [each] * 10
    with np.load(DATA / "cifar10-small.npz") as copy:
        for side in ("train", "test"):
            x, y = copy[f"x_{side}"].transpose(0, 3, 1, 2), copy[f"y_{side}"]
            for task in benchmark.tasks:
                ours = {
                    image.tobytes(): label
                    for image, label in zip(getattr(task, side).x, getattr(task, side).y, strict=True)
                }
                in_task = np.isin(y, task.classes)
                assert in_task.any()
                assert [ours[image.tobytes()] for image in x[in_task]] == y[in_task].tolist()


@needs_cifar
def test_the_normalization_of_cifar10_is_that_of_its_training_images() -> None:
    benchmark = tasks.load("split-cifar10", data_dir=CACHE)
    mean, std = moments_by_histogram(benchmark)
    assert benchmark.mean == pytest.approx(mean, abs=5e-5)
    assert benchmark.std == pytest.approx(std, abs=2e-4)


@needs_cifar
def test_python_batches_and_binary_records_are_the_same_benchmark(tmp_path: Path) -> None:
    source, small = CACHE / "cifar-10-batches-bin", 500
    (tmp_path / "binary" / "cifar-10-batches-bin").mkdir(parents=True)
    (tmp_path / "python" / "cifar-10-batches-py").mkdir(parents=True)
    for name in [*CIFAR10.layouts[0].train, "test_batch.bin"]:
        content = (source / name).read_bytes()[: small * 3073]
        (tmp_path / "binary" / "cifar-10-batches-bin" / name).write_bytes(content)
        rows = np.frombuffer(content, np.uint8).reshape(-1, 3073)
        batch = {
            b"batch_label": b"x",
            b"labels": rows[:, 0].tolist(),
            b"data": rows[:, 1:],
            b"filenames": [b"a.png"],
        }
        (tmp_path / "python" / "cifar-10-batches-py" / name.removesuffix(".bin")).write_bytes(pickle.dumps(batch, 2))
    binary = tasks.load("split-cifar10", data_dir=tmp_path / "binary")
    python = tasks.load("split-cifar10", data_dir=tmp_path / "python")
    assert binary.fingerprint() == python.fingerprint()
    assert sum(len(task.train) for task in binary.tasks) == 5 * small


@pytest.mark.parametrize("layout", [0, 1], ids=["binary", "python"])
@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_cifar100_is_read_from_either_official_archive(
    layout: int, protocol: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (x, y), (x_test, y_test) = small_images(0, 300, 100, 3, 32, 32), small_images(1, 200, 100, 3, 32, 32)
    names = [f"class{number}" for number in range(100)]
    if layout == 0:
        files = {
            "train.bin": cifar_records(x, [y // 5, y]),
            "test.bin": cifar_records(x_test, [y_test // 5, y_test]),
            "fine_label_names.txt": "\n".join(names).encode(),
        }
    else:
        files = {
            name: pickle.dumps(
                {
                    b"fine_labels": fine.tolist(),
                    b"coarse_labels": (fine // 5).tolist(),
                    b"data": images.reshape(-1, 3072),
                },
                protocol,
            )
            for name, images, fine in (("train", x, y), ("test", x_test, y_test))
        }
        files["meta"] = pickle.dumps({b"fine_label_names": [name.encode() for name in names]}, protocol)
    chosen = CIFAR100.layouts[layout]
    content = tar_gz(chosen.folder, files)
    archive = replace(chosen.archive, digest=md5(content))
    cifar: Cifar = replace(CIFAR100, layouts=(replace(chosen, archive=archive), chosen))
    replace_reader(monkeypatch, "split-cifar100", partial(read_cifar, cifar))
    with serve(Site(files={archive.path: content}, cuts=[1000])) as site:
        monkeypatch.setenv("PERDURE_MIRROR", site.address)
        benchmark = tasks.load("split-cifar100", data_dir=tmp_path)
    assert (len(benchmark.tasks), benchmark.outputs) == (10, 100)
    assert benchmark.class_names == tuple(names)
    task = benchmark.tasks[3]
    mask = (y >= 30) & (y < 40)
    assert task.classes == tuple(range(30, 40))
    assert np.array_equal(task.train.x, x[mask])
    assert np.array_equal(task.train.y, y[mask])


def test_the_cifar100_of_clamp_has_five_tasks_of_twenty_classes() -> None:
    description = tasks.describe("split-cifar100-5x20")
    assert (description.tasks, description.classes) == (5, 100)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("data_batch_2.bin", b"\0" * 3072, "multiple of 3073"),
        ("data_batch_2.bin", bytes([10]) + b"\0" * 3072, "expected labels from 0 to 9, got 10"),
        ("data_batch_2.bin", None, r"no data_batch_2\.bin in it"),
    ],
)
def test_invalid_cifar_files_are_named(name: str, content: bytes | None, message: str, tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    x, y = small_images(0, 10, 10, 3, 32, 32)
    for file in [*CIFAR10.layouts[0].train, "test_batch.bin"]:
        (folder / file).write_bytes(cifar_records(x, [y]))
    assert tasks.load("split-cifar10", data_dir=tmp_path).class_names == tuple(
        "0123456789"
    )  # there is no file of names
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        tasks.load("split-cifar10", data_dir=tmp_path)


def test_an_archive_with_the_wrong_checksum_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(b"not this")
    with pytest.raises(InputError) as error:
        tasks.load("split-cifar10", data_dir=tmp_path)
    assert "c32a1d4ab5d03f1284b67883e8d87530" in str(error.value)
    assert md5(b"not this") in str(error.value)


def test_without_network_the_message_names_the_archive_and_its_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PERDURE_MIRROR", "http://127.0.0.1:1")
    monkeypatch.setenv("PERDURE_DATA", str(tmp_path))
    for name, file in {
        "split-mnist": "mnist/train-images-idx3-ubyte.gz",
        "split-fashion-mnist": "fashion-mnist/train-images-idx3-ubyte.gz",
        "split-cifar10": "cifar-10-binary.tar.gz",
        "split-cifar100-5x20": "cifar-100-binary.tar.gz",
        "split-tiny-imagenet": "tiny-imagenet-200.zip",
        "voc2012": "VOCtrainval_11-May-2012.tar",
        "tv-news": "TV_News_Channel_Commercial_Detection_Dataset.zip",
    }.items():
        with pytest.raises(InputError) as error:
            tasks.load(name)
        assert f"put the file at {tmp_path / file} by hand" in str(error.value)


# Pickles


class Call:
    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.call


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_a_pickle_that_calls_a_function_is_rejected_and_not_executed(protocol: int, tmp_path: Path) -> None:
    trap = tmp_path / "executed"
    for payload in (
        Call(Path.touch, trap),
        Call(eval, f"open({str(trap)!r}, 'w')"),
        Call(np.load, str(trap)),
        {"data": [Call(Path.touch, trap)]},
    ):
        with pytest.raises(InputError, match="not a pickle of plain values"):
            read_plain_pickle("batch", pickle.dumps(payload, protocol))
    assert not trap.exists()


def test_pickled_objects_and_truncated_pickles_are_rejected() -> None:
    good = pickle.dumps({"data": np.zeros((2, 3), np.uint8), "labels": [1, 2], "name": b"x"}, 2)
    read = read_plain_pickle("batch", good)
    assert read["labels"] == [1, 2]
    assert read["name"] == "x"
    assert read["data"].shape == (2, 3)
    fortran = np.asfortranarray(np.arange(6, dtype=np.uint8).reshape(2, 3))
    assert np.array_equal(read_plain_pickle("batch", pickle.dumps({"data": fortran}, 2))["data"], fortran)
    objects = pickle.dumps({"data": np.array([{}, []], dtype=object)}, 2)
    for bad in (objects, good[:-5], b"", b"garbage", pickle.dumps([1, 2]), pickle.dumps({"a": {1, 2}})):
        with pytest.raises(InputError, match="batch: not a pickle of plain values"):
            read_plain_pickle("batch", bad)


def test_a_damaged_pickle_is_read_or_rejected_but_never_crashes() -> None:
    good = pickle.dumps({"data": np.zeros((2, 3), np.uint8), "labels": [1, 2]}, 2)
    rng = np.random.default_rng(0)
    rejected = 0
    for _ in range(600):
        changed = bytearray(good)
        changed[rng.integers(len(good))] = rng.integers(256)
        try:
            read_plain_pickle("batch", bytes(changed))
        except InputError:
            rejected += 1
    assert rejected > 150


def test_a_mirror_replaces_the_official_address(monkeypatch: pytest.MonkeyPatch) -> None:
    remote = Remote("a/b.gz", "https://official/b.gz", None, 1)
    assert remote.address() == "https://official/b.gz"
    monkeypatch.setenv("PERDURE_MIRROR", "http://mirror/data/")
    assert remote.address() == "http://mirror/data/a/b.gz"
