"""The data of a run: test examples and backgrounds of each task, preprocessed for the network."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from perdure.base.errors import InputError
from perdure.explain.adapters.data import labelled_arrays
from perdure.explain.adapters.inputs import InputForm
from perdure.tasks import Benchmark

Rows = NDArray[np.int64]


class RunData(Protocol):
    """Test examples and backgrounds, task by task. Inputs are preprocessed for the network."""

    @property
    def fingerprint(self) -> str:
        """A digest of the data."""

    @property
    def classes(self) -> tuple[tuple[int, ...], ...]:
        """The output units of each task."""

    def labels(self, task: int) -> NDArray[np.int64]:
        """Return the output unit of each test example."""

    def inputs(self, task: int, rows: Rows) -> Tensor:
        """Return the test examples at some rows."""

    def images(self, task: int, rows: Rows) -> NDArray[np.uint8] | None:
        """Return test examples for display, (n, channels, height, width), or None if they are not images."""

    def background(self, task: int, count: int, seed: int) -> Tensor:
        """Return ``count`` background examples."""

    @property
    def kind(self) -> str:
        """What the labels are: classes, regression or multi-label."""

    @property
    def form(self) -> InputForm | None:
        """How several inputs are packed into one row; None for a single input."""


class BenchmarkData:
    """The data of a benchmark. The background consists of training examples of the task."""

    kind = "classes"
    form = None

    def __init__(self, benchmark: Benchmark, device: str) -> None:
        self.benchmark, self.device = benchmark, torch.device(device)
        self._factor, self._shift = (torch.from_numpy(array).to(self.device) for array in benchmark.normalization())

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the benchmark."""
        return self.benchmark.fingerprint()

    @property
    def classes(self) -> tuple[tuple[int, ...], ...]:
        """The output units of each task."""
        return tuple(tuple(task.classes) for task in self.benchmark.tasks)

    def labels(self, task: int) -> NDArray[np.int64]:
        """Return the output unit of each test example."""
        return self.benchmark.tasks[task].test.y

    def inputs(self, task: int, rows: Rows) -> Tensor:
        """Return normalized test examples."""
        return self._normalized(self.benchmark.tasks[task].test.x, rows)

    def images(self, task: int, rows: Rows) -> NDArray[np.uint8] | None:
        """Return the images as they are stored."""
        x = self.benchmark.tasks[task].test.x
        return np.asarray(x[rows], dtype=np.uint8) if x.ndim == 4 else None

    def background(self, task: int, count: int, seed: int) -> Tensor:
        """Return training examples of the task, balanced over its classes."""
        train = self.benchmark.tasks[task].train
        return self._normalized(train.x, np.sort(balanced_data_order(train.y, seed, task)[:count]))

    def spaced_background(self, task: int, count: int) -> Tensor:
        """Return training examples at equal distances in the order of the training set."""
        train = self.benchmark.tasks[task].train
        rows = np.unique(np.linspace(0, len(train) - 1, min(count, len(train))).astype(int))
        return self._normalized(train.x, rows)

    def normalize(self, x: Tensor) -> Tensor:
        """Return network inputs for stored examples."""
        return torch.addcmul(self._shift, x.float(), self._factor)

    def _normalized(self, x: NDArray[Any], rows: Rows) -> Tensor:
        return self.normalize(torch.from_numpy(np.ascontiguousarray(x[rows])).to(self.device))


@dataclass(frozen=True)
class UserData:
    """Test examples that a user provides, preprocessed for the network, and their backgrounds.

    Several inputs of a model are packed into one row, as ``form`` says. ``kind``: ``"classes"``, ``"regression"`` (numbers as
    labels) or ``"multi-label"`` (several labels per example). Without classes, ``labels`` are 0.
    """

    tasks: tuple[tuple[NDArray[np.float32], NDArray[np.int64]], ...]
    backgrounds: tuple[NDArray[np.float32], ...] | None
    fingerprint: str = ""
    kind: str = "classes"
    form: InputForm | None = None

    @classmethod
    def checked(cls, data: Any, background: Any = None) -> UserData:
        """Return the examples of each task as arrays; unusable data raise `InputError`.

        ``data``: for each task a pair (inputs, labels), a Dataset or a DataLoader; or a single one of them. Checked data are
        returned as they are.
        """
        if isinstance(data, UserData):
            return data
        sets = task_sets(data)
        if not sets:
            raise InputError("data: expected a pair (inputs, labels) for each task, got an empty list")
        names = [f"data of task {task}" if len(sets) > 1 else "data" for task in range(1, len(sets) + 1)]
        pairs = [labelled_arrays(examples, name) for examples, name in zip(sets, names, strict=True)]
        form = InputForm.of(pairs[0][0], names[0])
        rows = [(_packed(inputs, form, name), labels) for (inputs, labels), name in zip(pairs, names, strict=True)]
        kinds = [_label_kind(labels) for _, labels in rows]
        if len(set(kinds)) > 1:
            task = next(index for index, kind in enumerate(kinds) if kind != kinds[0])
            raise InputError(
                f"{names[task]}: labels of type {rows[task][1].dtype} ({kinds[task]}), but those of task 1 are {kinds[0]}; "
                "expected output units, integers from 0, in every task"
            )
        arrays = tuple(_checked_pair(pair, kinds[0], name) for pair, name in zip(rows, names, strict=True))
        digest = hashlib.sha256()
        for x, y in arrays:
            digest.update(np.ascontiguousarray(x).tobytes() + y.tobytes())
        checked = cls(arrays, _backgrounds(background, len(arrays), form), kind=kinds[0], form=form)
        for array in checked.backgrounds or ():
            digest.update(np.ascontiguousarray(array).tobytes())
        return replace(checked, fingerprint=digest.hexdigest())

    @property
    def classes(self) -> tuple[tuple[int, ...], ...]:
        """The output units that occur in the labels of each task."""
        return tuple(tuple(int(unit) for unit in np.unique(y)) for _, y in self.tasks)

    def labels(self, task: int) -> NDArray[np.int64]:
        """Return the output unit of each test example."""
        return self.tasks[task][1]

    def inputs(self, task: int, rows: Rows) -> Tensor:
        """Return the test examples at some rows."""
        return torch.from_numpy(self.tasks[task][0][rows])

    def images(self, task: int, rows: Rows) -> NDArray[np.uint8] | None:
        """Return the inputs scaled to 0..255 if they have the shape of images."""
        x = self.tasks[task][0]
        if self.form is not None or x.ndim != 4 or x.shape[1] not in (1, 3):
            return None
        low, high = float(x.min()), float(x.max())
        scaled: NDArray[np.uint8] = ((x[rows] - low) * (255 / max(high - low, 1e-12))).astype(np.uint8)
        return scaled

    def background(self, task: int, count: int, seed: int) -> Tensor:
        """Return rows of the user's background, or test examples of the task, balanced over its classes."""
        if self.backgrounds is not None:
            array = self.backgrounds[task]
            rows = np.sort(np.random.default_rng([seed, task]).permutation(len(array))[:count])
            return torch.from_numpy(array[rows])
        return self.inputs(task, np.sort(balanced_data_order(self.labels(task), seed, task)[:count]))


def with_background(data: Any) -> tuple[Any, Any]:
    """Return data and their background: the third part of (inputs, labels, background), None for other forms."""
    if isinstance(data, tuple | list) and len(data) == 3 and _is_labels(data[1]) and not _is_labelled(data[0]):
        return [tuple(data[:2])], [data[2]]
    return data, None


def task_sets(data: Any) -> list[Any]:
    """Return the examples of each task: of a list as it is; a pair, a Dataset or a DataLoader is a single task."""
    if isinstance(data, Mapping):
        return [data]
    if isinstance(data, tuple | list):
        is_pair = len(data) == 2 and _is_labels(data[1]) and not _is_labelled(data[0])
        return [data] if is_pair else list(data)
    return [data]


def _is_labels(values: Any) -> bool:
    """Return whether something can be the labels of one task: an array of at most two dimensions."""
    return hasattr(values, "shape") and len(values.shape) in (1, 2)


def _is_labelled(values: Any) -> bool:
    """Return whether something can be the examples of one task: a pair, or an object that is not an array."""
    if isinstance(values, tuple | list) and len(values) == 2:
        return _is_labels(values[1]) and hasattr(values[0], "shape") and len(values[1].shape) == 1
    return not isinstance(values, tuple | list | Mapping) and not hasattr(values, "shape")


def _packed(inputs: Any, form: InputForm | None, name: str) -> NDArray[np.float32]:
    """Return inputs as one array of float32."""
    if form is not None:
        return form.pack(inputs, name).astype(np.float32)
    if isinstance(inputs, Mapping | tuple):
        raise InputError(f"{name}: expected one array as in the first task, got several inputs")
    return run_data_array(inputs).astype(np.float32)


def _label_kind(labels: NDArray[Any]) -> str:
    """Return what labels are: one class per example, a number, or several labels."""
    if labels.ndim == 2 and labels.shape[1] > 1:
        return "multi-label"
    return "regression" if labels.dtype.kind == "f" and (labels % 1).any() else "classes"


def _checked_pair(
    pair: tuple[NDArray[np.float32], NDArray[Any]], kind: str, name: str
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the inputs and labels of one task; those that cannot be used raise `InputError`."""
    x, y = pair[0], pair[1][:, 0] if pair[1].ndim == 2 and pair[1].shape[1] == 1 else pair[1]
    if (y.ndim != 1 and kind == "classes") or len(x) != len(y):
        raise InputError(f"{name}: {len(x)} inputs and labels of shape {y.shape}; expected one label per input")
    if len(x) < 2:
        raise InputError(f"{name}: {len(x)} examples, expected at least 2")
    if not np.isfinite(x).all():
        row = int(np.argwhere(~np.isfinite(x))[0][0])
        raise InputError(f"{name}: the input of example {row + 1} contains NaN or infinity; remove it or fill it in")
    if kind != "classes":
        return x, np.zeros(len(x), dtype=np.int64)
    if y.dtype.kind not in "iu" or y.min() < 0:
        raise InputError(
            f"{name}: labels of type {y.dtype} with minimum {y.min()}; expected output units, integers from 0"
        )
    return x, y.astype(np.int64)


def check_regression_outputs(kind: str, outputs: int, where: str) -> None:
    """Refuse labels that are not integers for a model with several outputs: it is probably a classifier."""
    if kind == "regression" and outputs > 1:
        raise InputError(
            f"{where}: the labels are not integers, as for a regression model, but the model has {outputs} outputs; pass "
            "output units as labels (integers from 0), or target= the output to explain",
            cli=f"{where}: the labels are not integers, as for a regression model, but the model has {outputs} outputs; pass "
            "output units as labels (integers from 0), or --target and the number of the output to explain",
        )


def run_data_array(values: Any) -> NDArray[Any]:
    """Return a tensor, an array or a list as an array."""
    if isinstance(values, Mapping):
        raise InputError(
            f"data: expected an array or a tensor, got a dictionary with the keys {', '.join(map(str, values))}"
        )
    if hasattr(values, "detach"):
        tensor = values.detach().cpu()
        # NumPy has no bfloat16.
        values = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return np.asarray(values)


def _backgrounds(background: Any, tasks: int, form: InputForm | None) -> tuple[NDArray[np.float32], ...] | None:
    if background is None:
        return None
    if hasattr(background, "shape") or isinstance(background, Mapping):
        return (_packed(background, form, "background"),) * tasks
    arrays = tuple(_packed(array, form, "background") for array in background)
    if len(arrays) != tasks:
        raise InputError(f"background: {len(arrays)} arrays for {tasks} tasks; expected one array, or one per task")
    return arrays


def balanced_data_order(labels: NDArray[np.int64], *seed: int) -> Rows:
    """Return all rows in a seeded random order in which every prefix is balanced over classes as far as possible.

    Examples
    --------
    >>> import numpy as np
    >>> from perdure import runs
    >>> labels = np.array([0, 0, 0, 0, 1, 1, 2])
    >>> order = runs.balanced_data_order(labels, 0)
    >>> # the first three examples are one of each class
    >>> sorted(labels[order[:3]].tolist())
    [0, 1, 2]
    """
    rng = np.random.default_rng(seed)
    rows, ranks = [], []
    for unit in np.unique(labels):
        own_rows = rng.permutation(np.flatnonzero(labels == unit))
        rows.append(own_rows)
        # The k-th example of each class has rank k plus a random offset below 1/2: one per class in every round.
        ranks.append(np.arange(len(own_rows)) + rng.random(len(own_rows)) * 0.5)
    order: Rows = np.concatenate(rows)[np.argsort(np.concatenate(ranks), kind="stable")].astype(np.int64)
    return order
