"""Efficiency of a learner: model size, stored samples and computation (Diaz-Rodriguez et al. 2018, Eq. 7 to 9)."""

from __future__ import annotations

from typing import Any

from perdure.base.errors import InputError
from perdure.metrics.missing import FloatArray, as_floats


def model_size_efficiency(sizes: Any) -> float:
    """MS = min(1, mean_i size_1 / size_i) (Eq. 7). In (0, 1], higher is better.

    ``sizes[i]``: parameters at task i plus the numbers stored beside them (anchors, importances). EWC and SI store one model
    at task 1 and three times as much afterwards, which gives the printed 0.40 over ten tasks. The paper does not count
    teachers (it prints 1 for LwF); add them to ``sizes`` to count them.
    """
    values = as_floats(sizes, "sizes", ndim=1)
    if not (values > 0).all():
        raise InputError(f"sizes: expected positive numbers, got {values.min():g}")
    return min(1.0, float((values[0] / values).mean()))


def sample_storage_efficiency(memory: Any, lifetime: float) -> float:
    """SSS = 1 - min(1, mean_i memory_i / lifetime) (Eq. 8). In [0, 1], higher is better.

    ``memory[i]``: bits of stored training examples (and of their logits) while task i is learned, including those stored at
    earlier tasks. ``lifetime``: bits of the training data of all tasks. Only this reading gives Cumulative its printed 0.55.
    """
    values = as_floats(memory, "memory", ndim=1)
    _check_nonnegative(values, "memory")
    if not lifetime > 0:
        raise InputError(f"lifetime: expected the bits of all training data, a positive number, got {lifetime!r}")
    return 1.0 - min(1.0, float((values / lifetime).mean()))


def computational_efficiency(ops: Any, passes: Any, epsilon: float = 10) -> float:
    """CE = min(1, mean_i passes_i * epsilon / (1 + ops_i)) (Eq. 9). In [0, 1], higher is better.

    ``ops[i]``: all multiply-adds spent on task i (epochs, replay, Fisher passes, teachers). ``passes[i]``: multiply-adds of
    one forward and one backward pass over its training set.
    """
    spent = as_floats(ops, "ops", ndim=1)
    single_pass = as_floats(passes, "passes", ndim=1)
    if spent.shape != single_pass.shape:
        raise InputError(
            f"ops and passes: expected one number of each per task, got {spent.size} and {single_pass.size}"
        )
    _check_nonnegative(spent, "ops")
    _check_nonnegative(single_pass, "passes")
    if not epsilon > 0:
        raise InputError(f"epsilon: expected a positive number, got {epsilon!r}")
    return min(1.0, float((single_pass * epsilon / (1 + spent)).mean()))


def _check_nonnegative(array: FloatArray, name: str) -> None:
    if not (array >= 0).all():
        raise InputError(f"{name}: expected numbers of at least 0, got {array.min():g}")
