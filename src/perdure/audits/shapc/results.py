"""The result of a SHAPC audit of one run, and the difference between two learners."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.audits import serialization
from perdure.audits.serialization import OneBased, OneBasedArray
from perdure.metrics import Difference, Interval

LEVEL = 0.05
SCORE_LABELS = {"shapc_mean": "SHAPC-Mean", "shapc_calibrated": "Calibrated SHAPC"}

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class RetrainingReference:
    """The same scores between two networks trained from different seeds on the same task: the effect of retraining alone."""

    mean: Interval
    calibrated: Interval
    runs: tuple[str, str]
    steps: tuple[OneBased, ...]
    """The steps compared."""


@dataclass(frozen=True)
class ShapcResult:
    """Does a run still decide for the same reasons? SHAPC (Cai et al., Eq. 4 to 9) with its references.

    ``mean`` (SHAPC-Mean, higher is more stable) is comparable with the paper; it mixes drift with sampling noise.
    ``calibrated`` is the value without noise on a scale from 0, as similar as an untrained network, to 1, identical reasons;
    it is not clipped. ``var`` (SHAPC-Var, lower is more even) is a coefficient of variation over examples. Matrices are
    steps x steps, [tau, t]. Intervals cover the choice of examples, not repeated training; that of ``calibrated`` also covers
    the choice of the untrained networks.
    """

    run: str
    learner: str
    benchmark: str
    seed: int | None
    tasks: tuple[str, ...]
    curriculum: tuple[OneBased, ...]
    settings: dict[str, Any]
    mean: Interval
    var: Interval
    calibrated: Interval
    floor: Interval
    """The consistency with untrained networks: the zero of ``calibrated``."""
    ratio: Interval
    """A diagnostic: (independent - floor) / (noise ceiling - floor), which falls to ``calibrated`` as the budget grows."""
    matrices: dict[str, FloatArray]
    sensitivity: dict[float, tuple[Interval, Interval]]
    """SHAPC-Mean and SHAPC-Var at other shares of important values."""
    outcomes: dict[str, Interval]
    """SHAPC-Mean over examples still classified correctly, and over forgotten ones; n counts pairs of example and step."""
    budget: str
    """Whether the number of samples was sufficient, in a sentence."""
    budget_is_enough: bool
    stopped: str
    """Why no further examples were explained."""
    table: dict[OneBased, FloatArray] = field(repr=False)
    """For each tau, (examples, later steps): the values of SHAPC."""
    examples: dict[OneBased, OneBasedArray] = field(repr=False)
    """For each tau, the test examples that were explained."""
    folder: str = ""
    """Where the values, and the maps if they were stored, are."""
    calibrated_table: dict[OneBased, FloatArray] = field(default_factory=dict, repr=False)
    """For each tau, (examples, later steps): contributions of the examples, whose means are the calibrated scores."""
    retraining: RetrainingReference | None = None

    @property
    def degenerate(self) -> int:
        """Number of pairs of example and step without a value because a map had no important region."""
        return int(sum(np.isnan(rows).sum() for rows in self.table.values()))

    def __str__(self) -> str:
        count = sum(len(rows) for rows in self.examples.values())
        lines = [
            (
                f"{self.learner} on {self.benchmark}: {self.settings['method']}, {self.settings['samples']} samples per map, "
                f"{count} examples"
            ),
            f"  SHAPC-Mean             {self.mean}",
            f"  SHAPC-Var              {self.var}",
            f"  calibrated             {self.calibrated}",
            f"  untrained networks     {self.floor}",
            *(f"  {name:22} {value} ({value.n} pairs)" for name, value in self.outcomes.items()),
            *(f"  top {share:.0%}: {mean}, Var {var}" for share, (mean, var) in self.sensitivity.items()),
            f"  without an important region: {self.degenerate} pairs",
            f"  {self.budget}",
        ]
        if self.retraining is not None:
            lines.append(f"  retraining alone       {self.retraining.mean}, calibrated {self.retraining.calibrated}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON: NaN becomes null; tasks, steps and examples are 1-based."""
        return serialization.to_json(self)


@dataclass(frozen=True)
class LearnerDifference:
    """A SHAPC score of one learner minus that of another; ``p`` is Holm-corrected over all pairs of learners.

    ``measure`` is ``shapc_mean`` or ``shapc_calibrated``; each is a family of tests of its own.
    """

    first: str
    second: str
    benchmark: str
    difference: Difference
    p: float
    measure: str = "shapc_mean"

    def __str__(self) -> str:
        label, value = SCORE_LABELS[self.measure], self.difference
        seeds = f"{value.runs} seed{'s' if value.runs != 1 else ''}"
        numbers = f"{value.mean:+.3f} [{value.low:+.3f}, {value.high:+.3f}], {_format_p(self.p)} (Holm), {seeds}"
        if value.runs == 1:
            numbers += "; this compares two networks, not two methods"
        if self.p < LEVEL:
            word = "higher" if value.mean > 0 else "lower"
            return f"{label} of {self.first} is {word} than that of {self.second}: {numbers}"
        return f"{label} of {self.first} and {self.second} does not differ significantly: {numbers}"


def _format_p(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
