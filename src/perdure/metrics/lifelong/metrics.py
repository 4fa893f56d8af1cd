"""Lifelong-learning metrics of New et al. 2022 (arXiv 2201.08278), as computed by l2metrics.

A lifelong run is a sequence of blocks: training on one task (one performance per learning experience) or evaluation on one
task (a round of evaluation is several such blocks). Single-task experts are networks trained on one task only; relative
performance and sample efficiency compare with their training curves.

The paper first preprocesses a run by ``normalised_run(smoothed_run(run))``, then computes the metrics. For all of them
higher is better. A value that cannot be computed is NaN, and ``reasons`` says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy.stats import theilslopes

from perdure.base.errors import InputError, error_suggestion
from perdure.metrics.lifelong.run import Run, smooth

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    Curve = NDArray[np.float64]


@dataclass(frozen=True)
class PerTask:
    """A metric for each task: ``tasks`` holds its value, ``values`` the numbers it is computed from."""

    values: Mapping[str, tuple[float, ...]]
    tasks: Mapping[str, float]
    reasons: Mapping[str, str]

    @property
    def mean(self) -> float:
        """Mean over the tasks with a value; NaN if there is none."""
        known = [value for value in self.tasks.values() if not np.isnan(value)]
        return float(np.mean(known)) if known else float("nan")


@dataclass(frozen=True)
class Transfer:
    """Transfer between tasks: ``pairs[source, target]`` holds one value for each measurement."""

    pairs: Mapping[tuple[str, str], tuple[float, ...]]

    @property
    def mean(self) -> float:
        """Mean of the first value of each pair, as in the paper; NaN without pairs."""
        return float(np.mean([values[0] for values in self.pairs.values()])) if self.pairs else float("nan")


def mean_performance(run: Run, kind: Literal["train", "test"]) -> PerTask:
    """Mean performance of each task in its training blocks or in its evaluations, averaged over blocks.

    Its range is that of the performance; higher is better. l2metrics prints it as avg_train_perf and avg_eval_perf.

    Examples
    --------
    >>> from perdure.metrics import lifelong
    >>> training = lifelong.Block("train", "walk", [10, 30, 80])
    >>> evaluation = lifelong.Block("test", "walk", [70, 90])
    >>> run = lifelong.Run([training, evaluation])
    >>> lifelong.mean_performance(run, "train").tasks
    {'walk': 40.0}
    >>> lifelong.mean_performance(run, "test").tasks
    {'walk': 80.0}
    """
    _check_choice("kind", kind, ("train", "test"))
    by_task = {}
    for task in run.tasks:
        curves = [run.blocks[i].performance for i in run.positions(task, kind)]
        by_task[task] = [float(curve.mean()) for curve in curves if curve.size]
    return _averaged(by_task, dict.fromkeys(by_task, f"no {kind} block with performance"))


def performance_maintenance(run: Run, reference: Literal["mrlep", "mrtlp"] = "mrlep") -> PerTask:
    """Mean change in a task's evaluations relative to the end of its training, while other tasks are learned.

    Each evaluation after the first one that follows training of the task is compared with the most recent reference.
    ``mrlep`` (most recent learning evaluation performance): that first evaluation. ``mrtlp`` (most recent terminal learning
    performance): the mean of the last tenth of the last training block. An evaluation counts with its mean.

    In [-100, 100] on normalized data; 0 is no forgetting, negative is forgetting, positive is backward transfer; higher is
    better. Unlike ``backward_transfer`` of the accuracy matrix it needs no square matrix, and a task that is trained again
    gets a new reference.

    Examples
    --------
    >>> from perdure.metrics import lifelong
    >>> # performance on two tasks before training and after each of two steps
    >>> table = [[10, 10], [90, 20], [60, 80]]
    >>> run = lifelong.run_from_table(table, curriculum=[0, 1])
    >>> result = lifelong.performance_maintenance(run)
    >>> result.tasks["1"]  # task 1 falls from 90 to 60
    -30.0
    >>> result.reasons["2"]
    'no two evaluations after training, or no training curve'
    """
    _check_choice("reference", reference, ("mrlep", "mrtlp"))
    by_task: dict[str, list[float]] = {}
    for task in run.tasks:
        by_task[task] = []
        anchor: float | None = None
        terminal: float | None = None
        trained = False
        for block in (b for b in run.blocks if b.task == task):
            if block.kind == "train":
                trained, terminal = True, _terminal(block.performance)
            elif trained:  # the first evaluation after training is the reference, never compared
                trained = False
                anchor = float(block.performance.mean()) if reference == "mrlep" else terminal
            elif anchor is not None:
                by_task[task].append(float(block.performance.mean()) - anchor)
    return _averaged(by_task, dict.fromkeys(by_task, "no two evaluations after training, or no training curve"))


def forward_transfer(run: Run, form: Literal["ratio", "contrast"] = "ratio") -> Transfer:
    """Effect of learning one task on another that has not been trained yet. Higher is better.

    a and b are the evaluations of the target just before and just after training on the source. ``ratio``: b / a, from 0 to
    infinity, 1 is no transfer. ``contrast``: (b - a) / (a + b), from -1 to 1 for nonnegative performances, 0 is no
    transfer. Zero denominators are left out. GEM's forward transfer, ``forward_transfer`` of the accuracy matrix, instead
    compares with an untrained network and combines all earlier tasks.

    If several tasks are trained between a and b, each of them gets the value. If the target is among them, the change is
    due to its own training and is not counted; l2metrics counts it, and keeps only one of several sources.

    Examples
    --------
    >>> from perdure.metrics import lifelong
    >>> # performance on two tasks before training and after each of two steps
    >>> table = [[10, 10], [90, 20], [60, 80]]
    >>> run = lifelong.run_from_table(table, curriculum=[0, 1])
    >>> # learning task 1 doubles the performance on task 2
    >>> dict(lifelong.forward_transfer(run).pairs)
    {('1', '2'): (2.0,)}
    >>> # (20 - 10) / (20 + 10)
    >>> round(lifelong.forward_transfer(run, form="contrast").mean, 2)
    0.33
    """
    return _transfer(run, form, forward=True)


def backward_transfer(run: Run, form: Literal["ratio", "contrast"] = "ratio") -> Transfer:
    """Effect of learning one task on another that was trained before. Higher is better.

    Formulas and ranges are those of ``forward_transfer``. ``backward_transfer`` of the accuracy matrix is the difference to
    the end of the task's own training; this function compares consecutive evaluations only, so permanent forgetting
    counts once.

    Examples
    --------
    >>> from perdure.metrics import lifelong
    >>> # performance on two tasks before training and after each of two steps
    >>> table = [[10, 10], [90, 20], [60, 80]]
    >>> run = lifelong.run_from_table(table, curriculum=[0, 1])
    >>> # learning task 2 lowers task 1 from 90 to 60
    >>> round(lifelong.backward_transfer(run).mean, 2)
    0.67
    >>> round(lifelong.backward_transfer(run, form="contrast").mean, 2)
    -0.2
    """
    return _transfer(run, form, forward=False)


def relative_performance(run: Run) -> PerTask:
    """Area under a task's lifelong training curve divided by that of its single-task expert. Higher is better.

    The training blocks of the task are concatenated, and both curves are cut to the length of the shorter one. With several
    experts it is the mean of the ratios. From 0 to infinity on normalized data; above 1 the lifelong learner outperforms
    the expert.

    Examples
    --------
    >>> from perdure.metrics import lifelong
    >>> blocks = [
    ...     lifelong.Block("train", "walk", [10, 30, 80]),
    ...     lifelong.Block("train", "run", [10, 40, 50]),
    ... ]
    >>> run = lifelong.Run(blocks, experts={"walk": [[10, 20, 30]]})
    >>> result = lifelong.relative_performance(run)
    >>> result.tasks["walk"]  # (10 + 30 + 80) / (10 + 20 + 30): better than the expert
    2.0
    >>> dict(result.reasons)
    {'run': 'no single-task expert'}
    """
    by_task: dict[str, list[float]] = {}
    reasons = _without_expert(run)
    for task in run.tasks:
        curve = run.training_curve(task)
        by_task[task] = []
        for expert in run.experts.get(task, ()) if curve.size else ():
            shared = min(curve.size, expert.size)
            area = expert[:shared].sum()
            if area <= 0:
                reasons[task] = "the sum of the expert's performance is not positive: apply normalised_run first"
            else:
                by_task[task].append(float(curve[:shared].sum() / area))
    return _averaged(by_task, reasons)


def sample_efficiency(run: Run) -> PerTask:
    """Level and speed of a task's saturation relative to its single-task expert. Higher is better.

    (lifelong / expert saturation) times (expert / lifelong experiences to saturation). Saturation is the maximum of the
    smoothed, concatenated training curve; experiences to saturation is the number of experiences before that maximum. With
    several experts it is the mean over them. From 0 to infinity on normalized data; 1 equals the expert. NaN where the
    comparison is meaningless: a curve that has its maximum at the start, falls overall, or saturates below a fifth of the
    expert's level (l2metrics prints 0 for the last two).

    Examples
    --------
    >>> import numpy as np
    >>> from perdure.metrics import lifelong
    >>> experience = np.arange(100)
    >>> early, late = np.minimum(experience, 40), np.minimum(experience, 80) / 2
    >>> run = lifelong.Run([lifelong.Block("train", "walk", early)], {"walk": [late]})
    >>> # saturates in about half of the expert's experiences
    >>> round(lifelong.sample_efficiency(run).mean, 1)
    1.8
    >>> falling = lifelong.Block("train", "walk", early[::-1])
    >>> lifelong.sample_efficiency(lifelong.Run([falling], {"walk": [late]})).reasons[
    ...     "walk"
    ... ]
    'a training curve does not rise to saturation'
    """
    by_task: dict[str, list[float]] = {}
    reasons = _without_expert(run)
    for task in run.tasks:
        by_task[task] = []
        curve = run.training_curve(task)
        if not curve.size or task not in run.experts:
            continue
        level, duration = _saturation(curve)
        slope = np.polyfit(np.arange(curve.size), curve, 1)[0] if curve.size > 1 else 0.0
        for expert in run.experts[task]:
            expert_level, expert_duration = _saturation(expert)
            if expert_level <= 0:
                reasons[task] = "the expert saturates at or below zero: apply normalised_run first"
            elif duration == 0 or expert_duration == 0 or slope < 0 or level < 0.2 * expert_level:
                reasons[task] = "a training curve does not rise to saturation"
            else:
                by_task[task].append(level / expert_level * (expert_duration / duration))
    return _averaged(by_task, reasons)


def performance_recovery(run: Run) -> PerTask:
    """Negative Theil-Sen slope of a task's recovery times. Higher is better: positive if each recovery is faster.

    A recovery time is the number of experiences until a training block regains the terminal performance (mean of the last
    tenth) of the task's previous training block; the block's length plus one if it never does. ``values`` holds the
    recovery times.

    Examples
    --------
    >>> from perdure.metrics import lifelong
    >>> # visits of the same task
    >>> curves = [10, 50, 90, 90], [30, 40, 80, 90], [60, 80, 90, 90], [70, 90, 90, 90]
    >>> run = lifelong.Run([lifelong.Block("train", "walk", curve) for curve in curves])
    >>> result = lifelong.performance_recovery(run)
    >>> # experiences until the level before the interruption is reached again
    >>> result.values["walk"]
    (3.0, 2.0, 1.0)
    >>> result.mean  # positive: each recovery is faster
    1.0
    """
    by_task: dict[str, tuple[float, ...]] = {}
    for task in run.tasks:
        curves = [run.blocks[i].performance for i in run.positions(task, "train")]
        by_task[task] = tuple(_recovery(before, after) for before, after in pairwise(c for c in curves if c.size))
    slopes = {
        task: 0.0 - float(theilslopes(times)[0]) if len(times) > 1 else float("nan")  # never -0.0
        for task, times in by_task.items()
    }
    short = {task: "fewer than three training blocks" for task, times in by_task.items() if len(times) < 2}
    return PerTask(by_task, slopes, short)


def _transfer(run: Run, form: Literal["ratio", "contrast"], *, forward: bool) -> Transfer:
    _check_choice("form", form, ("ratio", "contrast"))
    pairs: dict[tuple[str, str], list[float]] = {}
    for target in run.tasks:
        training = run.positions(target, "train")
        for first, second in pairwise(run.positions(target, "test")):
            between = [block.task for block in run.blocks[first:second] if block.kind == "train"]
            untrained = not training or second < training[0]
            if target in between or untrained != forward:
                continue
            a, b = (float(run.blocks[i].performance.mean()) for i in (first, second))
            over, under = (b, a) if form == "ratio" else (b - a, a + b)
            if under != 0:
                for source in dict.fromkeys(between):
                    pairs.setdefault((source, target), []).append(over / under)
    return Transfer({pair: tuple(values) for pair, values in pairs.items()})


def _terminal(curve: Curve) -> float | None:
    return float(curve[9 * curve.size // 10 :].mean()) if curve.size else None


def _saturation(curve: Curve) -> tuple[float, int]:
    averaged = smooth(curve)
    level = float(averaged.max())
    # Mirrored windows hold the same numbers in a different order, so their means differ by rounding only.
    return level, int(np.flatnonzero(averaged >= level - 1e-12 * abs(level))[0])


def _recovery(before: Curve, after: Curve) -> float:
    regained = np.flatnonzero(after >= float(before[9 * before.size // 10 :].mean()))
    return float(regained[0]) if regained.size else float(after.size + 1)


def _averaged(by_task: Mapping[str, Sequence[float]], reasons: Mapping[str, str]) -> PerTask:
    tasks = {task: float(np.mean(values)) if values else float("nan") for task, values in by_task.items()}
    return PerTask(
        {task: tuple(values) for task, values in by_task.items()},
        tasks,
        {task: reasons[task] for task, values in by_task.items() if not values},
    )


def _without_expert(run: Run) -> dict[str, str]:
    return {
        task: "no training curve" if not run.training_curve(task).size else "no single-task expert"
        for task in run.tasks
    }


def _check_choice(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InputError(f"{name}: unknown name {value!r}, {error_suggestion(str(value), list(known))}")
