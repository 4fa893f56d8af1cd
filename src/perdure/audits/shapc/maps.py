"""Stored attribution maps of a SHAPC audit: each example under every network that explained it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from perdure.audits.shapc.results import ShapcResult
from perdure.audits.shapc.values import MAPS


@dataclass(frozen=True)
class StoredExample:
    """A test example and its maps: (height, width) after each step, channels summed, both halves averaged."""

    step: int
    """The step that trained its task, tau."""
    example: int
    label: int
    image: NDArray[np.uint8]
    """(channels, height, width), as stored."""
    predicted: dict[int, int]
    """The decision after each step from tau on."""
    maps: dict[int, NDArray[np.float32]]


def stored_shapc_maps(result: ShapcResult, per_task: int | None = None) -> Iterator[StoredExample]:
    """Yield the examples whose maps were stored (``keep_maps``), at most ``per_task`` of each task; images only."""
    counts: dict[int, int] = {}
    for file in sorted(Path(result.folder, MAPS).glob("task-*.safetensors")):
        step = int(file.stem.split("-")[1]) - 1
        limit = len(result.examples.get(step, ())) if per_task is None else per_task
        if counts.get(step, 0) >= limit:
            continue
        unit = load_file(file)
        if "pictures" not in unit:
            return
        steps = sorted({int(name.split(".")[0].split("-")[1]) - 1 for name in unit if name.startswith("after-")})
        for row in range(min(len(unit["sample"]), limit - counts.get(step, 0))):
            counts[step] = counts.get(step, 0) + 1
            yield StoredExample(
                step=step,
                example=int(unit["sample"][row]),
                label=int(unit["label"][row]),
                image=unit["pictures"][row],
                predicted={after: int(unit["predicted"][row, column]) for column, after in enumerate(steps)},
                maps={after: _mean_map(unit, after, row) for after in steps},
            )


def _mean_map(unit: dict[str, NDArray[np.float32]], step: int, row: int) -> NDArray[np.float32]:
    first, second = (unit[f"after-{step + 1:02d}.{half}"][row] for half in "AB")
    mean: NDArray[np.float32] = (first + second).sum(axis=0) / 2
    return mean
