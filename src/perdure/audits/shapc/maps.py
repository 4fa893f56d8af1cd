"""The attributions that a SHAPC audit kept: one sample under every network it was explained by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from perdure.audits.shapc.values import MAPS

if TYPE_CHECKING:
    from perdure.audits.shapc.results import ShapcResult


@dataclass(frozen=True)
class KeptSample:
    """A test sample and its maps: (height, width) after each step, channels summed, both halves averaged."""

    step: int
    """The step that trained its task, tau."""
    sample: int
    label: int
    picture: NDArray[np.uint8]
    """(channels, height, width), as it is stored."""
    predicted: dict[int, int]
    """What the learner decided after each step from tau on."""
    maps: dict[int, NDArray[np.float32]]


def kept_samples(result: ShapcResult, per_task: int | None = None) -> Iterator[KeptSample]:
    """Yield the samples whose maps were kept (``keep_maps``), of each task the first ``per_task``; only images have any."""
    taken: dict[int, int] = {}
    for file in sorted(Path(result.folder, MAPS).glob("task-*.safetensors")):
        step = int(file.stem.split("-")[1]) - 1
        room = len(result.samples.get(step, ())) if per_task is None else per_task
        if taken.get(step, 0) >= room:
            continue
        unit = load_file(file)
        if "pictures" not in unit:
            return
        later = sorted({int(name.split(".")[0].split("-")[1]) - 1 for name in unit if name.startswith("after-")})
        for place in range(len(unit["sample"])):
            if taken.get(step, 0) >= room:
                break
            taken[step] = taken.get(step, 0) + 1
            yield KeptSample(
                step=step,
                sample=int(unit["sample"][place]),
                label=int(unit["label"][place]),
                picture=unit["pictures"][place],
                predicted={after: int(unit["predicted"][place, column]) for column, after in enumerate(later)},
                maps={after: _pixels(unit, after, place) for after in later},
            )


def _pixels(unit: dict[str, NDArray[np.float32]], step: int, place: int) -> NDArray[np.float32]:
    halves = [unit[f"after-{step + 1:02d}.{half}"][place] for half in "AB"]
    mean: NDArray[np.float32] = (halves[0] + halves[1]).sum(axis=0) / 2
    return mean
