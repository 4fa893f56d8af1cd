"""Samples to look at: their pictures and the attribution maps that a SHAPC audit kept, learner by learner, step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from perdure.audits.shapc.maps import kept_samples
from perdure.audits.shapc.results import ShapcResult

if TYPE_CHECKING:
    from perdure.audits.results import Audit

MOST = 200
Place = tuple[str, int]


@dataclass(frozen=True)
class ViewedSample:
    """A test sample and what each learner made of it after each step (0-based).

    ``image`` is (height, width, 3), ``maps`` hold one (height, width) attribution map for each (learner, step) and
    ``predictions`` the class each predicted there. ``task`` is the task (0-based) it belongs to.
    """

    image: NDArray[np.uint8]
    label: str
    task: int
    maps: Mapping[Place, NDArray[np.float64]]
    predictions: Mapping[Place, str]


@dataclass
class _Found:
    """A sample while the maps of one learner after the other are read."""

    image: NDArray[np.uint8]
    label: str
    place: int
    maps: dict[Place, NDArray[np.float64]] = field(default_factory=dict)
    predictions: dict[Place, str] = field(default_factory=dict)


def viewed_samples(audit: Audit, most: int = MOST) -> tuple[ViewedSample, ...]:
    """Return samples whose maps were kept (``keep_maps``), of the first run of each learner on one benchmark.

    At most ``most`` samples, spread over the tasks; none when no maps of images were kept, or their folders are gone.
    """
    names = {run.run: _class_names(run.data, audit) for run in audit.provenance}
    found: dict[tuple[int, int], _Found] = {}
    seen: set[str] = set()
    benchmark: str | None = None
    for result in audit.stability:
        if result.learner in seen or benchmark not in (None, result.benchmark):
            continue
        if _add(found, result, names.get(result.run, ())):
            seen.add(result.learner)
            benchmark = result.benchmark
    order = sorted(found, key=lambda key: (found[key].place, key[0]))[:most]
    return tuple(
        ViewedSample(found[key].image, found[key].label, key[0], found[key].maps, found[key].predictions)
        for key in sorted(order)
    )


def _add(found: dict[tuple[int, int], _Found], result: ShapcResult, names: Sequence[str]) -> bool:
    """Add the maps of one run, and say whether there were any."""
    kept = list(kept_samples(result)) if result.folder else []
    places: dict[int, int] = {}
    for one in kept:
        task = result.curriculum[one.step]
        place = places[task] = places.get(task, -1) + 1
        sample = found.setdefault((task, one.sample), _Found(_picture(one.picture), _class(one.label, names), place))
        for step, values in one.maps.items():
            sample.maps[result.learner, step] = values.astype(np.float64)
            sample.predictions[result.learner, step] = _class(one.predicted[step], names)
    return bool(kept)


def _picture(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return (channels, height, width) as (height, width, 3), grey repeated, stretched when it is dark."""
    image = np.moveaxis(picture, 0, -1)
    image = np.repeat(image, 3, axis=-1) if image.shape[-1] == 1 else image[..., :3]
    top = int(image.max())
    if 0 < top < 64:  # the embedded digits have 17 shades of grey
        image = (image.astype(np.float64) * (255 / top)).astype(np.uint8)
    return np.ascontiguousarray(image)


def _class_names(data: Mapping[str, Any], audit: Audit) -> tuple[str, ...]:
    """Return the classes by output unit where the tasks' names tell them: tasks are named by their classes in order."""
    order = data.get("order", [])
    for entry in audit.learners:
        names = tuple(name for task in entry.tasks for name in task.split(", "))
        if data.get("scenario") in ("class", "task") and len(names) == len(order):
            return names
    return ()


def _class(unit: int, names: Sequence[str]) -> str:
    return names[unit] if unit < len(names) else f"class {unit + 1}"
