"""One part of a study: what a job array of any scheduler needs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from perdure.base.errors import InputError
from perdure.engine.status import StatusFolder
from perdure.engine.units import Engine, Observer, Outcome, Unit


@dataclass(frozen=True)
class Shard:
    """Part ``index`` (from 0) of ``count`` parts of a study."""

    index: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Return the shard of ``3/16``, the third of sixteen."""
        match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise InputError(f"--shard {text}: expected K/N with K from 1 to N, as in 3/16")
        return cls(int(match[1]) - 1, int(match[2]))

    def __str__(self) -> str:
        return f"{self.index + 1}/{self.count}"

    def contains(self, units: Sequence[Unit]) -> list[bool]:
        """Return for each unit whether it belongs to this shard: groups of units are dealt out in turn."""
        groups: dict[str, int] = {}
        return [groups.setdefault(unit.group or unit.name, len(groups)) % self.count == self.index for unit in units]


@dataclass
class ShardEngine:
    """Runs the units of one shard with another engine; all other units are ``elsewhere``.

    Which units belong to a shard depends only on the list of units, so finished units must be on the list, too.
    """

    inner: Engine
    shard: Shard

    @property
    def status(self) -> StatusFolder | None:
        """Where the state of the units is written."""
        return self.inner.status

    @status.setter
    def status(self, status: StatusFolder | None) -> None:
        self.inner.status = status

    @property
    def threads(self) -> int:
        """Threads of each unit that callers make for this engine."""
        return self.inner.threads

    @threads.setter
    def threads(self, threads: int) -> None:
        self.inner.threads = threads

    @property
    def observer(self) -> Observer | None:
        """Is told about the units."""
        return self.inner.observer

    @observer.setter
    def observer(self, observer: Observer | None) -> None:
        self.inner.observer = observer

    def __enter__(self) -> Self:
        self.inner.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.inner.__exit__(*error)  # type: ignore[arg-type]

    def run(self, units: Iterable[Unit]) -> Iterator[Outcome]:
        """Run the units of this shard and yield one outcome for each unit."""
        listed = list(units)
        own = self.shard.contains(listed)
        for unit, is_own in zip(listed, own, strict=True):
            if not is_own or unit.finished:
                yield Outcome(unit, "done" if unit.finished else "elsewhere")
        yield from self.inner.run(
            unit for unit, is_own in zip(listed, own, strict=True) if is_own and not unit.finished
        )
