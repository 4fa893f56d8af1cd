"""Memories of stored, un-augmented examples, with their size in bits.

They differ in which examples they keep: a uniform sample of the stream (`Reservoir`), a sample with balanced classes
(`BalancedReservoir`), or equal shares of groups (`GroupedMemory`): of tasks, in random order, or of classes, in
random order or in the order of herding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from perdure.base.errors import InputError
from perdure.tasks import Benchmark, Examples


@dataclass(frozen=True)
class StoredExamples:
    """Examples of a memory.

    ``raw``: inputs as stored. ``y``: output index of each class. ``logits``: stored logits, if any. ``positions``:
    positions of drawn examples in a `GroupedMemory`.
    """

    raw: Tensor
    y: Tensor
    logits: Tensor | None = None
    positions: Tensor | None = None

    def __len__(self) -> int:
        return len(self.y)

    def select(self, indices: Tensor | slice) -> StoredExamples:
        """Return the examples with these indices, in this order."""
        optional = [None if tensor is None else tensor[indices] for tensor in (self.logits, self.positions)]
        return StoredExamples(self.raw[indices], self.y[indices], *optional)

    @property
    def target_logits(self) -> Tensor:
        """The stored logits; an error if none were stored."""
        if self.logits is None:
            raise RuntimeError("these examples were stored without logits")
        return self.logits

    @property
    def bits(self) -> int:
        """Size of inputs, labels and logits in bits."""
        return memory_storage_bits([self.raw, self.y, *([] if self.logits is None else [self.logits])])


def check_size(buffer: int, benchmark: Benchmark) -> None:
    """Raise `InputError` if a memory cannot hold one example of each class and of each task."""
    for count, kind in ((benchmark.outputs, "classes"), (len(benchmark.tasks), "tasks")):
        if buffer < count:
            raise InputError(
                f"setting 'buffer': {buffer} cannot hold one example of each of the {count} {kind}; expected at least {count}"
            )


def memory_tensors(examples: Examples, device: torch.device) -> StoredExamples:
    """Return the examples of a task as tensors on the device."""
    return StoredExamples(torch.tensor(examples.x, device=device), torch.tensor(examples.y, device=device))


def memory_storage_bits(tensors: Sequence[Tensor]) -> int:
    """Return the size of tensors in bits."""
    return sum(8 * tensor.element_size() * tensor.numel() for tensor in tensors)


def shuffle_memory(examples: StoredExamples, generator: torch.Generator) -> StoredExamples:
    """Return the examples in random order."""
    return examples.select(torch.randperm(len(examples), generator=generator).to(examples.y.device))


def concatenate_memory(parts: Sequence[StoredExamples]) -> StoredExamples:
    """Return the examples of all parts in sequence; logits of parts that have some are concatenated too."""
    logits = [part.logits for part in parts if part.logits is not None]
    return StoredExamples(
        torch.cat([part.raw for part in parts]),
        torch.cat([part.y for part in parts]),
        torch.cat(logits) if logits else None,
    )


def memory_herding_order(features: Tensor, count: int) -> Tensor:
    """Return the indices of ``count`` rows, chosen greedily so that the mean of the first k is closest to the mean of all.

    iCaRL's selection of exemplars (Rebuffi et al. 2017, Algorithm 4; Welling 2009): the k-th row minimizes ||mean -
    (sum of the selected rows + row) / k||, and no row is selected twice. The first k indices are the selection of
    size k.
    """
    mean, total = features.mean(dim=0), torch.zeros_like(features[0])
    free = torch.ones(len(features), dtype=torch.bool, device=features.device)
    selected: list[int] = []
    for k in range(1, min(count, len(features)) + 1):
        distance = (mean - (total + features) / k).square().sum(dim=1)
        best = int(distance.masked_fill(~free, torch.inf).argmin())
        free[best] = False
        total = total + features[best]
        selected.append(best)
    return torch.tensor(selected, dtype=torch.int64, device=features.device)


class Reservoir:
    """A uniform random sample of all examples added so far (Vitter 1985, algorithm R)."""

    def __init__(self, size: int, generator: torch.Generator) -> None:
        self.size, self.generator = size, generator
        self.offered = 0  # examples added so far, whether they were stored or not
        self.examples: StoredExamples | None = None

    def __len__(self) -> int:
        return min(self.offered, self.size)

    def add(self, raw: Tensor, y: Tensor, logits: Tensor | None = None) -> None:
        """Add examples one by one: the n-th replaces a stored example with probability size / n, or is not stored."""
        if self.examples is None:
            empty = [
                None if part is None else part.new_zeros((self.size, *part.shape[1:])) for part in (raw, y, logits)
            ]
            self.examples = StoredExamples(raw=empty[0], y=empty[1], logits=empty[2])  # type: ignore[arg-type]
        for i in range(len(y)):
            position = self._next_position()
            self.offered += 1
            if position < self.size:
                self.examples.raw[position], self.examples.y[position] = raw[i], y[i]
                if self.examples.logits is not None and logits is not None:
                    self.examples.logits[position] = logits[i]

    def _next_position(self) -> int:
        """Return the position of the next example; at or beyond ``size``, it is not stored."""
        if self.offered < self.size:
            return self.offered
        return int(torch.randint(0, self.offered + 1, (1,), generator=self.generator))

    def draw(self, count: int) -> StoredExamples | None:
        """Return up to ``count`` random examples without replacement, or None if the memory is empty."""
        if self.examples is None:
            return None
        indices = torch.randperm(len(self), generator=self.generator)[:count].to(self.examples.y.device)
        return self.examples.select(indices)

    @property
    def bits(self) -> int:
        """Size of the stored examples in bits."""
        return 0 if self.examples is None else self.examples.select(slice(len(self))).bits

    def state(self) -> dict[str, Any]:
        """Return the state without the generator, which the loop saves."""
        return {"offered": self.offered, "held": None if self.examples is None else _fields(self.examples)}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self.offered = state["offered"]
        self.examples = None if state["held"] is None else StoredExamples(**state["held"])


class BalancedReservoir(Reservoir):
    """A reservoir in which a new example replaces a random example of the largest classes (Buzzega et al. 2021, Algorithm 1).

    An example is stored with the same probability as in a plain reservoir. Class-balancing reservoir sampling
    (Chrysakis and Moens 2020) also always stores examples of small classes; both balance the classes.
    """

    def _next_position(self) -> int:
        position = super()._next_position()
        if self.offered < self.size or position >= self.size or self.examples is None:
            return position
        counts = torch.bincount(self.examples.y)
        positions = torch.nonzero(counts[self.examples.y] == counts.max()).flatten()
        return int(positions[int(torch.randint(0, len(positions), (1,), generator=self.generator))])


class GroupedMemory:
    """Examples in groups (tasks or classes). When a group is added, all groups shrink to equal shares of the size."""

    def __init__(self, size: int, generator: torch.Generator) -> None:
        self.size, self.generator = size, generator
        self.groups: dict[int, StoredExamples] = {}

    def __len__(self) -> int:
        return sum(len(stored) for stored in self.groups.values())

    def store(self, group: int, examples: StoredExamples, shares: int | None = None) -> None:
        """Store the first size / ``shares`` examples of a group; ``shares`` is by default the number of groups.

        Since the first examples of a group are stored, a ranking keeps the best examples at any size, and a random
        order keeps a random sample.
        """
        self.groups[group] = examples
        share = self.size // (shares or len(self.groups))
        # Indices instead of a slice, because a slice would keep all examples of the original tensor in memory.
        self.groups = {name: stored.select(torch.arange(len(stored))[:share]) for name, stored in self.groups.items()}

    def all(self) -> StoredExamples | None:
        """Return all stored examples, group by group, or None if the memory is empty."""
        if not self.groups:
            return None
        stored = concatenate_memory(list(self.groups.values()))
        return replace(stored, positions=torch.arange(len(stored), device=stored.y.device))

    def draw(self, count: int) -> StoredExamples | None:
        """Return up to ``count`` random examples of all groups without replacement, or None if the memory is empty."""
        stored = self.all()
        if stored is None:
            return None
        indices = torch.randperm(len(stored), generator=self.generator)[:count].to(stored.y.device)
        return stored.select(indices)

    def update_logits(self, positions: Tensor, logits: Tensor) -> None:
        """Replace the stored logits of the examples at these positions."""
        start = 0
        for stored in self.groups.values():
            in_group = (positions >= start) & (positions < start + len(stored))
            if stored.logits is not None:
                stored.logits[positions[in_group] - start] = logits[in_group]
            start += len(stored)

    @property
    def bits(self) -> int:
        """Size of the stored examples in bits."""
        return sum(stored.bits for stored in self.groups.values())

    def state(self) -> dict[int, Any]:
        """Return the state without the generator, which the loop saves."""
        return {group: _fields(stored) for group, stored in self.groups.items()}

    def load_state(self, state: dict[int, Any]) -> None:
        """Restore what `state` returned."""
        self.groups = {int(group): StoredExamples(**fields) for group, fields in state.items()}


def _fields(stored: StoredExamples) -> dict[str, Tensor | None]:
    return {"raw": stored.raw, "y": stored.y, "logits": stored.logits}
