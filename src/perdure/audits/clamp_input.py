"""Curves for a CLAMP fit: single seeds, the chance level, and the number of test examples behind the accuracies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perdure.base.errors import InputError

if TYPE_CHECKING:
    from perdure.record.curves import Curves

FloatArray = NDArray[np.float64]
ASSUMED_EXAMPLES = 100
"""Test examples per task if the number is unknown. A larger number would claim more than is known."""
ASSUMED_NOTE = (
    f"Warning: The number of test examples is unknown; {ASSUMED_EXAMPLES} per task are assumed. If there are more, pass it "
    "(--examples) for narrower intervals."
)
_MOST_EXAMPLES = 20_000
_ABOVE_ZERO = 0.05


@dataclass(frozen=True)
class ClampInput:
    """Arguments of `perdure.surrogate.fit`: scaled curves of single seeds, (algorithms, seeds, tasks, steps + 1)."""

    curves: list[FloatArray]
    curricula: list[tuple[int, ...]]
    algorithms: list[tuple[str, ...]]
    tasks: tuple[str, ...]
    chance: FloatArray
    examples: FloatArray | None
    notes: tuple[str, ...] = ()
    """Assumptions that the reader of the fit must know."""

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `perdure.surrogate.fit` by name."""
        several = len(self.curves) > 1
        return {
            "curves": self.curves if several else self.curves[0],
            "curriculum": self.curricula if several else self.curricula[0],
            "algorithms": self.algorithms if several else self.algorithms[0],
            "tasks": self.tasks,
            "chance": self.chance,
            "examples": self.examples,
        }


def clamp_input(
    parts: Sequence[Curves],
    *,
    scenario: str = "",
    chance: float | Sequence[float] | None = None,
    examples: float | Sequence[float] | None = None,
    scale: str = "none",
    references: Sequence[ArrayLike] | None = None,
    exact: bool = False,
) -> ClampInput:
    """Return the input of a fit from the curves of single runs, which have the same tasks.

    ``scenario`` is class, task, domain or empty (unknown). The chance level is what a network without knowledge of a task
    scores: 0 if class-incremental, because classes that were forgotten or not yet seen are never predicted, otherwise 1 /
    classes of the task. The number of test examples is that of the records. If they have none and
    the accuracies are ``exact`` (unrounded), it follows from the accuracies; otherwise `ASSUMED_EXAMPLES` are assumed.
    """
    from perdure import surrogate  # noqa: PLC0415  (loading scipy's solvers is slow)

    groups: dict[tuple[int, ...], list[Curves]] = {}
    for part in parts:
        groups.setdefault(part.curriculum, []).append(part)
    blocks = [_stacked(group) for group in groups.values()]
    is_accuracy = scale in {"none", "percent"}
    raw = [values / 100 if scale == "percent" else values for _, values in blocks]
    levels = None if chance is None else np.asarray(chance, dtype=np.float64)
    counts = None if examples is None else np.asarray(examples, dtype=np.float64)
    if levels is None and is_accuracy:
        levels = chance_level(raw, parts[0].tasks, scenario)
    if counts is None and is_accuracy:
        counts = _recorded_counts(parts)
        counts = example_counts(raw, exact=exact) if counts is None else counts
    notes: tuple[str, ...] = ()
    if (
        counts is None
        and is_accuracy
        and all(((values >= 0) & (values <= 1) | np.isnan(values)).all() for values in raw)
    ):
        counts, notes = np.asarray(float(ASSUMED_EXAMPLES)), (ASSUMED_NOTE,)
    flat = [values.reshape(-1, *values.shape[2:]) for _, values in blocks]
    tasks = len(parts[0].tasks)
    level_list = None if levels is None else _per_task("chance", levels, tasks).tolist()
    scaled = surrogate.scale_together(flat, scale, chance=level_list, references=references)
    return ClampInput(
        curves=[part.reshape(values.shape) for part, (_, values) in zip(scaled, blocks, strict=True)],
        curricula=list(groups),
        algorithms=[names for names, _ in blocks],
        tasks=parts[0].tasks,
        chance=np.zeros(tasks) if levels is None or not is_accuracy else _per_task("chance", levels, tasks),
        examples=None if counts is None else _per_task("examples", counts, tasks),
        notes=notes,
    )


def _per_task(name: str, values: FloatArray, tasks: int) -> FloatArray:
    if values.ndim and values.shape != (tasks,):
        raise InputError(f"{name}: expected one number or {tasks} (one per task), got {values.size}")
    return np.broadcast_to(values, (tasks,)).copy()


def chance_level(values: Sequence[FloatArray], tasks: Sequence[str], scenario: str) -> FloatArray:
    """Return the chance level of each task; an error if it is unknown and the curves start above 0."""
    if scenario == "class":
        return np.zeros(len(tasks))
    classes = [len([name for name in task.split(",") if name.strip()]) for task in tasks]
    if scenario in {"task", "domain"} and min(classes) >= 2:
        return 1 / np.array(classes, dtype=np.float64)
    starts = np.concatenate([array[..., 0].reshape(-1, array.shape[2]) for array in values])
    counts = np.isfinite(starts).sum(axis=0)
    initial = np.where(counts > 0, np.nansum(starts, axis=0) / np.maximum(counts, 1), np.nan)
    if scenario in {"task", "domain"} and np.isfinite(initial).all():
        return np.clip(initial, 0, 0.99)
    if np.nanmax(np.append(initial, 0)) > _ABOVE_ZERO or scenario:
        start = f"the curves start at {np.nanmax(initial):.2f}" if np.isfinite(initial).any() else "it was not measured"
        raise InputError(
            f"chance: unknown, and {start} before training. Pass the accuracy of a network that does not know the task: "
            "--chance 0 for class-incremental accuracies, otherwise 1 / classes, such as --chance .5."
        )
    return np.zeros(len(tasks))


def _recorded_counts(parts: Sequence[Curves]) -> FloatArray | None:
    """Return the numbers of test examples in the records, the smallest of each task; None if a record has none."""
    if not all(part.examples for part in parts):
        return None
    counts: FloatArray = np.array([part.examples for part in parts], dtype=np.float64).min(axis=0)
    return counts


def example_counts(values: Sequence[FloatArray], *, exact: bool = False) -> FloatArray | None:
    """Return the smallest number of test examples of each task of which all accuracies are multiples; None if unclear.

    If the accuracies may be rounded (not ``exact``), decimals of up to four digits say nothing about the number. A task with
    only 0 and 1 gets the median of the others.
    """
    counts = []
    for task in range(values[0].shape[2]):
        cells = np.concatenate([array[:, :, task].ravel() for array in values])
        cells = np.unique(cells[np.isfinite(cells)])
        if ((cells < 0) | (cells > 1)).any():
            return None
        is_rounded = np.allclose(cells * 1e4, np.round(cells * 1e4), atol=1e-6, rtol=0)
        if not exact and is_rounded and ((cells > 0) & (cells < 1)).any():
            return None
        fractions = [Fraction(float(cell)).limit_denominator(_MOST_EXAMPLES) for cell in cells]
        count = lcm(*(fraction.denominator for fraction in fractions))
        is_close = all(abs(float(fraction) - cell) < 1e-9 for fraction, cell in zip(fractions, cells, strict=True))
        if count > _MOST_EXAMPLES or not is_close:
            return None
        counts.append(float(count))
    known = [count for count in counts if count > 1]
    if not known:
        return None
    return np.array([count if count > 1 else float(np.median(known)) for count in counts])


def _stacked(group: Sequence[Curves]) -> tuple[tuple[str, ...], FloatArray]:
    """Return the algorithms of one curriculum and their runs, (algorithms, seeds, tasks, steps + 1), filled up with NaN."""
    runs: dict[str, list[FloatArray]] = {}
    for part in group:
        for name, values in zip(part.algorithms, part.values, strict=True):
            runs.setdefault(name, []).append(values)
    seeds = max(map(len, runs.values()))
    stacked = np.full((len(runs), seeds, *group[0].values.shape[1:]), np.nan)
    for index, arrays in enumerate(runs.values()):
        stacked[index, : len(arrays)] = np.stack(arrays)
    return tuple(runs), stacked


def common_scenario(scenarios: Mapping[str, str]) -> str:
    """Return the scenario of all runs (by name of the run), empty if unknown; an error if they differ."""
    different = sorted(set(scenarios.values()))
    if len(different) > 1:
        names = " and ".join(name or "unknown" for name in different)
        raise InputError(f"the runs have different scenarios ({names}), so their accuracies are not comparable.")
    return different[0] if different else ""
