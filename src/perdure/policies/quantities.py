"""What a rule can be about: the registered metrics, and quantities of single examples, reasons and a baseline."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from perdure.base.errors import InputError, error_suggestion
from perdure.metrics import METRICS

Per = Literal["overall", "task", "class"]
GROUPS: tuple[Per, ...] = ("overall", "task", "class")


@dataclass(frozen=True)
class Quantity:
    """A quantity of a policy: its printed name, its direction, its range, and the groups for which it is defined."""

    name: str
    label: str
    meaning: str
    higher_is_better: bool
    bounds: tuple[float, float] = (0.0, 1.0)
    per: tuple[Per, ...] = ("overall",)
    compares: bool = False
    """Whether it compares with the baseline, so that it has no change relative to it."""
    is_cost: bool = False
    """Whether it is computed from costs, which are counted and have no interval."""
    is_calibrated: bool = False
    """Whether it is a calibrated score, whose values beyond 0 and 1 are clipped for display."""


_OTHERS = {
    entry.name: entry
    for entry in (
        Quantity("accuracy", "accuracy", "share of test examples that are classified correctly", True, per=GROUPS),
        Quantity(
            "shapc_mean", "SHAPC-Mean", "consistency of the reasons over the steps, sampling noise included", True
        ),
        Quantity(
            "shapc_calibrated",
            "calibrated SHAPC",
            "consistency of the reasons over the steps, from 0 (an untrained network) to 1 (identical reasons)",
            True,
            (-math.inf, math.inf),
            is_calibrated=True,
        ),
        Quantity(
            "negative_flip_rate",
            "negative flip rate",
            "share of test examples that the baseline classifies correctly and the target does not",
            False,
            per=GROUPS,
            compares=True,
        ),
        Quantity(
            "reasons",
            "reasons",
            "similarity of the reasons with those of the baseline, from 0 (an untrained network) to 1 (identical reasons)",
            True,
            (-math.inf, math.inf),
            compares=True,
            is_calibrated=True,
        ),
        Quantity(
            "expected_calibration_error",
            "expected calibration error",
            "mean distance between the confidence of predictions and their accuracy",
            False,
        ),
    )
}


class _Quantities(Mapping[str, Quantity]):
    """The registered metrics in order, then the other quantities. Metrics of other packages are loaded on first use."""

    def __getitem__(self, name: str) -> Quantity:
        if name in _OTHERS:
            return _OTHERS[name]
        if name not in METRICS:
            raise KeyError(name)
        metric = METRICS.get(name)
        return Quantity(
            name,
            metric.label,
            metric.meaning,
            metric.higher_is_better,
            metric.bounds,
            is_cost=metric.needs == "costs",
        )

    def __iter__(self) -> Iterator[str]:
        return iter((*METRICS.entries(), *_OTHERS))

    def __len__(self) -> int:
        return len(METRICS.entries()) + len(_OTHERS)


QUANTITIES: Mapping[str, Quantity] = _Quantities()


def quantity(name: str) -> Quantity:
    """Return the quantity with this name; an unknown name raises `InputError` with the closest known name.

    Examples
    --------
    >>> from perdure import policies
    >>> forgetting = policies.quantity("forgetting")
    >>> forgetting.higher_is_better, forgetting.bounds
    (False, (-1, 1))
    """
    if name not in QUANTITIES:
        raise InputError(f"metric: unknown name {name[:80]!r}, {error_suggestion(name[:80], list(QUANTITIES))}")
    return QUANTITIES[name]
