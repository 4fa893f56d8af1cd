"""From a name to a benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from perdure.errors import InputError, nearest
from perdure.tasks.registry import Description, entries
from perdure.tasks.sequence import Plan

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from perdure.tasks.benchmark import Benchmark, Scenario


def load(
    name: str,
    *,
    scenario: Scenario | None = None,
    seed: int = 0,
    order_seed: int | None = None,
    curriculum: Sequence[int] | None = None,
    per_class: int | None = None,
    validation: float = 0.0,
    tasks: int | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> Benchmark:
    """Return a benchmark by its registered name.

    ``scenario``, ``tasks``: None for the benchmark's own. ``order_seed``: None for the official class
    order, a number for a random one. ``curriculum``: 0-based visits, None for each task once.
    ``per_class``: at most so many training examples of a class in a task. ``validation``: share of each
    class's training examples (after ``per_class``) set aside. ``seed`` draws the subset, the validation
    split and the permutations; never the test set.
    """
    known = entries()
    if name not in known:
        raise InputError(f"benchmark {name!r} is unknown: {nearest(name, list(known))}")
    entry = known[name]
    plan = Plan(
        name=name,
        scenario=scenario or entry.about.scenario,
        tasks=entry.about.tasks if tasks is None else tasks,
        seed=seed,
        order_seed=order_seed,
        curriculum=None if curriculum is None else tuple(curriculum),
        per_class=per_class,
        validation=validation,
    )
    plan.visits()  # a mistake in the curriculum should not cost a download first
    return entry.cut(entry.read(Path(data_dir or "."), progress), plan)


def names() -> list[str]:
    """Return the names of the registered benchmarks."""
    return list(entries())


def describe(name: str) -> Description:
    """Return what is known of a registered benchmark without reading any data."""
    known = entries()
    if name not in known:
        raise InputError(f"benchmark {name!r} is unknown: {nearest(name, list(known))}")
    return known[name].about
