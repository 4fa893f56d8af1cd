"""A data set becomes a sequence of tasks: class order, subset, validation, curriculum; all of it seeded."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from perdure.base.errors import InputError, suggest
from perdure.tasks.benchmark import Benchmark, Examples, Scenario, Task
from perdure.tasks.derived import DerivedExamples, Permutation, Rotation, Shelf, Transform
from perdure.tasks.source import Source, Split, moments, stratified_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

# One stream of random numbers for each purpose: a new option never changes what another one draws.
_ORDER, _SUBSET, _VALIDATION, _PERMUTATION = range(4)


@dataclass(frozen=True)
class Plan:
    """How to cut a data set into tasks: the options of ``tasks.load``, the benchmark's defaults filled in."""

    name: str
    scenario: Scenario
    tasks: int
    seed: int = 0
    order_seed: int | None = None
    curriculum: tuple[int, ...] | None = None
    per_class: int | None = None
    validation: float = 0.0

    def __post_init__(self) -> None:
        known = ["class", "task", "domain"]
        if self.scenario not in known:
            raise InputError(f"scenario {self.scenario!r} is unknown: {suggest(str(self.scenario), known)}")
        if self.tasks < 1:
            raise InputError(f"tasks={self.tasks}: a benchmark has at least one task")
        if not 0 <= self.validation < 1:
            raise InputError(f"validation={self.validation}: expected a share of the training data, 0 <= share < 1")
        if self.per_class is not None and self.per_class < 1:
            raise InputError(f"per_class={self.per_class}: expected at least one training example of each class")
        if self.seed < 0 or (self.order_seed or 0) < 0:
            raise InputError(f"seed={self.seed}, order_seed={self.order_seed}: a seed is a whole number from 0")

    def visits(self) -> tuple[int, ...]:
        """Return the curriculum: the one given, or each task once."""
        if self.curriculum is None:
            return tuple(range(self.tasks))
        if not self.curriculum:
            raise InputError("the curriculum is empty: name at least one task")
        for task in self.curriculum:
            if not 0 <= task < self.tasks:
                raise InputError(
                    f"the curriculum visits task {task + 1} (counted from 1), but {self.name} has tasks 1 to"
                    f" {self.tasks}: name only these, or ask for more tasks"
                )
        return tuple(int(task) for task in self.curriculum)

    def order(self, count: int) -> list[int]:
        """Return the official order of ``count`` things, or a random one drawn from ``order_seed``."""
        if self.order_seed is None:
            return list(range(count))
        return [int(i) for i in np.random.default_rng([self.order_seed, _ORDER]).permutation(count)]

    def check_subset(self, y: NDArray[np.int64], names: tuple[str, ...]) -> None:
        """Refuse, before anything is read, to draw more examples than the smallest class has."""
        counts = np.bincount(y, minlength=len(names))
        fewest = int(counts.argmin())
        if self.per_class is not None and self.per_class > counts[fewest]:
            raise InputError(
                f"per_class={self.per_class}: class {names[fewest]!r} of {self.name} has only"
                f" {counts[fewest]} training examples in a task, ask for at most {counts[fewest]}"
            )

    def rows(
        self, split: Split, mask: NDArray[np.bool_], names: tuple[str, ...], salt: int = 0
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the training and the validation rows among the masked ones.

        Each class has its own stream, so the choice does not depend on the class order or on the other
        classes.
        """
        train, validation = [], []
        for label in np.unique(split.y[mask]):
            rows = np.flatnonzero(mask & (split.y == label))
            if self.per_class is not None:
                rng = np.random.default_rng([self.seed, _SUBSET, int(label), salt])
                rows = np.sort(rng.choice(rows, self.per_class, replace=False))
            kept, aside = rows, rows[:0]
            if self.validation > 0:
                rng = np.random.default_rng([self.seed, _VALIDATION, int(label), salt])
                left, right = stratified_rows(split.y[rows], self.validation, rng)
                kept, aside = rows[left], rows[right]
            if not len(kept):
                raise InputError(
                    f"validation={self.validation}: class {names[label]!r} of {self.name} has {len(rows)}"
                    " training examples and would keep none, choose a smaller share"
                )
            train.append(kept)
            validation.append(aside)
        return np.sort(np.concatenate(train)), np.sort(np.concatenate(validation))


class Parts(NamedTuple):
    """The data of a task."""

    train: Examples
    test: Examples
    validation: Examples | None


def split_by_class(source: Source, plan: Plan) -> Benchmark:
    """Give each task its own classes, in class order; labels become head units, numbered as they are learnt.

    In the domain scenario labels are numbered anew within each task (Split MNIST: five binary tasks).
    """
    count = len(source.class_names)
    size = _equal_share(count, "classes", plan)
    plan.check_subset(source.train.y, source.class_names)
    order = plan.order(count)
    domain = plan.scenario == "domain"
    unit = np.empty(count, dtype=np.int64)
    unit[order] = np.tile(np.arange(size), plan.tasks) if domain else np.arange(count)
    tasks = []
    for number in range(plan.tasks):
        own = order[number * size : (number + 1) * size]
        parts = _read(source, plan, np.isin(source.train.y, own), np.isin(source.test.y, own), unit)
        classes = tuple(range(size)) if domain else tuple(range(number * size, (number + 1) * size))
        tasks.append(Task(", ".join(source.class_names[label] for label in own), classes, *parts))
    return _benchmark(source, plan, tasks, _unit_names(source, order, size if domain else count), order)


def _unit_names(source: Source, order: list[int], outputs: int) -> tuple[str, ...]:
    """Name the head's units; a unit that stands for one class of every task gets all their names."""
    return tuple("/".join(source.class_names[label] for label in order[unit::outputs]) for unit in range(outputs))


def split_by_group(source: Source, plan: Plan) -> Benchmark:
    """Give each task its own domains (TV-news: channels); all tasks share the classes."""
    groups = len(source.group_names)
    size = _equal_share(groups, "domains", plan)
    order = plan.order(groups)
    unit = np.arange(len(source.class_names))
    tasks = []
    for number in range(plan.tasks):
        own = order[number * size : (number + 1) * size]
        masks = np.isin(_groups(source.train), own), np.isin(_groups(source.test), own)
        plan.check_subset(source.train.y[masks[0]], source.class_names)
        parts = _read(source, plan, *masks, unit, salt=min(own))
        names = ", ".join(source.group_names[group] for group in own)
        tasks.append(Task(names, tuple(range(len(unit))), *parts))
    return _benchmark(source, plan, tasks, source.class_names, order)


def _groups(split: Split) -> NDArray[np.int64]:
    """Return the domain of each row; data without domains of their own are all one."""
    return np.zeros(len(split.y), dtype=np.int64) if split.group is None else split.group


def _equal_share(count: int, things: str, plan: Plan) -> int:
    """Return how many of the classes or domains each task gets."""
    if count % plan.tasks:
        fitting = ", ".join(str(n) for n in range(1, count + 1) if count % n == 0)
        raise InputError(
            f"tasks={plan.tasks}: {plan.name} has {count} {things}, not divisible into {plan.tasks} equal"
            f" tasks, choose one of {fitting}"
        )
    return count // plan.tasks


def permuted(source: Source, plan: Plan) -> Benchmark:
    """Every task is the whole data set under another shuffle of the pixels; the first is the original."""
    pixels = int(np.prod(source.test.take(np.arange(1)).shape[2:]))
    orders = [np.arange(pixels)]
    orders += [
        np.random.default_rng([plan.seed, _PERMUTATION, number]).permutation(pixels) for number in range(1, plan.tasks)
    ]
    views: list[tuple[str, Transform]] = [
        (f"permutation {number + 1}" if number else "original", Permutation(order))
        for number, order in enumerate(orders)
    ]
    return _views(source, plan, views)


def rotated(source: Source, plan: Plan) -> Benchmark:
    """Every task is the whole data set turned by another angle: 180 degrees in equal steps from 0."""
    angles = [180 * number / plan.tasks for number in range(plan.tasks)]
    return _views(source, plan, [(f"{angle:g} degrees", Rotation(angle)) for angle in angles])


def _views(source: Source, plan: Plan, views: list[tuple[str, Transform]]) -> Benchmark:
    """Make one task for each view of the whole data; outside the domain scenario each has its own units."""
    classes = len(source.class_names)
    plan.check_subset(source.train.y, source.class_names)
    all_rows = np.ones(len(source.train.y), bool), np.ones(len(source.test.y), bool)
    base = _read(source, plan, *all_rows, np.arange(classes))
    order = plan.order(plan.tasks)
    shelf = Shelf()
    tasks = []
    for number, (name, transform) in enumerate(views[i] for i in order):
        first = 0 if plan.scenario == "domain" else number * classes
        parts = Parts(
            DerivedExamples(base.train, transform, shelf, base.train.y + first),
            DerivedExamples(base.test, transform, shelf, base.test.y + first),
            base.validation and DerivedExamples(base.validation, transform, shelf, base.validation.y + first),
        )
        tasks.append(Task(name, tuple(range(first, first + classes)), *parts))
    repeats = 1 if plan.scenario == "domain" else plan.tasks
    return _benchmark(source, plan, tasks, source.class_names * repeats, order, base)


def _read(
    source: Source,
    plan: Plan,
    train: NDArray[np.bool_],
    test: NDArray[np.bool_],
    unit: NDArray[np.int64],
    salt: int = 0,
) -> Parts:
    """Read the masked rows of both sides, the training side cut by the plan, labels mapped to units."""
    kept, aside = plan.rows(source.train, train, source.class_names, salt)

    def examples(split: Split, rows: NDArray[np.int64]) -> Examples:
        boxes = None if split.boxes is None else split.boxes[rows]
        return Examples(split.take(rows), unit[split.y[rows]], boxes)

    return Parts(
        train=examples(source.train, kept),
        test=examples(source.test, np.flatnonzero(test)),
        validation=examples(source.train, aside) if len(aside) else None,
    )


def _benchmark(
    source: Source,
    plan: Plan,
    tasks: list[Task],
    class_names: tuple[str, ...],
    order: list[int],
    base: Parts | None = None,
) -> Benchmark:
    """Put the parts together with where they came from."""
    read: list[Parts] | list[Task] = [base] if base else tasks
    if source.mean is not None and source.std is not None:
        mean, std = source.mean, source.std
    else:
        mean, std = moments(np.concatenate([task.train.x for task in read]))
    provenance: dict[str, Any] = {
        "source": plan.name,
        "scenario": plan.scenario,
        "tasks": plan.tasks,
        "seed": plan.seed,
        "order_seed": plan.order_seed,
        "order": order,
        "curriculum": list(plan.visits()),
        "per_class": plan.per_class,
        "validation": plan.validation,
        "data_sha256": _checksum(read),
        **source.about,
    }
    return Benchmark(
        name=plan.name,
        tasks=tuple(tasks),
        scenario=plan.scenario,
        outputs=len(class_names),
        curriculum=plan.visits(),
        mean=mean,
        std=std,
        seed=plan.seed,
        augmentation=source.augmentation,
        class_names=class_names,
        provenance=provenance,
    )


def _checksum(read: list[Parts] | list[Task]) -> str:
    """One sum over all data that was read."""
    parts = [part for task in read for part in (task.train, task.test, task.validation) if part]
    return hashlib.sha256("".join(part.digest for part in parts).encode()).hexdigest()
