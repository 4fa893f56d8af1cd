"""Stored examples: un-augmented, as they came, and counted in bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from perdure.errors import InputError
from perdure.tasks import Benchmark, Examples


@dataclass(frozen=True)
class Stored:
    """Examples drawn from a memory: raw inputs and output units."""

    raw: Tensor
    y: Tensor


def check_size(buffer: int, benchmark: Benchmark) -> None:
    """Refuse a memory that cannot hold one example of each class and of each task."""
    for count, what in ((benchmark.outputs, "classes"), (len(benchmark.tasks), "tasks")):
        if buffer < count:
            raise InputError(
                f"setting 'buffer': {buffer} cannot hold one example of each of the {count} {what}; expected at least {count}"
            )


def as_tensors(examples: Examples, device: torch.device) -> Stored:
    """Return the examples of a task as tensors."""
    return Stored(torch.tensor(examples.x, device=device), torch.tensor(examples.y, device=device))


def bits(tensors: Sequence[Tensor]) -> int:
    """Return the storage of tensors in bits."""
    return sum(8 * tensor.element_size() * tensor.numel() for tensor in tensors)


class Reservoir:
    """A uniform sample of all examples offered so far, whatever their number (Vitter 1985, algorithm R)."""

    def __init__(self, size: int, generator: torch.Generator) -> None:
        self.size, self.generator = size, generator
        self.offered = 0
        self.raw: Tensor | None = None
        self.y: Tensor | None = None

    def __len__(self) -> int:
        return min(self.offered, self.size)

    def offer(self, raw: Tensor, y: Tensor) -> None:
        """Offer examples one after the other: the n-th is kept with probability size / n, in a random old one's place."""
        if self.raw is None or self.y is None:
            self.raw = raw.new_zeros((self.size, *raw.shape[1:]))
            self.y = y.new_zeros(self.size)
        for i in range(len(y)):
            self.offered += 1
            place = self.offered - 1
            if place >= self.size:
                place = int(torch.randint(0, self.offered, (1,), generator=self.generator))
            if place < self.size:
                self.raw[place], self.y[place] = raw[i], y[i]

    def draw(self, count: int) -> Stored | None:
        """Return up to so many different examples, or None while there are none."""
        if self.raw is None or self.y is None:
            return None
        chosen = torch.randperm(len(self), generator=self.generator)[:count].to(self.y.device)
        return Stored(self.raw[chosen], self.y[chosen])

    @property
    def bits(self) -> int:
        """Storage of what is held."""
        return 0 if self.raw is None or self.y is None else bits([self.raw[: len(self)], self.y[: len(self)]])

    def state(self) -> dict[str, Any]:
        """Return everything but the generator, which the loop saves."""
        return {"offered": self.offered, "raw": self.raw, "y": self.y}

    def load_state(self, state: dict[str, Any]) -> None:
        """Take up a saved memory."""
        self.offered, self.raw, self.y = state["offered"], state["raw"], state["y"]


class TaskMemory:
    """Random examples of each task seen; when a new one comes, all tasks shrink to an equal share of the space."""

    def __init__(self, size: int, generator: torch.Generator) -> None:
        self.size, self.generator = size, generator
        self.tasks: dict[int, Stored] = {}

    def keep(self, task: int, examples: Stored, shares: int | None = None) -> None:
        """Keep a random share of a task's examples: size / ``shares``, by default the number of tasks seen."""
        self.tasks[task] = examples
        share = self.size // (shares or len(self.tasks))
        for name, stored in self.tasks.items():
            chosen = torch.randperm(len(stored.y), generator=self.generator)[:share].to(stored.y.device)
            self.tasks[name] = Stored(stored.raw[chosen], stored.y[chosen])

    def draw(self, count: int) -> Stored | None:
        """Return random examples of all tasks together, different ones while there are enough; None while there are none."""
        if not self.tasks:
            return None
        raw = torch.cat([stored.raw for stored in self.tasks.values()])
        y = torch.cat([stored.y for stored in self.tasks.values()])
        chosen = torch.randperm(len(y), generator=self.generator)[:count].to(y.device)
        return Stored(raw[chosen], y[chosen])

    @property
    def bits(self) -> int:
        """Storage of what is held."""
        return sum(bits([stored.raw, stored.y]) for stored in self.tasks.values())

    def state(self) -> dict[int, Any]:
        """Return everything but the generator, which the loop saves."""
        return {task: {"raw": stored.raw, "y": stored.y} for task, stored in self.tasks.items()}

    def load_state(self, state: dict[int, Any]) -> None:
        """Take up a saved memory."""
        self.tasks = {int(task): Stored(value["raw"], value["y"]) for task, value in state.items()}
