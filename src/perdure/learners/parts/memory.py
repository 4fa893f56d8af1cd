"""Stored examples: un-augmented, as they came, and counted in bits.

One implementation for all learners. What differs is who is kept: a uniform sample of the stream (`Reservoir`), one that evens
out the classes (`BalancedReservoir`), or equal shares of groups, the first of each (`SharedMemory`): of a task's examples
in random order, or of a class's in the order of herding.
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
class Stored:
    """Examples of a memory: raw inputs, output units, and what else was stored with them.

    ``places`` says where drawn examples lie in a `SharedMemory`.
    """

    raw: Tensor
    y: Tensor
    logits: Tensor | None = None
    places: Tensor | None = None

    def __len__(self) -> int:
        return len(self.y)

    def at(self, indices: Tensor | slice) -> Stored:
        """Return some of the examples, in the order of the indices."""
        return Stored(self.raw[indices], self.y[indices], None if self.logits is None else self.logits[indices])

    @property
    def bits(self) -> int:
        """Storage of inputs, labels and logits."""
        return bits([self.raw, self.y, *([] if self.logits is None else [self.logits])])


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


def shuffled(examples: Stored, generator: torch.Generator) -> Stored:
    """Return the examples in random order."""
    return examples.at(torch.randperm(len(examples), generator=generator).to(examples.y.device))


def joined(parts: Sequence[Stored]) -> Stored:
    """Return examples one after the other."""
    logits = [part.logits for part in parts if part.logits is not None]
    return Stored(
        torch.cat([part.raw for part in parts]),
        torch.cat([part.y for part in parts]),
        torch.cat(logits) if logits else None,
    )


def herded(features: Tensor, count: int) -> Tensor:
    """Return the indices of so many rows, chosen greedily so that the mean of the first k is nearest to the mean of all.

    iCaRL's choice of exemplars (Rebuffi et al. 2017, Algorithm 4), after Welling 2009: the k-th is the row that minimises
    ||mean - (sum of the chosen + row) / k||, and none is chosen twice. Any beginning of the order is the choice for that size.
    """
    mean, total = features.mean(dim=0), torch.zeros_like(features[0])
    free = torch.ones(len(features), dtype=torch.bool, device=features.device)
    chosen: list[int] = []
    for k in range(1, min(count, len(features)) + 1):
        distance = (mean - (total + features) / k).square().sum(dim=1)
        best = int(distance.masked_fill(~free, torch.inf).argmin())
        free[best] = False
        total = total + features[best]
        chosen.append(best)
    return torch.tensor(chosen, dtype=torch.int64, device=features.device)


class Reservoir:
    """A uniform sample of all examples offered so far, whatever their number (Vitter 1985, algorithm R)."""

    def __init__(self, size: int, generator: torch.Generator) -> None:
        self.size, self.generator = size, generator
        self.offered = 0
        self.held: Stored | None = None

    def __len__(self) -> int:
        return min(self.offered, self.size)

    def offer(self, raw: Tensor, y: Tensor, logits: Tensor | None = None) -> None:
        """Offer examples one after the other: the n-th is kept with probability size / n, in an old one's place."""
        if self.held is None:
            empty = [
                None if part is None else part.new_zeros((self.size, *part.shape[1:])) for part in (raw, y, logits)
            ]
            self.held = Stored(raw=empty[0], y=empty[1], logits=empty[2])  # type: ignore[arg-type]
        for i in range(len(y)):
            place = self._place()
            self.offered += 1
            if place < self.size:
                self.held.raw[place], self.held.y[place] = raw[i], y[i]
                if self.held.logits is not None and logits is not None:
                    self.held.logits[place] = logits[i]

    def _place(self) -> int:
        """Return where the next example goes: a random place among all offered; beyond the size it is not kept."""
        if self.offered < self.size:
            return self.offered
        return int(torch.randint(0, self.offered + 1, (1,), generator=self.generator))

    def draw(self, count: int) -> Stored | None:
        """Return up to so many different examples, or None while there are none."""
        if self.held is None:
            return None
        chosen = torch.randperm(len(self), generator=self.generator)[:count].to(self.held.y.device)
        return self.held.at(chosen)

    @property
    def bits(self) -> int:
        """Storage of what is held."""
        return 0 if self.held is None else self.held.at(slice(len(self))).bits

    def state(self) -> dict[str, Any]:
        """Return everything but the generator, which the loop saves."""
        return {"offered": self.offered, "held": None if self.held is None else _parts(self.held)}

    def load_state(self, state: dict[str, Any]) -> None:
        """Take up a saved memory."""
        self.offered = state["offered"]
        self.held = None if state["held"] is None else Stored(**state["held"])


class BalancedReservoir(Reservoir):
    """A reservoir whose newcomers replace a random example of the classes that have most (Buzzega et al. 2021, Algorithm 1).

    An example is kept with the same probability as in a plain reservoir. Class-balancing by Chrysakis and Moens 2020
    also lets small classes in with certainty; both even out the classes.
    """

    def _place(self) -> int:
        place = super()._place()
        if self.offered < self.size or place >= self.size or self.held is None:
            return place
        counts = torch.bincount(self.held.y)
        places = torch.nonzero(counts[self.held.y] == counts.max()).flatten()
        return int(places[int(torch.randint(0, len(places), (1,), generator=self.generator))])


class SharedMemory:
    """Examples in groups (tasks, or classes); when a new group comes, all shrink to an equal share of the space."""

    def __init__(self, size: int, generator: torch.Generator) -> None:
        self.size, self.generator = size, generator
        self.groups: dict[int, Stored] = {}

    def __len__(self) -> int:
        return sum(len(stored) for stored in self.groups.values())

    def keep(self, group: int, examples: Stored, shares: int | None = None) -> None:
        """Keep the first examples of a group: size / ``shares``, by default the number of groups.

        Because the first are kept, an order by rank keeps the best at any size, and a random order a random sample.
        """
        self.groups[group] = examples
        share = self.size // (shares or len(self.groups))
        # By indices and not by a slice, which would hold on to all the examples it was cut from.
        self.groups = {name: stored.at(torch.arange(len(stored))[:share]) for name, stored in self.groups.items()}

    def all(self) -> Stored | None:
        """Return everything that is held, group after group, or None while there is nothing."""
        if not self.groups:
            return None
        held = joined(list(self.groups.values()))
        return replace(held, places=torch.arange(len(held), device=held.y.device))

    def draw(self, count: int) -> Stored | None:
        """Return random examples of all groups together, different ones while there are enough; None while there are none."""
        held = self.all()
        if held is None:
            return None
        chosen = torch.randperm(len(held), generator=self.generator)[:count].to(held.y.device)
        return replace(held.at(chosen), places=chosen)

    def write_logits(self, places: Tensor, logits: Tensor) -> None:
        """Store other logits with drawn examples."""
        first = 0
        for stored in self.groups.values():
            own = (places >= first) & (places < first + len(stored))
            if stored.logits is not None:
                stored.logits[places[own] - first] = logits[own]
            first += len(stored)

    @property
    def bits(self) -> int:
        """Storage of what is held."""
        return sum(stored.bits for stored in self.groups.values())

    def state(self) -> dict[int, Any]:
        """Return everything but the generator, which the loop saves."""
        return {group: _parts(stored) for group, stored in self.groups.items()}

    def load_state(self, state: dict[int, Any]) -> None:
        """Take up a saved memory."""
        self.groups = {int(group): Stored(**parts) for group, parts in state.items()}


def _parts(stored: Stored) -> dict[str, Tensor | None]:
    return {"raw": stored.raw, "y": stored.y, "logits": stored.logits}
