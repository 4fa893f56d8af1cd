"""What a learner is given: a named, seeded sequence of tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Scenario = Literal["class", "task", "domain"]


@dataclass(frozen=True)
class Examples:
    """Inputs and labels: images as uint8 (n, channels, height, width), anything else as float32 (n, features)."""

    x: NDArray[np.uint8] | NDArray[np.float32]
    y: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.y)

    @property
    def bits(self) -> int:
        """Storage of inputs and labels, in bits, as SSS counts it (a label as one 64-bit integer)."""
        return 8 * (self.x.nbytes + self.y.nbytes)


@dataclass(frozen=True)
class Task:
    """One task: its data and the output units it uses.

    ``classes`` are the units of the head that its labels name. In a domain-incremental benchmark all tasks share them.
    """

    name: str
    classes: tuple[int, ...]
    train: Examples
    test: Examples
    validation: Examples | None = None


@dataclass(frozen=True)
class Benchmark:
    """Tasks in the order they are numbered, and the curriculum in which they are visited (0-based).

    ``scenario``: ``class`` (one head, the task unknown at test time), ``task`` (the task's own outputs only) or ``domain``
    (all tasks share their outputs). ``mean`` and ``std`` normalise images per channel, after division by 255, and table
    features as they are. ``augmentation`` names what the loop does to a training batch.
    """

    name: str
    tasks: tuple[Task, ...]
    scenario: Scenario
    outputs: int
    curriculum: tuple[int, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    seed: int
    augmentation: Literal["none", "crop", "crop-flip"] = "none"
    class_names: tuple[str, ...] = ()

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one example, without the batch dimension."""
        return self.tasks[0].train.x.shape[1:]

    @property
    def lifetime_bits(self) -> int:
        """Storage of every task's training data: the denominator of SSS."""
        return sum(task.train.bits for task in self.tasks)
