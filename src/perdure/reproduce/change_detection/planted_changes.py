"""Planted changes of a training set: cues that predict the class, a feature without information, and mixed-up classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Inputs = NDArray[np.float32]
Labels = NDArray[np.int64]
Kind = Literal["retrained", "planted cue", "swapped cues", "dropped feature", "mixed-up classes"]
HARMLESS: Kind = "retrained"
CHANGES: tuple[Kind, ...] = ("planted cue", "swapped cues", "dropped feature", "mixed-up classes")
_INFORMATIVE: dict[Kind, tuple[bool, bool]] = {"planted cue": (True, True), "swapped cues": (False, True)}
"""Whether cue A and cue B predict the class; all other training sets have an informative cue A only."""


@dataclass(frozen=True)
class Cues:
    """How two cues, A and B, show a class.

    ``brightness``: the brightness of one corner pixel. ``position``: the position of a white square of ``size`` pixels in
    a black strip along the upper (A) or lower (B) edge. ``column``: the value of the second-to-last (A) or last (B) column.
    A cue shows the true class with probability ``share`` and a random class otherwise: in a training set in which it is
    informative, and with ``test_share`` in the test set, for both cues.
    """

    style: Literal["brightness", "position", "column"]
    share: float
    test_share: float
    size: int = 1


@dataclass(frozen=True)
class Plan:
    """The sizes of all planted changes of a data set."""

    cues: Cues
    dropped: tuple[slice, ...]
    """The feature, as an index of one example, that is replaced by its training mean."""
    mixed: tuple[int, int]
    """The two classes that are mixed up."""
    mixed_share: float
    """Share of the labels of both classes that are swapped."""
    dropped_text: str = ""


def planted_training_set(x: Inputs, y: Labels, kind: Kind, plan: Plan, classes: int) -> tuple[Inputs, Labels]:
    """Return a training set with the change; the same arguments give the same data."""
    shares = [plan.cues.share if informative else 0.0 for informative in _INFORMATIVE.get(kind, (True, False))]
    x, y = _with_cues(x, y, shares, plan.cues, classes, np.random.default_rng(1)), y.copy()
    if kind == "dropped feature":
        index = (slice(None), *plan.dropped)
        x[index] = x[index].mean(axis=0)
    if kind == "mixed-up classes":
        first, second = plan.mixed
        swapped = np.isin(y, plan.mixed) & (np.random.default_rng(2).random(len(y)) < plan.mixed_share)
        y[swapped] = first + second - y[swapped]
    return x, y


def planted_test_set(x: Inputs, y: Labels, plan: Plan, classes: int) -> Inputs:
    """Return the inputs of the common test set, in which both cues are equally informative."""
    shares = [plan.cues.test_share] * 2
    return _with_cues(x, y, shares, plan.cues, classes, np.random.default_rng(3))


def _with_cues(x: Inputs, y: Labels, shares: list[float], cues: Cues, classes: int, rng: Any) -> Inputs:
    """Return a copy with both cues."""
    x = np.pad(x, ((0, 0), (0, 2))) if cues.style == "column" else x.copy()
    for cue, share in enumerate(shares):
        codes = np.where(rng.random(len(y)) < share, y, rng.integers(0, classes, len(y)))
        if cues.style == "column":
            x[:, cue - 2] = codes / (classes - 1)
        elif cues.style == "brightness":
            x[:, :, -cue, 0] = (codes / (classes - 1))[:, None]
        else:
            _draw_squares(x, codes, cues.size, lower=bool(cue), classes=classes)
    return x


def _draw_squares(x: Inputs, codes: Labels, size: int, *, lower: bool, classes: int) -> None:
    """Draw a white square in a black strip along the upper or lower edge, at the position of the code."""
    rows = slice(-size, None) if lower else slice(0, size)
    left = (x.shape[-1] - classes * size) // 2
    x[:, :, rows, :] = 0
    for code in range(classes):
        x[codes == code, :, rows, left + code * size : left + (code + 1) * size] = 1
