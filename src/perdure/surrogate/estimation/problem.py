"""What is to be explained: performance curves on one or several curricula, checked and laid out for the fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perdure.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

Array: TypeAlias = NDArray[np.float64]
Curricula: TypeAlias = "Sequence[int] | Sequence[Sequence[int]] | NDArray[np.int64]"


@dataclass(frozen=True)
class Block:
    """The curves of some algorithms on one curriculum: values are (algorithms, tasks, steps + 1), NaN = missing."""

    values: Array
    curriculum: tuple[int, ...]
    algorithms: tuple[int, ...]


@dataclass(frozen=True)
class Problem:
    """All curves of a fit. Tasks are shared by the blocks, and so is an algorithm of the same name."""

    blocks: tuple[Block, ...]
    algorithms: tuple[str, ...]
    tasks: tuple[str, ...]

    @property
    def trained(self) -> tuple[int, ...]:
        """Return the tasks that are trained at least once, in order of their number."""
        return tuple(sorted({task for block in self.blocks for task in block.curriculum}))

    @property
    def visits(self) -> list[int]:
        """Return how often each task is trained in the curriculum that trains it most."""
        return [max(block.curriculum.count(task) for block in self.blocks) for task in range(len(self.tasks))]

    @property
    def measured(self) -> NDArray[np.bool_]:
        """Return which cells after t = 0 hold a number, in the order of :func:`predictions`."""
        return np.concatenate([np.isfinite(block.values[:, :, 1:]).ravel() for block in self.blocks])

    @property
    def targets(self) -> Array:
        """Return every cell after t = 0 in the order of :func:`predictions`, missing ones as NaN."""
        return np.concatenate([block.values[:, :, 1:].ravel() for block in self.blocks])

    @property
    def steps(self) -> NDArray[np.int64]:
        """Return the step (1-based) at which each cell of ``targets`` was measured."""
        return np.concatenate(
            [
                np.broadcast_to(np.arange(1, block.values.shape[2]), block.values[:, :, 1:].shape).ravel()
                for block in self.blocks
            ]
        )

    def until(self, step: int) -> Problem:
        """Return the same problem cut after ``step`` steps of each curriculum."""
        blocks = tuple(
            Block(block.values[:, :, : step + 1], block.curriculum[:step], block.algorithms) for block in self.blocks
        )
        return Problem(blocks, self.algorithms, self.tasks)


def make_problem(
    curves: ArrayLike | Sequence[ArrayLike],
    curriculum: Curricula,
    algorithms: Sequence[str] | Sequence[Sequence[str]] | None = None,
    tasks: Sequence[str] | None = None,
) -> Problem:
    """Check curves and curricula and put them together.

    One curriculum with one array, or several of both. Without names every array has the same algorithms in the
    same order.
    """
    several = len(curriculum) > 0 and np.ndim(curriculum[0]) > 0
    arrays: list[Any] = list(cast("Sequence[ArrayLike]", curves)) if several else [curves]
    orders = [_order(order) for order in (curriculum if several else [curriculum])]
    if len(arrays) != len(orders):
        raise InputError(f"curves: {len(arrays)} arrays for {len(orders)} curricula; give one array per curriculum")
    values = [_values(array, order, where) for where, (array, order) in enumerate(zip(arrays, orders, strict=True), 1)]
    names = _names(values, algorithms, several)
    every = list(dict.fromkeys(name for block in names for name in block))
    count = values[0].shape[1]
    if any(array.shape[1] != count for array in values):
        raise InputError(
            f"curves: {sorted({array.shape[1] for array in values})} tasks in different arrays; all curricula must be "
            "evaluated on the same tasks (use NaN for a task that was not evaluated)"
        )
    labels = tuple(tasks) if tasks is not None else tuple(f"task {task + 1}" for task in range(count))
    if len(labels) != count:
        raise InputError(f"tasks: {len(labels)} names for {count} tasks; give one name per task")
    for order in orders:
        for position, task in enumerate(order, 1):
            if not 0 <= task < count:
                raise InputError(
                    f"curriculum, step {position}: task {task + 1} (1-based), but there are {count} tasks; "
                    f"use 0 to {count - 1} in Python and 1 to {count} in files"
                )
    blocks = tuple(
        Block(array, order, tuple(every.index(name) for name in block))
        for array, order, block in zip(values, orders, names, strict=True)
    )
    return Problem(blocks, tuple(every), labels)


def _order(curriculum: object) -> tuple[int, ...]:
    order = np.asarray(curriculum)
    if order.ndim != 1 or order.size == 0:
        raise InputError(f"curriculum: shape {order.shape}; give a non-empty list of task numbers")
    if not np.issubdtype(order.dtype, np.integer):
        raise InputError(f"curriculum: values of type {order.dtype}; task numbers are whole numbers")
    return tuple(int(task) for task in order)


def _values(curves: ArrayLike, order: tuple[int, ...], number: int) -> Array:
    try:
        values = np.array(curves, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"curves {number}: not an array of numbers ({error}); give (algorithms, tasks, steps + 1)"
        ) from None
    if values.ndim == 2:
        values = values[None]
    if values.ndim != 3 or 0 in values.shape:
        raise InputError(f"curves {number}: shape {values.shape}; expected (algorithms, tasks, steps + 1)")
    if values.shape[2] != len(order) + 1:
        hint = " (is the column before any training missing?)" if values.shape[2] == len(order) else ""
        raise InputError(
            f"curves {number}: {values.shape[2]} points in time for a curriculum of {len(order)} steps{hint}; "
            f"expected {len(order) + 1}, the first before any training (NaN if it was not measured)"
        )
    if np.isinf(values).any():
        raise InputError(f"curves {number}: infinite values; use NaN for a missing cell")
    outside = np.argwhere(np.abs(values) > 1)
    if len(outside):
        algorithm, task, step = outside[0]
        raise InputError(
            f"curves {number}, algorithm {algorithm + 1}, task {task + 1}, step {step}: "
            f"{values[algorithm, task, step]:.6g} is outside [-1, 1] ({len(outside)} such cells); "
            "scale the curves first (perdure.surrogate.scale, or --scale on the command line)"
        )
    if not np.isfinite(values[:, :, 1:]).any():
        raise InputError(f"curves {number}: no measured value after training began; nothing can be fitted")
    return values


def _names(
    values: Sequence[Array], algorithms: Sequence[str] | Sequence[Sequence[str]] | None, several: bool
) -> list[tuple[str, ...]]:
    if algorithms is None:
        if len({array.shape[0] for array in values}) > 1:
            raise InputError(
                f"curves: {[array.shape[0] for array in values]} algorithms in the arrays; "
                "give their names, so that it is known which are the same"
            )
        names = [tuple(f"algorithm {a + 1}" for a in range(array.shape[0])) for array in values]
    elif several and algorithms and not isinstance(algorithms[0], str):
        names = [tuple(block) for block in algorithms]
    else:
        names = [tuple(str(name) for name in algorithms) for _ in values]
    if len(names) != len(values):
        raise InputError(f"algorithms: names for {len(names)} arrays, but there are {len(values)}")
    for array, block in zip(values, names, strict=True):
        if len(block) != array.shape[0]:
            raise InputError(f"algorithms: {len(block)} names for {array.shape[0]} algorithms; give one name each")
        if len(set(block)) != len(block):
            raise InputError(f"algorithms: {list(block)} has a name twice; names must differ within a curriculum")
    return names
