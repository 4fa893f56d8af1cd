"""Input of a fit: performance curves on one or several curricula, checked and arranged in blocks."""

from __future__ import annotations

from dataclasses import dataclass, replace
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
    """Curves of several algorithms on one curriculum; ``values`` are (algorithms, tasks, steps + 1), NaN where missing.

    ``values`` are means over seeds; ``runs`` are the curves of the single seeds, (algorithms, seeds, tasks, steps + 1).
    ``examples`` is the number of test examples of each task, None if unknown. ``chance`` is the accuracy of each task that
    was mapped to 0.
    """

    values: Array
    curriculum: tuple[int, ...]
    algorithms: tuple[int, ...]
    runs: Array
    examples: Array | None
    chance: Array

    @property
    def run_counts(self) -> NDArray[np.int64]:
        """Number of seeds with a value in each cell of ``values``."""
        return np.asarray(np.isfinite(self.runs).sum(axis=1))


@dataclass(frozen=True)
class Problem:
    """All curves of a fit. Blocks share their tasks and the algorithms with the same name."""

    blocks: tuple[Block, ...]
    algorithms: tuple[str, ...]
    tasks: tuple[str, ...]

    @property
    def trained(self) -> tuple[int, ...]:
        """Tasks that are trained at least once, in ascending order."""
        return tuple(sorted({task for block in self.blocks for task in block.curriculum}))

    @property
    def visits(self) -> list[int]:
        """Number of visits of each task in the curriculum that trains it most often."""
        return [max(block.curriculum.count(task) for block in self.blocks) for task in range(len(self.tasks))]

    @property
    def measured(self) -> NDArray[np.bool_]:
        """Mask of the measured cells after t = 0, in the order of `Coordinates.predictions`."""
        return np.concatenate([np.isfinite(block.values[:, :, 1:]).ravel() for block in self.blocks])

    @property
    def targets(self) -> Array:
        """All cells after t = 0 in the order of `Coordinates.predictions`, NaN where missing."""
        return np.concatenate([block.values[:, :, 1:].ravel() for block in self.blocks])

    @property
    def steps(self) -> NDArray[np.int64]:
        """Step (1-based) of each cell of ``targets``."""
        return np.concatenate(
            [
                np.broadcast_to(np.arange(1, block.values.shape[2]), block.values[:, :, 1:].shape).ravel()
                for block in self.blocks
            ]
        )

    @property
    def seeds(self) -> NDArray[np.int64]:
        """Number of seeds of each algorithm, in the curriculum in which it has the fewest."""
        counts = np.full(len(self.algorithms), np.iinfo(np.int64).max)
        for block in self.blocks:
            present = np.isfinite(block.runs).any(axis=(2, 3)).sum(axis=1)
            for index, algorithm in enumerate(block.algorithms):
                counts[algorithm] = min(counts[algorithm], int(present[index]))
        return counts

    def until(self, step: int) -> Problem:
        """Return the problem with only the first ``step`` steps of each curriculum."""
        blocks = tuple(
            replace(
                block,
                values=block.values[:, :, : step + 1],
                runs=block.runs[..., : step + 1],
                curriculum=block.curriculum[:step],
            )
            for block in self.blocks
        )
        return Problem(blocks, self.algorithms, self.tasks)


def make_problem(
    curves: ArrayLike | Sequence[ArrayLike],
    curriculum: Curricula,
    algorithms: Sequence[str] | Sequence[Sequence[str]] | None = None,
    tasks: Sequence[str] | None = None,
    *,
    examples: ArrayLike | None = None,
    chance: ArrayLike | None = None,
) -> Problem:
    """Return the checked problem of one curriculum with one array of curves, or of several of both.

    Without names, all arrays hold the same algorithms in the same order. Arrays with four axes hold the curves of single
    seeds, (algorithms, seeds, tasks, steps + 1); NaN fills up if the numbers of seeds differ. ``examples`` is the number of
    test examples, one number or one per task. ``chance`` is the accuracy that the curves map to 0 (default 0).

    Examples
    --------
    >>> from perdure import InputError, surrogate
    >>> # one algorithm, two tasks: before training and after two steps
    >>> curves = [[[0.0, 0.9, 0.6], [0.0, 0.1, 0.8]]]
    >>> problem = surrogate.make_problem(curves, [0, 1], algorithms=["ewc"])
    >>> problem.algorithms, problem.tasks
    (('ewc',), ('task 1', 'task 2'))
    >>> try:
    ...     surrogate.make_problem(curves, [0, 1, 0])
    ... except InputError as error:
    ...     print(str(error).partition(" (")[0])
    curves 1: expected 4 points in time for a curriculum of 3 steps
    """
    is_multiple = len(curriculum) > 0 and np.ndim(curriculum[0]) > 0
    arrays: list[Any] = list(cast("Sequence[ArrayLike]", curves)) if is_multiple else [curves]
    orders = [_check_order(order) for order in (curriculum if is_multiple else [curriculum])]
    if len(arrays) != len(orders):
        raise InputError(f"curves: expected {len(orders)} arrays, one per curriculum, got {len(arrays)}")
    runs = [
        _check_values(array, order, number) for number, (array, order) in enumerate(zip(arrays, orders, strict=True), 1)
    ]
    values = [_seed_means(array) for array in runs]
    names = _check_names(values, algorithms, is_multiple)
    all_names = list(dict.fromkeys(name for block in names for name in block))
    count = values[0].shape[1]
    if any(array.shape[1] != count for array in values):
        raise InputError(
            f"curves: expected the same tasks in all arrays, got {sorted({array.shape[1] for array in values})} tasks. Use NaN "
            "for a task that was not evaluated."
        )
    labels = tuple(tasks) if tasks is not None else tuple(f"task {task + 1}" for task in range(count))
    if len(labels) != count:
        raise InputError(f"tasks: expected {count} names, one per task, got {len(labels)}")
    for order in orders:
        for position, task in enumerate(order, 1):
            if not 0 <= task < count:
                raise InputError(
                    f"curriculum, step {position}: expected a task from 0 to {count - 1} (in files: 1 to {count}), got {task} "
                    f"(in files: {task + 1})"
                )
    counts, levels = _check_examples(examples, count), _check_chance(chance, count)
    blocks = tuple(
        Block(array, order, tuple(all_names.index(name) for name in block), single, counts, levels)
        for array, order, block, single in zip(values, orders, names, runs, strict=True)
    )
    return Problem(blocks, tuple(all_names), labels)


def _check_order(curriculum: object) -> tuple[int, ...]:
    order = np.asarray(curriculum)
    if order.ndim != 1 or order.size == 0:
        raise InputError(f"curriculum: expected a non-empty list of task numbers, got shape {order.shape}")
    if not np.issubdtype(order.dtype, np.integer):
        raise InputError(f"curriculum: expected integers, got values of type {order.dtype}")
    return tuple(int(task) for task in order)


def _check_values(curves: ArrayLike, order: tuple[int, ...], number: int) -> Array:
    try:
        values = np.array(curves, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"curves {number}: expected an array of numbers (algorithms, tasks, steps + 1), got {error}"
        ) from None
    if values.ndim == 2:
        values = values[None]
    if values.ndim == 3:
        values = values[:, None]
    if values.ndim != 4 or 0 in values.shape:
        raise InputError(
            f"curves {number}: expected shape (algorithms, tasks, steps + 1), or (algorithms, seeds, tasks, steps + 1), got "
            f"{np.shape(curves)}"
        )
    if values.shape[3] != len(order) + 1:
        hint = ". Add a first column for the performance before training, NaN if it was not measured."
        raise InputError(
            f"curves {number}: expected {len(order) + 1} points in time for a curriculum of {len(order)} steps (one before "
            f"training, one after each step), got {values.shape[3]}{hint if values.shape[3] == len(order) else ''}"
        )
    if np.isinf(values).any():
        raise InputError(f"curves {number}: expected finite numbers, got infinity. Use NaN for a missing cell.")
    outside = np.argwhere(np.abs(values) > 1)
    if len(outside):
        algorithm, seed, task, step = outside[0]
        raise InputError(
            f"curves {number}, algorithm {algorithm + 1}, task {task + 1}, step {step}: expected a number between -1 and 1, "
            f"got {values[algorithm, seed, task, step]:.6g} ({len(outside)} such cells). Scale the curves first "
            "(perdure.surrogate.scale; command line: --scale)."
        )
    if not np.isfinite(values[..., 1:]).any():
        raise InputError(f"curves {number}: expected at least one measured value after the first step, got none")
    return values


def _seed_means(runs: Array) -> Array:
    """Return the mean over seeds, NaN where no seed has a value."""
    counts = np.isfinite(runs).sum(axis=1)
    return np.where(counts > 0, np.nansum(runs, axis=1) / np.maximum(counts, 1), np.nan)


def _check_examples(examples: ArrayLike | None, tasks: int) -> Array | None:
    if examples is None:
        return None
    counts = np.asarray(examples, dtype=np.float64)
    if counts.ndim and counts.shape != (tasks,):
        raise InputError(f"examples: expected one number or {tasks} (one per task), got {counts.size}")
    if not (np.isfinite(counts) & (counts >= 1)).all():
        raise InputError(f"examples: expected at least 1 test example, got {np.nanmin(counts):.6g}")
    return np.broadcast_to(counts, (tasks,)).copy()


def _check_chance(chance: ArrayLike | None, tasks: int) -> Array:
    levels = np.asarray(0.0 if chance is None else chance, dtype=np.float64)
    if levels.ndim and levels.shape != (tasks,):
        raise InputError(f"chance: expected one number or {tasks} (one per task), got {levels.size}")
    if not ((levels >= 0) & (levels < 1)).all():
        raise InputError(f"chance: expected a number from 0 to below 1, got {levels.max():.6g}")
    return np.broadcast_to(levels, (tasks,)).copy()


def _check_names(
    values: Sequence[Array], algorithms: Sequence[str] | Sequence[Sequence[str]] | None, is_multiple: bool
) -> list[tuple[str, ...]]:
    if algorithms is None:
        if len({array.shape[0] for array in values}) > 1:
            raise InputError(
                f"curves: the arrays have different numbers of algorithms ({[array.shape[0] for array in values]}). Pass "
                "their names as algorithms, so that equal ones can be matched."
            )
        names = [tuple(f"algorithm {a + 1}" for a in range(array.shape[0])) for array in values]
    elif is_multiple and algorithms and not isinstance(algorithms[0], str):
        names = [tuple(block) for block in algorithms]
    else:
        names = [tuple(str(name) for name in algorithms) for _ in values]
    if len(names) != len(values):
        raise InputError(f"algorithms: expected names for {len(values)} arrays, got {len(names)}")
    for array, block in zip(values, names, strict=True):
        if len(block) != array.shape[0]:
            raise InputError(f"algorithms: expected {array.shape[0]} names, one per algorithm, got {len(block)}")
        if len(set(block)) != len(block):
            raise InputError(f"algorithms: expected different names within a curriculum, got {list(block)}")
    return names
