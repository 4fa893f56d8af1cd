"""Division of a data set into a sequence of tasks: class order, subset, validation split and curriculum, all seeded."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from perdure.base.errors import InputError, error_suggestion
from perdure.tasks.benchmark import (
    Benchmark,
    Examples,
    Scenario,
    Source,
    Split,
    Task,
    source_moments,
    stratified_source_rows,
)
from perdure.tasks.transforms import ArrayCache, Permutation, Rotation, Transform, TransformedExamples

if TYPE_CHECKING:
    from numpy.typing import NDArray

# One random stream per purpose, so that a new option does not change the draws of the others.
_ORDER, _SUBSET, _VALIDATION, _PERMUTATION = range(4)


@dataclass(frozen=True)
class Plan:
    """How to divide a data set into tasks: the options of ``tasks.load``, with the defaults of the benchmark."""

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
            raise InputError(f"scenario: unknown name {self.scenario!r}, {error_suggestion(str(self.scenario), known)}")
        if self.tasks < 1:
            raise InputError(f"tasks={self.tasks}: expected at least one task.")
        if not 0 <= self.validation < 1:
            raise InputError(f"validation={self.validation}: expected a share of the training data, 0 <= share < 1.")
        if self.per_class is not None and self.per_class < 1:
            raise InputError(f"per_class={self.per_class}: expected at least one training example per class.")
        if self.seed < 0 or (self.order_seed or 0) < 0:
            raise InputError(f"seed={self.seed}, order_seed={self.order_seed}: expected integers of at least 0.")

    def visits(self) -> tuple[int, ...]:
        """Return the task of each step: the curriculum, or each task once if there is none."""
        if self.curriculum is None:
            return tuple(range(self.tasks))
        if not self.curriculum:
            raise InputError("curriculum: expected at least one task, got an empty list.")
        for task in self.curriculum:
            if not 0 <= task < self.tasks:
                raise InputError(
                    f"curriculum: {self.name} has tasks 1 to {self.tasks}, got task {task + 1} (counted from 1)."
                    " Remove this task, or divide the data into more tasks."
                )
        return tuple(int(task) for task in self.curriculum)

    def order(self, count: int) -> list[int]:
        """Return the order of ``count`` classes, domains or tasks: the official one, or a random one from ``order_seed``."""
        if self.order_seed is None:
            return list(range(count))
        return [int(i) for i in np.random.default_rng([self.order_seed, _ORDER]).permutation(count)]

    def check_subset(self, y: NDArray[np.int64], names: tuple[str, ...]) -> None:
        """Raise an error if ``per_class`` exceeds the size of the smallest class. Called before inputs are read."""
        counts = np.bincount(y, minlength=len(names))
        smallest = int(counts.argmin())
        if self.per_class is not None and self.per_class > counts[smallest]:
            raise InputError(
                f"per_class={self.per_class}: class {names[smallest]!r} of {self.name} has only"
                f" {counts[smallest]} training examples in a task. Choose at most {counts[smallest]}."
            )

    def rows(
        self, split: Split, mask: NDArray[np.bool_], names: tuple[str, ...], salt: int = 0
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the training and the validation rows among the rows selected by the mask.

        Each class has its own random stream, so the rows of a class depend neither on the class order nor on the other
        classes.
        """
        training, validation = [], []
        for label in np.unique(split.y[mask]):
            rows = np.flatnonzero(mask & (split.y == label))
            if self.per_class is not None:
                rng = np.random.default_rng([self.seed, _SUBSET, int(label), salt])
                rows = np.sort(rng.choice(rows, self.per_class, replace=False))
            class_training, class_validation = rows, rows[:0]
            if self.validation > 0:
                rng = np.random.default_rng([self.seed, _VALIDATION, int(label), salt])
                first, second = stratified_source_rows(split.y[rows], self.validation, rng)
                class_training, class_validation = rows[first], rows[second]
            if not len(class_training):
                raise InputError(
                    f"validation={self.validation}: class {names[label]!r} of {self.name} has {len(rows)}"
                    " training examples and none would be left. Choose a smaller share."
                )
            training.append(class_training)
            validation.append(class_validation)
        return np.sort(np.concatenate(training)), np.sort(np.concatenate(validation))


class Parts(NamedTuple):
    """The data of a task."""

    train: Examples
    test: Examples
    validation: Examples | None


def split_by_class(source: Source, plan: Plan) -> Benchmark:
    """Give each task an equal number of classes; labels become output units, numbered in the order of learning.

    In the domain scenario labels are numbered from 0 within each task (Split MNIST: five binary tasks).
    """
    count = len(source.class_names)
    size = _equal_share(count, "classes", plan)
    plan.check_subset(source.train.y, source.class_names)
    order = plan.order(count)
    is_domain = plan.scenario == "domain"
    unit = np.empty(count, dtype=np.int64)
    unit[order] = np.tile(np.arange(size), plan.tasks) if is_domain else np.arange(count)
    tasks = []
    for number in range(plan.tasks):
        labels = order[number * size : (number + 1) * size]
        parts = _read(source, plan, np.isin(source.train.y, labels), np.isin(source.test.y, labels), unit)
        classes = tuple(range(size)) if is_domain else tuple(range(number * size, (number + 1) * size))
        tasks.append(Task(", ".join(source.class_names[label] for label in labels), classes, *parts))
    return _benchmark(source, plan, tasks, _unit_names(source, order, size if is_domain else count), order)


def _unit_names(source: Source, order: list[int], outputs: int) -> tuple[str, ...]:
    """Return the names of the output units; a unit shared by one class of every task gets all their names."""
    return tuple("/".join(source.class_names[label] for label in order[unit::outputs]) for unit in range(outputs))


def split_by_group(source: Source, plan: Plan) -> Benchmark:
    """Give each task an equal number of domains (TV-news: channels); all tasks share the classes."""
    count = len(source.group_names)
    size = _equal_share(count, "domains", plan)
    order = plan.order(count)
    unit = np.arange(len(source.class_names))
    tasks = []
    for number in range(plan.tasks):
        groups = order[number * size : (number + 1) * size]
        masks = np.isin(_groups(source.train), groups), np.isin(_groups(source.test), groups)
        plan.check_subset(source.train.y[masks[0]], source.class_names)
        parts = _read(source, plan, *masks, unit, salt=min(groups))
        name = ", ".join(source.group_names[group] for group in groups)
        tasks.append(Task(name, tuple(range(len(unit))), *parts))
    return _benchmark(source, plan, tasks, source.class_names, order)


def _groups(split: Split) -> NDArray[np.int64]:
    """Return the domain of each row; data without domains form a single one."""
    return np.zeros(len(split.y), dtype=np.int64) if split.group is None else split.group


def _equal_share(count: int, kind: str, plan: Plan) -> int:
    """Return the number of classes or domains per task."""
    if count % plan.tasks:
        divisors = ", ".join(str(n) for n in range(1, count + 1) if count % n == 0)
        raise InputError(
            f"tasks={plan.tasks}: {plan.name} has {count} {kind}, which cannot be divided into {plan.tasks} equal"
            f" tasks. Choose one of {divisors}."
        )
    return count // plan.tasks


def permuted_sequence(source: Source, plan: Plan) -> Benchmark:
    """Make each task from the full data set with another permutation of the pixels; the first task is the original."""
    pixels = int(np.prod(source.test.take(np.arange(1)).shape[2:]))
    orders = [np.arange(pixels)]
    orders += [
        np.random.default_rng([plan.seed, _PERMUTATION, number]).permutation(pixels) for number in range(1, plan.tasks)
    ]
    transforms: list[tuple[str, Transform]] = [
        (f"permutation {number + 1}" if number else "original", Permutation(order))
        for number, order in enumerate(orders)
    ]
    return _transformed(source, plan, transforms)


def rotated_sequence(source: Source, plan: Plan) -> Benchmark:
    """Make each task from the full data set rotated by another angle: equal steps from 0 to below 180 degrees."""
    angles = [180 * number / plan.tasks for number in range(plan.tasks)]
    return _transformed(source, plan, [(f"{angle:g} degrees", Rotation(angle)) for angle in angles])


def _transformed(source: Source, plan: Plan, transforms: list[tuple[str, Transform]]) -> Benchmark:
    """Make one task per named transform of the full data. Outside the domain scenario each task has its own units."""
    classes = len(source.class_names)
    plan.check_subset(source.train.y, source.class_names)
    all_rows = np.ones(len(source.train.y), bool), np.ones(len(source.test.y), bool)
    base = _read(source, plan, *all_rows, np.arange(classes))
    order = plan.order(plan.tasks)
    cache = ArrayCache()
    tasks = []
    for number, (name, transform) in enumerate(transforms[i] for i in order):
        first = 0 if plan.scenario == "domain" else number * classes
        parts = Parts(
            TransformedExamples(base.train, transform, cache, base.train.y + first),
            TransformedExamples(base.test, transform, cache, base.test.y + first),
            base.validation and TransformedExamples(base.validation, transform, cache, base.validation.y + first),
        )
        tasks.append(Task(name, tuple(range(first, first + classes)), *parts))
    repeats = 1 if plan.scenario == "domain" else plan.tasks
    return _benchmark(source, plan, tasks, source.class_names * repeats, order, base)


def _read(
    source: Source,
    plan: Plan,
    train_mask: NDArray[np.bool_],
    test_mask: NDArray[np.bool_],
    unit: NDArray[np.int64],
    salt: int = 0,
) -> Parts:
    """Read the rows selected by the masks, split off the validation data and map labels to output units."""
    training, validation = plan.rows(source.train, train_mask, source.class_names, salt)

    def examples(split: Split, rows: NDArray[np.int64]) -> Examples:
        boxes = None if split.boxes is None else split.boxes[rows]
        return Examples(split.take(rows), unit[split.y[rows]], boxes)

    return Parts(
        train=examples(source.train, training),
        test=examples(source.test, np.flatnonzero(test_mask)),
        validation=examples(source.train, validation) if len(validation) else None,
    )


def _benchmark(
    source: Source,
    plan: Plan,
    tasks: list[Task],
    class_names: tuple[str, ...],
    order: list[int],
    base: Parts | None = None,
) -> Benchmark:
    """Return the benchmark with its normalization and provenance; ``base`` is the data that the tasks transform."""
    parts: list[Parts] | list[Task] = [base] if base else tasks
    if source.mean is not None and source.std is not None:
        mean, std = source.mean, source.std
    else:
        mean, std = source_moments(np.concatenate([part.train.x for part in parts]))
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
        "data_sha256": _checksum(parts),
        **source.provenance,
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


def _checksum(parts: list[Parts] | list[Task]) -> str:
    """Return one SHA-256 of all data that was read."""
    all_examples = [examples for part in parts for examples in (part.train, part.test, part.validation) if examples]
    return hashlib.sha256("".join(examples.digest for examples in all_examples).encode()).hexdigest()
