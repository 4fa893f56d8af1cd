"""Arrays of a user: an npz file with x_train, y_train, x_test and y_test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perdure.base.errors import InputError
from perdure.base.files import LONGEST_NAME, shorten_text
from perdure.tasks.benchmark import Source, examples_in_memory
from perdure.tasks.files.bounded import read_npz_arrays

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

_NAMES = ("x_train", "y_train", "x_test", "y_test")


@dataclass(frozen=True, eq=False)
class Arrays:
    """The four arrays. Images are uint8 (n, channels, height, width); labels are indices into ``class_names``."""

    x_train: NDArray[Any]
    y_train: NDArray[np.int64]
    x_test: NDArray[Any]
    y_test: NDArray[np.int64]
    class_names: tuple[str, ...]


def read_npz(path: Path) -> Arrays:
    """Read and check the four arrays; pickled objects are rejected."""
    arrays, listed = read_npz_arrays(path, _NAMES)
    for name in _NAMES:
        if name not in arrays:
            got = shorten_text(", ".join(listed[:20])) or "none"
            raise InputError(f"{path}: no array {name!r}. Expected {', '.join(_NAMES)}, got {got}.")
    x_train, y_train, x_test, y_test = (arrays[name] for name in _NAMES)
    for part, x, y in (("train", x_train, y_train), ("test", x_test, y_test)):
        if y.ndim == 2 and y.shape[1] == 1:
            y.shape = (-1,)  # Keras stores the labels of CIFAR as a column
        if y.ndim != 1 or not x.ndim or len(x) != len(y) or not len(y):
            raise InputError(
                f"{path}: expected one label per row, got x_{part} of shape {x.shape} and y_{part} {y.shape}."
            )
    if x_train.shape[1:] != x_test.shape[1:]:
        raise InputError(
            f"{path}: expected inputs of one shape, got {x_train.shape[1:]} in x_train and {x_test.shape[1:]} in x_test."
        )
    class_names, codes = number_array_labels(str(path), y_train, y_test)
    return Arrays(_inputs(path, x_train), codes[0], _inputs(path, x_test), codes[1], class_names)


def number_array_labels(
    file: str, train: NDArray[Any], test: NDArray[Any]
) -> tuple[tuple[str, ...], tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return the classes in sorted order and the labels as their indices; every class must be in both parts."""
    for labels in (train, test):
        if labels.dtype.kind == "f":
            exact = np.isfinite(labels) & (np.rint(labels) == labels) & (np.abs(labels) <= 2**53)
            if not exact.all():
                raise InputError(f"{file}: expected integers or words as labels, got {labels[~exact][0]}.")
        if labels.dtype.kind in "US" and labels.dtype.itemsize > 4 * LONGEST_NAME:
            raise InputError(f"{file}: expected labels of at most {LONGEST_NAME} characters.")
    train, test = (labels.astype(np.int64) if labels.dtype.kind in "fb" else labels for labels in (train, test))
    classes, codes = np.unique(train, return_inverse=True)
    test_classes = np.unique(test)
    for label in np.setxor1d(classes, test_classes):
        part = "training" if label in test_classes else "test"
        raise InputError(
            f"{file}: class {str(label)!r} has no {part} examples. Every class needs training and test examples."
        )
    names = tuple(name.decode("latin1") if isinstance(name, bytes) else str(name) for name in classes)
    try:
        "".join(names).encode()
    except UnicodeEncodeError:
        raise InputError(f"{file}: expected labels that are valid Unicode text.") from None
    return names, (codes.astype(np.int64), np.searchsorted(classes, test))


def _inputs(path: Path, x: NDArray[Any]) -> NDArray[Any]:
    """Return images as uint8 (n, channels, height, width) and tables as float32 (n, features)."""
    if x.dtype.kind not in "uifb":
        raise InputError(f"{path}: expected numbers as inputs, got type {x.dtype}.")
    if not x.size:
        raise InputError(f"{path}: expected inputs with at least one value, got shape {x.shape}.")
    if x.ndim == 2:
        with np.errstate(over="ignore"):
            rows = x.astype(np.float32)
        if not np.isfinite(rows).all():
            row, column = np.argwhere(~np.isfinite(rows))[0]
            raise InputError(
                f"{path}, row {row + 1}, column {column + 1}: expected a finite number, got {x[row, column]}."
            )
        return rows
    if x.ndim in {3, 4} and (x.dtype.kind not in "ui" or x.min() < 0 or x.max() > 255):
        raise InputError(
            f"{path}: expected images of integers from 0 to 255, got type {x.dtype} with values from {x.min():g} to"
            f" {x.max():g}. Scale the images, or flatten them to (n, features)."
        )
    x = x.astype(np.uint8, copy=False)
    if x.ndim == 3:
        return x[:, None]
    if x.ndim == 4 and x.shape[1] in {1, 3}:
        return x
    if x.ndim == 4 and x.shape[3] in {1, 3}:
        return np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    raise InputError(
        f"{path}: expected inputs of shape (n, features), (n, height, width), (n, height, width, 1 or 3) or"
        f" (n, 1 or 3, height, width), got {x.shape}."
    )


def npz_source(path: Path) -> Source:
    """Return the data set in an npz file."""
    arrays = read_npz(path)
    return Source(
        train=examples_in_memory(arrays.x_train, arrays.y_train),
        test=examples_in_memory(arrays.x_test, arrays.y_test),
        class_names=arrays.class_names,
        provenance={"files": [path.name]},
    )
