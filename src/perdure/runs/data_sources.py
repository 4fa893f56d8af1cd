"""Test data from files: .npz, .pt, .csv, an image folder, or a folder with one file for each task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.base.errors import InputError, escape_control_characters
from perdure.base.user_code import load_object
from perdure.record.references import is_code_target
from perdure.runs.data import UserData
from perdure.runs.torch_files import read_torch_file
from perdure.tasks.files.bounded import read_npz_arrays
from perdure.tasks.user_data.image_folders import labelled_images
from perdure.tasks.user_data.tables import read_labelled_table

SUFFIXES = (".npz", ".pt", ".pth", ".csv")
FORMS = "expected file.py:function, a .npz, .pt or .csv file, an image folder, or a folder with one such file per task"
NAMES = ("x", "y", "task", "background")


def read_user_data(text: str) -> Any:
    """Return the test data that a text names: a function or object in a user's code, a file or a folder.

    The result is what `UserData.checked` takes: (inputs, labels), or a list of them, one for each task.
    """
    if is_code_target(text):
        value = load_object(text)
        return value() if callable(value) else value
    path = Path(text)
    if path.suffix == ".py":
        raise InputError(f"{text}: no function is named; expected file.py:function")
    if not path.exists():
        raise InputError(f"{text}: no such file; {FORMS}")
    return read_data_file(path)


def read_data_file(path: Path) -> Any:
    """Return the test data in a file or folder; an array or column ``task`` (1-based) divides it into tasks."""
    if path.is_dir():
        return _read_folder(path)
    if path.suffix not in SUFFIXES:
        raise InputError(f"{path}: unknown kind of file {path.suffix!r}; {FORMS}")
    arrays = _read_arrays(path)
    if "x" not in arrays or "y" not in arrays:
        names = escape_control_characters(", ".join(map(str, arrays))[:80])
        raise InputError(f"{path}: expected arrays x and y, got {names or 'none'}")
    x, y, task = arrays["x"], arrays["y"], arrays.get("task")
    data = (x, y) if task is None else _by_task(path, x, y, np.asarray(task))
    try:
        UserData.checked(data)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return data


def read_background(path: Path) -> NDArray[Any] | None:
    """Return the array ``background`` of a .npz or .pt file, if there is one."""
    return _read_arrays(path).get("background") if path.suffix in (".npz", ".pt", ".pth") else None


def _read_arrays(path: Path) -> dict[str, Any]:
    if path.suffix == ".npz":
        arrays, listed = read_npz_arrays(path, NAMES)
        return arrays if {"x", "y"} <= set(arrays) else dict.fromkeys(listed)
    if path.suffix == ".csv":
        return read_labelled_table(path)
    value = read_torch_file(path)
    if isinstance(value, tuple | list) and len(value) == 2:
        value = {"x": value[0], "y": value[1]}
    if not isinstance(value, dict):
        raise InputError(f"{path}: expected tensors (x, y), or a dictionary with x and y, got a {type(value).__name__}")
    return {name: tensor.numpy() if hasattr(tensor, "numpy") else tensor for name, tensor in value.items()}


def _by_task(path: Path, x: Any, y: Any, task: NDArray[Any]) -> list[Any]:
    """Return one pair (inputs, labels) for each task."""
    if np.ndim(y) < 1 or len(x) != len(y):
        raise InputError(f"{path}: expected one label per input, got x of shape {np.shape(x)} and y {np.shape(y)}")
    if task.shape != (len(y),) or task.dtype.kind not in "iu" or not len(task) or task.min() != 1:
        raise InputError(f"{path}: task: expected the task of each example, integers from 1, got shape {task.shape}")
    count = int(task.max())
    if count > len(task):
        raise InputError(f"{path}: task: expected tasks 1 to at most {len(task)}, got {count}")
    missing = sorted(set(range(1, count + 1)) - set(task.tolist()))
    if missing:
        raise InputError(f"{path}: task: there are no examples of task {missing[0]}")
    return [(x[task == number], y[task == number]) for number in range(1, count + 1)]


def _read_folder(path: Path) -> Any:
    """Return the data of each file in a folder, sorted by name, or the images of an image folder."""
    files = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES)
    if files:
        sets = [read_data_file(file) for file in files]
        for file, examples in zip(files, sets, strict=True):
            if isinstance(examples, list):
                raise InputError(f"{file}: a folder holds one file per task, so the file must not have a task column")
        return sets
    tasks = sorted(folder for folder in path.glob("task*") if folder.is_dir())
    return [labelled_images(folder) for folder in tasks] if tasks else labelled_images(path)
