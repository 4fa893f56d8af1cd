"""Lifelong runs for the metrics of New et al. 2022: blocks, experts, smoothing and normalization."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from perdure.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    Curve = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Block:
    """A part of a run that trains on or evaluates one task (``train`` or ``test``), with the performance at each experience.

    A training block may be empty if only the evaluations around it were measured.
    """

    kind: Literal["train", "test"]
    task: str
    performance: Curve

    def __post_init__(self) -> None:
        if self.kind not in ("train", "test"):
            raise InputError(f"block of task {self.task!r}: expected the kind 'train' or 'test', got {self.kind!r}")
        curve = _curve(self.performance, f"{self.kind} block of task {self.task!r}")
        if self.kind == "test" and not curve.size:
            raise InputError(
                f"test block of task {self.task!r}: expected at least one performance, got none. Leave the block out."
            )
        object.__setattr__(self, "performance", curve)


@dataclass(frozen=True, eq=False)
class Run:
    """A lifelong run: its blocks in time order and, for each task, the training curves of its single-task experts.

    Examples
    --------
    >>> from perdure.metrics import lifelong
    >>> blocks = [
    ...     # for example the reward of each episode
    ...     lifelong.Block("train", "walk", [10, 30, 60, 80, 90]),
    ...     lifelong.Block("test", "walk", [85]),
    ...     lifelong.Block("train", "run", [5, 20, 40, 60, 60]),
    ...     lifelong.Block("test", "walk", [55]),
    ... ]
    >>> run = lifelong.Run(blocks, experts={"walk": [[5, 20, 50, 80, 90]]})
    >>> run.tasks
    ['walk', 'run']
    >>> # walk falls from 85 to 55 while run is learned
    >>> lifelong.performance_maintenance(run).mean
    -30.0
    """

    blocks: Sequence[Block]
    experts: Mapping[str, Sequence[Curve]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        experts = {
            task: tuple(_curve(curve, f"expert of task {task!r}") for curve in curves)
            for task, curves in self.experts.items()
        }
        if any(not curve.size for curves in experts.values() for curve in curves):
            raise InputError("experts: expected a performance for each experience, got an empty training curve")
        object.__setattr__(self, "blocks", tuple(self.blocks))
        object.__setattr__(self, "experts", experts)

    @property
    def tasks(self) -> list[str]:
        """Tasks in the order of their first training; tasks that are only evaluated come last."""
        ordered = sorted(self.blocks, key=lambda block: block.kind == "test")
        return list(dict.fromkeys(block.task for block in ordered))

    def positions(self, task: str, kind: Literal["train", "test"]) -> list[int]:
        """Return the indices of a task's blocks of one kind."""
        return [i for i, block in enumerate(self.blocks) if (block.task, block.kind) == (task, kind)]

    def training_curve(self, task: str) -> Curve:
        """Return the concatenated training blocks of a task."""
        curves = [self.blocks[i].performance for i in self.positions(task, "train")]
        return np.concatenate(curves) if curves else np.empty(0)


def run_from_table(table: ArrayLike, curriculum: Sequence[int]) -> Run:
    """Return a run without training curves from the performances after each step.

    ``table[l, j]`` is the performance on task j after step l, row 0 before any training (steps + 1 rows);
    NaN where it was not measured. ``curriculum[l]`` is the task trained at step l, 0-based. Tasks are named
    "1", "2", ...

    Examples
    --------
    >>> from perdure.metrics import lifelong
    >>> # performance on two tasks before training and after each of two steps
    >>> table = [[10, 10], [90, 20], [60, 80]]
    >>> run = lifelong.run_from_table(table, curriculum=[0, 1])
    >>> [f"{block.kind} {block.task}" for block in run.blocks]
    ['test 1', 'test 2', 'train 1', 'test 1', 'test 2', 'train 2', 'test 1', 'test 2']
    """
    rows = np.asarray(table, dtype=float)
    if rows.ndim != 2 or len(rows) != len(curriculum) + 1:
        raise InputError(
            f"table: expected {len(curriculum) + 1} rows (before training and after each step) and one column for each task, "
            f"got shape {rows.shape}"
        )
    if any(not 0 <= task < rows.shape[1] for task in curriculum):
        raise InputError(f"curriculum: expected tasks from 0 to {rows.shape[1] - 1}, got {list(curriculum)}")
    blocks: list[Block] = []
    for step, row in enumerate(rows):
        if step:
            blocks.append(Block("train", str(curriculum[step - 1] + 1), np.empty(0)))
        blocks += [Block("test", str(j + 1), np.array([p])) for j, p in enumerate(row) if not np.isnan(p)]
    return Run(blocks)


def smooth(performance: ArrayLike, window: int | None = None) -> Curve:
    """Return the moving average of a curve, in the same length. The default window is a fifth of the curve, at most 100.

    The curve is mirrored at its ends. A window below 3 leaves the curve unchanged; a window longer than the curve is
    replaced by the default. The window of experience i starts ceil(window / 2) before it (an odd window is not centered
    but lags by one, as in l2metrics).

    Examples
    --------
    >>> from perdure.metrics import lifelong
    >>> lifelong.smooth([0, 0, 6, 0, 0, 6], window=3).tolist()
    [2.0, 0.0, 2.0, 2.0, 2.0, 2.0]
    """
    curve = _curve(performance, "performance")
    if window is None or window > curve.size:
        window = min(curve.size // 5, 100)
    if window < 3:
        return curve
    before = (window + 1) // 2
    padded = np.pad(curve, (before, window - 1 - before), mode="reflect")
    return np.asarray(sliding_window_view(padded, window).mean(axis=1))


def smoothed_run(run: Run, window: int | None = None) -> Run:
    """Return the run with smoothed training blocks and expert curves; evaluations are unchanged.

    Examples
    --------
    >>> from perdure.metrics import lifelong
    >>> blocks = [
    ...     lifelong.Block("train", "walk", [0, 0, 6, 0, 0, 6]),
    ...     lifelong.Block("test", "walk", [3, 5]),
    ... ]
    >>> smoothed = lifelong.smoothed_run(lifelong.Run(blocks), window=3)
    >>> [block.performance.tolist() for block in smoothed.blocks]
    [[2.0, 0.0, 2.0, 2.0, 2.0, 2.0], [3.0, 5.0]]
    """
    blocks = [
        Block(b.kind, b.task, smooth(b.performance, window) if b.kind == "train" else b.performance) for b in run.blocks
    ]
    return Run(blocks, {task: [smooth(c, window) for c in curves] for task, curves in run.experts.items()})


def run_performance_ranges(run: Run) -> dict[str, tuple[float, float]]:
    """Return the lowest and highest performance of each task over the lifelong run and its experts.

    Examples
    --------
    >>> from perdure.metrics import lifelong
    >>> blocks = [
    ...     lifelong.Block("train", "walk", [10, 30, 80]),
    ...     lifelong.Block("test", "walk", [70, 90]),
    ... ]
    >>> lifelong.run_performance_ranges(lifelong.Run(blocks))
    {'walk': (10.0, 90.0)}
    """
    ranges: dict[str, tuple[float, float]] = {}
    for task in run.tasks:
        curves = [block.performance for block in run.blocks if block.task == task]
        everything = np.concatenate([*curves, *run.experts.get(task, ())])
        if everything.size:
            ranges[task] = (float(everything.min()), float(everything.max()))
    return ranges


def normalised_run(run: Run, ranges: Mapping[str, tuple[float, float]] | None = None) -> Run:
    """Return the run with each task's performance scaled to [1, 101]: ``100 (p - min) / (max - min) + 1``.

    The offset keeps transfer ratios finite. ``ranges`` defaults to `run_performance_ranges` of the run. A constant performance
    becomes 1.

    Examples
    --------
    >>> from perdure.metrics import lifelong
    >>> # rewards of any range
    >>> run = lifelong.Run([lifelong.Block("train", "walk", [-50, 0, 150])])
    >>> lifelong.normalised_run(run).training_curve("walk").tolist()
    [1.0, 26.0, 101.0]
    >>> known = {"walk": (-50.0, 350.0)}  # from several runs that are to be compared
    >>> lifelong.normalised_run(run, known).training_curve("walk").tolist()
    [1.0, 13.5, 51.0]
    """
    known = run_performance_ranges(run) if ranges is None else ranges
    missing = [b.task for b in run.blocks if b.performance.size and b.task not in known]
    if missing:
        raise InputError(f"ranges: expected (lowest, highest) for every task, got none for task {missing[0]!r}")

    def scale(task: str, curve: Curve) -> Curve:
        low, high = known.get(task, (0.0, 0.0))
        return 100 * (curve - low) / (high - low) + 1 if high > low else np.ones_like(curve)

    blocks = [Block(b.kind, b.task, scale(b.task, b.performance)) for b in run.blocks]
    experts = {t: [scale(t, c) for c in curves] for t, curves in run.experts.items() if t in known}
    return Run(blocks, experts)


def _curve(values: ArrayLike, name: str) -> Curve:
    curve = np.array(values, dtype=float)
    if curve.ndim != 1:
        raise InputError(f"{name}: expected one number for each experience, got shape {curve.shape}")
    if not np.isfinite(curve).all():
        index = int(np.flatnonzero(~np.isfinite(curve))[0])
        raise InputError(f"{name}, experience {index + 1}: expected a finite performance, got {curve[index]}")
    curve.setflags(write=False)
    return curve
