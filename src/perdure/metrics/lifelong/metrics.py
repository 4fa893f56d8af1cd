"""The lifelong-learning metrics of New et al. 2022 (arXiv 2201.08278), as l2metrics computes them.

A lifelong run is a sequence of blocks: training on one task (a performance for every learning experience) or
evaluation of one task (several such blocks make one round of evaluation). Single-task experts are networks
that learned one task alone; their training curves are the yardstick of relative performance and sample
efficiency.

The paper's order of work is ``normalised(smoothed(run))``, then the metrics. All are better when higher. A
value that cannot be computed is NaN, and ``reasons`` says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy.stats import theilslopes

from perdure.base.errors import InputError
from perdure.metrics.lifelong.run import (
    Block,
    Run,
    from_table,
    normalised,
    performance_ranges,
    smooth,
    smoothed,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    Curve = NDArray[np.float64]

__all__ = [
    "Block",
    "PerTask",
    "Run",
    "Transfer",
    "backward_transfer",
    "forward_transfer",
    "from_table",
    "mean_performance",
    "normalised",
    "performance_maintenance",
    "performance_ranges",
    "performance_recovery",
    "relative_performance",
    "sample_efficiency",
    "smooth",
    "smoothed",
]


@dataclass(frozen=True)
class PerTask:
    """A metric of tasks: ``tasks`` holds a number for each, ``values`` what it was made of."""

    values: Mapping[str, tuple[float, ...]]
    tasks: Mapping[str, float]
    reasons: Mapping[str, str]

    @property
    def mean(self) -> float:
        """Mean over the tasks that have a number, NaN if none has."""
        known = [value for value in self.tasks.values() if not np.isnan(value)]
        return float(np.mean(known)) if known else float("nan")


@dataclass(frozen=True)
class Transfer:
    """Transfer from task to task: ``pairs[source, target]`` holds a value for each time it was measured."""

    pairs: Mapping[tuple[str, str], tuple[float, ...]]

    @property
    def mean(self) -> float:
        """Mean over pairs of the first value of each, as the paper aggregates; NaN without any pair."""
        return float(np.mean([values[0] for values in self.pairs.values()])) if self.pairs else float("nan")


def mean_performance(run: Run, kind: Literal["train", "test"]) -> PerTask:
    """Mean over its training blocks, or evaluations, of the mean performance in each.

    Range that of the performance; higher is better. l2metrics prints it as avg_train_perf and avg_eval_perf.
    """
    _check_choice("kind", kind, ("train", "test"))
    found = {}
    for task in run.tasks:
        curves = [run.blocks[i].performance for i in run.positions(task, kind)]
        found[task] = [float(curve.mean()) for curve in curves if curve.size]
    return _averaged(found, dict.fromkeys(found, f"no {kind} block with performance"))


def performance_maintenance(run: Run, reference: Literal["mrlep", "mrtlp"] = "mrlep") -> PerTask:
    """Mean change of a task's evaluations, as other tasks are learned, from where its own learning left it.

    Each evaluation after the first one that follows training of the task is compared with the most recent
    reference. ``mrlep``, most recent learning evaluation performance: that first evaluation. ``mrtlp``, most
    recent terminal learning performance: the mean of the last tenth of the last training block. Evaluations
    count with their mean.

    Range -100..100 on normalised data; 0 is perfect memory, negative is forgetting, positive is backward
    transfer; higher is better. Unlike ``backward_transfer`` of the accuracy matrix it needs no square
    matrix, and a task that is trained again gets a new reference.
    """
    _check_choice("reference", reference, ("mrlep", "mrtlp"))
    found: dict[str, list[float]] = {}
    for task in run.tasks:
        found[task] = []
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
                found[task].append(float(block.performance.mean()) - anchor)
    return _averaged(found, dict.fromkeys(found, "no two evaluations after training, or no training curve"))


def forward_transfer(run: Run, form: Literal["ratio", "contrast"] = "ratio") -> Transfer:
    """How learning one task changes another that has not been trained yet.

    With a and b the evaluations of the target just before and after training of the source: ratio b / a
    (range 0 to infinity, 1 is no transfer), contrast (b - a) / (a + b) (range -1 to 1 for performances that
    are not negative, 0 is no transfer); higher is better. Zero denominators are left out. GEM's forward
    transfer, ``forward_transfer`` of the accuracy matrix, compares with a random network instead and sums up
    all earlier tasks.

    Between a and b several tasks may have been trained: each gets the value. If the target was among them
    the change is its own learning and does not count (l2metrics counts it, and keeps one of several
    sources).
    """
    return _transfer(run, form, forward=True)


def backward_transfer(run: Run, form: Literal["ratio", "contrast"] = "ratio") -> Transfer:
    """How learning one task changes another that was trained before.

    Formulas, ranges and direction as in ``forward_transfer``. ``backward_transfer`` of the accuracy matrix
    is a difference to the task's own end of training; this compares neighbouring evaluations only, so
    lasting forgetting shows once.
    """
    return _transfer(run, form, forward=False)


def relative_performance(run: Run) -> PerTask:
    """Area under a task's lifelong training curve over that under its single-task expert's.

    All training blocks of the task are joined and both curves cut to the length of the shorter. Several
    experts: mean of the ratios. Range 0 to infinity on normalised data; above 1 the lifelong learner learned
    better than alone; higher is better.
    """
    found: dict[str, list[float]] = {}
    reasons = _without_expert(run)
    for task in run.tasks:
        curve = run.training_curve(task)
        found[task] = []
        for expert in run.experts.get(task, ()) if curve.size else ():
            shared = min(curve.size, expert.size)
            area = expert[:shared].sum()
            if area <= 0:
                reasons[task] = "the expert's performance does not sum to more than zero: normalise the run"
            else:
                found[task].append(float(curve[:shared].sum() / area))
    return _averaged(found, reasons)


def sample_efficiency(run: Run) -> PerTask:
    """How high and how fast a task saturates, against its single-task expert.

    (lifelong / expert saturation) times (expert / lifelong experiences to saturation). Saturation is the
    maximum of the smoothed joined training curve, experiences to saturation the number before that maximum.
    Several experts: mean over them. Range 0 to infinity on normalised data, 1 equals the expert; higher is
    better. NaN where the comparison has no meaning: a curve that is best at its start, falls overall, or
    saturates below a fifth of the expert's level (l2metrics prints 0 for the last two).
    """
    found: dict[str, list[float]] = {}
    reasons = _without_expert(run)
    for task in run.tasks:
        found[task] = []
        curve = run.training_curve(task)
        if not curve.size or task not in run.experts:
            continue
        level, duration = _saturation(curve)
        slope = np.polyfit(np.arange(curve.size), curve, 1)[0] if curve.size > 1 else 0.0
        for expert in run.experts[task]:
            expert_level, expert_duration = _saturation(expert)
            if expert_level <= 0:
                reasons[task] = "the expert saturates at or below zero: normalise the run"
            elif duration == 0 or expert_duration == 0 or slope < 0 or level < 0.2 * expert_level:
                reasons[task] = "a training curve does not rise to saturation"
            else:
                found[task].append(level / expert_level * (expert_duration / duration))
    return _averaged(found, reasons)


def performance_recovery(run: Run) -> PerTask:
    """Minus the Theil-Sen slope of a task's recovery times: whether each return is faster than the last.

    A recovery time is the number of experiences until a training block regains the terminal performance
    (mean of the last tenth) of the task's previous one; one more than the block's length if it never does.
    Positive is faster each time, 0 no change; higher is better. ``values`` are the recovery times.
    """
    found: dict[str, tuple[float, ...]] = {}
    for task in run.tasks:
        curves = [run.blocks[i].performance for i in run.positions(task, "train")]
        found[task] = tuple(_recovery(before, after) for before, after in pairwise(c for c in curves if c.size))
    slopes = {
        task: 0.0 - float(theilslopes(times)[0]) if len(times) > 1 else float("nan")  # never -0.0
        for task, times in found.items()
    }
    short = {task: "fewer than three training blocks" for task, times in found.items() if len(times) < 2}
    return PerTask(found, slopes, short)


def _transfer(run: Run, form: Literal["ratio", "contrast"], *, forward: bool) -> Transfer:
    _check_choice("form", form, ("ratio", "contrast"))
    pairs: dict[tuple[str, str], list[float]] = {}
    for target in run.tasks:
        own = run.positions(target, "train")
        for first, second in pairwise(run.positions(target, "test")):
            between = [block.task for block in run.blocks[first:second] if block.kind == "train"]
            untrained = not own or second < own[0]
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
    # Mirrored windows hold the same numbers in another order: their means differ by rounding alone.
    return level, int(np.flatnonzero(averaged >= level - 1e-12 * abs(level))[0])


def _recovery(before: Curve, after: Curve) -> float:
    regained = np.flatnonzero(after >= float(before[9 * before.size // 10 :].mean()))
    return float(regained[0]) if regained.size else float(after.size + 1)


def _averaged(found: Mapping[str, Sequence[float]], reasons: Mapping[str, str]) -> PerTask:
    tasks = {task: float(np.mean(values)) if values else float("nan") for task, values in found.items()}
    return PerTask(
        {task: tuple(values) for task, values in found.items()},
        tasks,
        {task: reasons[task] for task, values in found.items() if not values},
    )


def _without_expert(run: Run) -> dict[str, str]:
    return {
        task: "no training curve" if not run.training_curve(task).size else "no single-task expert"
        for task in run.tasks
    }


def _check_choice(what: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InputError(f"{what}: {value!r} is unknown, expected one of {', '.join(known)}")
