"""What learning costs, relative to what it must cost (Diaz-Rodriguez et al. 2018, Eq. 7 to 9)."""

from __future__ import annotations

from typing import Any

from perdure.base.errors import InputError
from perdure.metrics.missing import FloatArray, as_floats


def model_size_efficiency(sizes: Any) -> float:
    """MS = min(1, mean_i size_1 / size_i) (Eq. 7). In (0, 1], higher is better.

    ``sizes[i]``: parameters at task i plus what is kept per parameter (anchors, importances). EWC and SI hold one model at
    task 1 and three times that afterwards, which gives the printed 0.40 over ten tasks. Teachers are not counted in the
    paper (LwF prints 1); add them to ``sizes`` to count them.
    """
    values = _positive(sizes, "sizes")
    return min(1.0, float((values[0] / values).mean()))


def sample_storage_efficiency(memory: Any, lifetime: float) -> float:
    """SSS = 1 - min(1, mean_i memory_i / lifetime) (Eq. 8). In [0, 1], higher is better.

    ``memory[i]``: bits of stored samples (logits too) as they stand while task i is learned, carried over from earlier tasks.
    ``lifetime``: bits of all training data of all tasks. Only this reading gives Cumulative its printed 0.55.
    """
    values = as_floats(memory, "memory", ndim=1)
    _no_negatives(values, "memory")
    if not lifetime > 0:
        raise InputError(f"lifetime: expected the bits of all training data, a positive number, got {lifetime!r}")
    return 1.0 - min(1.0, float((values / lifetime).mean()))


def computational_efficiency(ops: Any, passes: Any, epsilon: float = 10) -> float:
    """CE = min(1, mean_i passes_i * epsilon / (1 + ops_i)) (Eq. 9). In [0, 1], higher is better.

    ``ops[i]``: every multiply-add spent on task i (all epochs, replay, Fisher passes, teachers). ``passes[i]``: the
    multiply-adds of one forward and one backward over its training set.
    """
    spent = as_floats(ops, "ops", ndim=1)
    once = as_floats(passes, "passes", ndim=1)
    if spent.shape != once.shape:
        raise InputError(f"ops and passes: expected one of each for every task, got {spent.size} and {once.size}")
    _no_negatives(spent, "ops")
    _no_negatives(once, "passes")
    if not epsilon > 0:
        raise InputError(f"epsilon: expected a positive number, got {epsilon!r}")
    return min(1.0, float((once * epsilon / (1 + spent)).mean()))


def _positive(values: Any, what: str) -> FloatArray:
    array = as_floats(values, what, ndim=1)
    if not (array > 0).all():
        raise InputError(f"{what}: expected positive numbers, got {array.min():g}")
    return array


def _no_negatives(array: FloatArray, what: str) -> None:
    if not (array >= 0).all():
        raise InputError(f"{what}: expected numbers of at least 0, got {array.min():g}")
