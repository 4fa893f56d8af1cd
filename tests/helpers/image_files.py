"""Files in the official layouts of image data sets, with random images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image


def small_images(seed: int, n: int, classes: int, *shape: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return random images and labels in which all classes are equally frequent."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (n, *shape), dtype=np.uint8), (np.arange(n) % classes).astype(np.uint8)


def cifar_records(x: NDArray[np.uint8], labels: list[NDArray[np.uint8]]) -> bytes:
    """Return the content of a binary file of CIFAR: for each image its labels and its pixels."""
    return np.concatenate([*(column[:, None] for column in labels), x.reshape(len(x), -1)], axis=1).tobytes()


def write_cifar100(folder: Path, train: int, test: int) -> None:
    """Write the unpacked binary archive of CIFAR-100 with a number of images per class."""
    root = folder / "cifar-100-binary"
    root.mkdir(parents=True)
    for seed, (name, count) in enumerate({"train": train, "test": test}.items()):
        x, y = small_images(seed, 100 * count, 100, 3, 32, 32)
        (root / f"{name}.bin").write_bytes(cifar_records(x, [y // 5, y]))
    (root / "fine_label_names.txt").write_text("\n".join(f"kind_{number}" for number in range(100)))


def write_tiny_imagenet(folder: Path, train: int, test: int, classes: int = 200) -> None:
    """Write the unpacked archive of Tiny ImageNet with a number of images per class, all with the same bounding box."""
    root, box = folder / "tiny-imagenet-200", "\t0\t0\t62\t62"
    names = [f"n{number:08d}" for number in range(classes)]
    x, y = small_images(0, classes * (train + test), classes, 64, 64, 3)
    rows = []
    (root / "val" / "images").mkdir(parents=True)
    for number, (image, label) in enumerate(zip(x, y, strict=True)):
        name = names[label]
        if number < classes * train:
            path = root / "train" / name / "images" / f"{name}_{number // classes}.JPEG"
            path.parent.mkdir(parents=True, exist_ok=True)
            with (root / "train" / name / f"{name}_boxes.txt").open("a") as boxes:
                boxes.write(f"{path.name}{box}\n")
        else:
            path = root / "val" / "images" / f"val_{number}.JPEG"
            rows.append(f"{path.name}\t{name}{box}\n")
        Image.fromarray(image).save(path)
    (root / "val" / "val_annotations.txt").write_text("".join(rows))
    (root / "wnids.txt").write_text("\n".join(names))
    (root / "words.txt").write_text("\n".join(f"{name}\tthing {name[-3:]}, synonym" for name in names))
