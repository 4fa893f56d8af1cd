"""Examples for display: images and stored attribution maps, by learner and step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from perdure.audits.shapc.maps import stored_shapc_maps
from perdure.audits.shapc.results import ShapcResult

if TYPE_CHECKING:
    from perdure.audits.results import Audit

MOST = 200
LearnerStep = tuple[str, int]


@dataclass(frozen=True)
class ExampleView:
    """A test example with the maps and predictions of each learner after each step (0-based).

    ``image`` is (height, width, 3). ``maps`` holds one (height, width) attribution map and ``predictions`` the predicted class
    for each (learner, step). ``task`` is the example's task (0-based). A text or a row of a table has ``names`` instead of an
    image, its words or features, and maps with one value for each.
    """

    image: NDArray[np.uint8] | None
    label: str
    task: int
    maps: Mapping[LearnerStep, NDArray[np.float64]]
    predictions: Mapping[LearnerStep, str]
    kind: str = "image"
    names: tuple[str, ...] = ()


@dataclass
class _Collected:
    """An example while the maps of the learners are read."""

    image: NDArray[np.uint8] | None
    label: str
    rank: int
    kind: str
    names: tuple[str, ...]
    maps: dict[LearnerStep, NDArray[np.float64]] = field(default_factory=dict)
    predictions: dict[LearnerStep, str] = field(default_factory=dict)


def example_views(audit: Audit, most: int = MOST) -> tuple[ExampleView, ...]:
    """Return the examples whose maps were stored (``keep_maps``), of the first run of each learner on one benchmark.

    At most ``most`` examples, spread over the tasks. Empty if no maps of images were stored or their folders are missing.
    """
    names = {run.run: _class_names(run.data, audit) for run in audit.provenance}
    examples: dict[tuple[int, int], _Collected] = {}
    seen: set[str] = set()
    benchmark: str | None = None
    for result in audit.shapc:
        if result.learner in seen or benchmark not in (None, result.benchmark):
            continue
        if _collect(examples, result, names.get(result.run, ())):
            seen.add(result.learner)
            benchmark = result.benchmark
    first = sorted(examples, key=lambda key: (examples[key].rank, key[0]))[:most]
    return tuple(
        ExampleView(
            examples[key].image,
            examples[key].label,
            key[0],
            examples[key].maps,
            examples[key].predictions,
            examples[key].kind,
            examples[key].names,
        )
        for key in sorted(first)
    )


def _collect(examples: dict[tuple[int, int], _Collected], result: ShapcResult, names: Sequence[str]) -> bool:
    """Add the maps of one run, and return whether there were any."""
    stored = list(stored_shapc_maps(result)) if result.folder else []
    ranks: dict[int, int] = {}
    for entry in stored:
        task = result.curriculum[entry.step]
        rank = ranks[task] = ranks.get(task, -1) + 1
        image = None if entry.image is None else display_image(entry.image)
        blank = _Collected(image, _class_name(entry.label, names), rank, entry.kind, entry.names)
        example = examples.setdefault((task, entry.example), blank)
        for step, values in entry.maps.items():
            example.maps[result.learner, step] = values.astype(np.float64)
            example.predictions[result.learner, step] = _class_name(entry.predicted[step], names)
    return bool(stored)


def display_image(stored: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return (channels, height, width) as (height, width, 3); gray is repeated and a dark image is stretched."""
    image = np.moveaxis(stored, 0, -1)
    image = np.repeat(image, 3, axis=-1) if image.shape[-1] == 1 else image[..., :3]
    top = int(image.max())
    if 0 < top < 64:  # the embedded digits have 17 gray levels
        image = (image.astype(np.float64) * (255 / top)).astype(np.uint8)
    return np.ascontiguousarray(image)


def _class_names(data: Mapping[str, Any], audit: Audit) -> tuple[str, ...]:
    """Return the class name of each output unit if the names of the tasks list their classes in order."""
    order = data.get("order", [])
    for entry in audit.learners:
        names = tuple(name for task in entry.tasks for name in task.split(", "))
        if data.get("scenario") in ("class", "task") and len(names) == len(order):
            return names
    return ()


def _class_name(unit: int, names: Sequence[str]) -> str:
    if unit < 0:
        return "–"  # a model that does not choose among classes
    return names[unit] if unit < len(names) else f"class {unit + 1}"
