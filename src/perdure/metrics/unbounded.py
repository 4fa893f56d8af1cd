"""Metrics of measures without a range: losses (lower is better) and performances such as rewards (higher is better).

They are differences in the unit of the measure, with the sign chosen so that the direction is that of the accuracy metric
of the same name: positive forgetting is a loss of skill, positive backward transfer a gain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.metrics.missing import FloatArray, Missing, as_floats
from perdure.metrics.registry import Needs, RunNumbers, metric

_MEASURES: dict[str, Needs] = {"loss": "losses", "performance": "performances"}


def final_average(values: Any, curriculum: Sequence[int]) -> float:
    """Mean over the trained tasks after the last step, in the unit of the measure.

    Examples
    --------
    >>> from perdure import metrics
    >>> # losses[i, j]: loss on task j after training on task i
    >>> losses = [[0.2, 1.9], [0.8, 0.4]]
    >>> round(metrics.final_average(losses, curriculum=[0, 1]), 2)
    0.6
    """
    table = _checked(values, curriculum)
    return table if isinstance(table, Missing) else float(table[-1, sorted(set(curriculum))].mean())


def unbounded_forgetting(values: Any, curriculum: Sequence[int], *, higher_is_better: bool) -> float:
    """Mean over old tasks of the best earlier value compared with the final one; positive is forgetting, lower is better.

    Performances: the maximum over all earlier rows minus the last row, as `average_forgetting`. Losses: the last row minus
    the minimum over all earlier rows. Old tasks are those trained before the last step, without the last trained one.

    Examples
    --------
    >>> from perdure import metrics
    >>> losses = [[0.2, 1.9], [0.8, 0.4]]  # the loss on task 1 rises from 0.2 to 0.8
    >>> forgetting = metrics.unbounded_forgetting(
    ...     losses, [0, 1], higher_is_better=False
    ... )
    >>> round(forgetting, 2)
    0.6
    >>> returns = [[310, 20], [250, 400]]  # for example rewards
    >>> metrics.unbounded_forgetting(returns, [0, 1], higher_is_better=True)
    60.0
    """
    table = _checked(values, curriculum)
    if isinstance(table, Missing):
        return table
    old = sorted(set(curriculum[:-1]) - {curriculum[-1]})
    if not old:
        return Missing("forgetting needs at least two trained tasks")
    signed = table if higher_is_better else -table
    best = np.where(np.isnan(signed[:-1, old]), -np.inf, signed[:-1, old]).max(axis=0)
    return float((best - signed[-1, old]).mean())


def unbounded_backward_transfer(
    values: Any, curriculum: Sequence[int], *, higher_is_better: bool, gem: bool = False
) -> float:
    """Mean change on earlier tasks after later ones; positive is improvement, higher is better.

    The mean over i > j of R[i, j] - R[j, j], as `backward_transfer`, with the opposite sign for losses. ``gem``: only the last
    row counts.

    Examples
    --------
    >>> from perdure import metrics
    >>> losses = [[0.2, 1.9], [0.8, 0.4]]  # the loss on task 1 rises from 0.2 to 0.8
    >>> bwt = metrics.unbounded_backward_transfer(
    ...     losses, [0, 1], higher_is_better=False
    ... )
    >>> round(bwt, 2)
    -0.6
    """
    table = _checked(values, curriculum)
    if isinstance(table, Missing):
        return table
    order = list(curriculum)
    if len(set(order)) < len(order):
        return Missing("the curriculum visits a task more than once, so there is no square matrix")
    if len(order) < 2:
        return Missing("backward transfer needs at least two tasks")
    matrix = (table if higher_is_better else -table)[:, order]
    change = matrix - np.diag(matrix)[None, :]
    return float(change[-1, :-1].mean() if gem else change[np.tril_indices(len(order), -1)].mean())


def _checked(values: Any, curriculum: Sequence[int]) -> FloatArray | Missing:
    """Return the table, or why it cannot be used: a trained task that was not evaluated after a later step."""
    table: NDArray[np.float64] = as_floats(values, "table", ndim=2)
    for step in range(len(table)):
        for task in sorted(set(curriculum[: step + 1])):
            if np.isnan(table[step, task]):
                return Missing(f"task {task + 1} was not evaluated after step {step + 1}")
    return table


def _register(word: str, needs: Needs) -> None:
    higher = word == "performance"
    everywhere = (-np.inf, np.inf)
    best = "best" if higher else "lowest"

    @metric(
        f"average_{word}",
        label=f"average {word}",
        meaning=f"mean {word} over all trained tasks after the last step",
        higher_is_better=higher,
        bounds=everywhere,
        needs=needs,
    )
    def _average(run: RunNumbers) -> float:
        return final_average(run.table, run.curriculum)

    @metric(
        f"{word}_forgetting",
        label=f"forgetting ({word})",
        meaning=f"from the {best} earlier {word} to the final one, averaged over old tasks; positive is forgetting",
        higher_is_better=False,
        bounds=everywhere,
        needs=needs,
    )
    def _forgetting(run: RunNumbers) -> float:
        return unbounded_forgetting(run.table, run.curriculum, higher_is_better=higher)

    @metric(
        f"{word}_backward_transfer",
        label=f"BWT ({word})",
        meaning=f"improvement of the {word} on earlier tasks caused by later ones, averaged over all steps",
        higher_is_better=True,
        bounds=everywhere,
        needs=needs,
    )
    def _backward(run: RunNumbers) -> float:
        return unbounded_backward_transfer(run.table, run.curriculum, higher_is_better=higher)

    @metric(
        f"gem_{word}_backward_transfer",
        label=f"GEM BWT ({word})",
        meaning=f"improvement of the {word} from the end of a task's training to the end, averaged over all tasks but the last",
        higher_is_better=True,
        bounds=everywhere,
        needs=needs,
        on_request=True,
    )
    def _gem(run: RunNumbers) -> float:
        return unbounded_backward_transfer(run.table, run.curriculum, higher_is_better=higher, gem=True)


for _word, _needs in _MEASURES.items():
    _register(_word, _needs)
