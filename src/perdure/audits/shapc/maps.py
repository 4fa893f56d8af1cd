"""Stored attribution maps of a SHAPC audit: each example under every network that explained it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from perdure.audits.shapc.results import ShapcResult
from perdure.audits.shapc.values import MAPS


@dataclass(frozen=True)
class StoredExample:
    """A test example and its maps, both halves averaged: (height, width) with channels summed, or one value per name."""

    step: int
    """The step that trained its task, tau."""
    example: int
    label: int
    image: NDArray[np.uint8] | None
    """(channels, height, width), as stored; None for texts and tables."""
    predicted: dict[int, int]
    """The decision after each step from tau on."""
    maps: dict[int, NDArray[np.float32]]
    kind: str = "image"
    """image, series (an image with one row per channel), text or table."""
    names: tuple[str, ...] = ()
    """The words of a text, or the features of a row, in the order of the maps."""


def stored_shapc_maps(result: ShapcResult, per_task: int | None = None) -> Iterator[StoredExample]:
    """Yield the examples whose maps were stored (``keep_maps``), at most ``per_task`` of each task."""
    counts: dict[int, int] = {}
    for file in sorted(Path(result.folder, MAPS).glob("task-*.safetensors")):
        step = int(file.stem.split("-")[1]) - 1
        limit = len(result.examples.get(step, ())) if per_task is None else per_task
        if counts.get(step, 0) >= limit:
            continue
        unit = load_file(file)
        if "pictures" not in unit and "names" not in unit:
            return
        kind, names = _names(unit)
        steps = sorted({int(name.split(".")[0].split("-")[1]) - 1 for name in unit if name.startswith("after-")})
        for row in range(min(len(unit["sample"]), limit - counts.get(step, 0))):
            counts[step] = counts.get(step, 0) + 1
            yield StoredExample(
                step=step,
                example=int(unit["sample"][row]),
                label=int(unit["label"][row]),
                image=unit["pictures"][row] if "pictures" in unit else None,
                predicted={after: int(unit["predicted"][row, column]) for column, after in enumerate(steps)},
                maps={after: _mean_map(unit, after, row) for after in steps},
                kind=kind,
                names=names[row] if names else (),
            )


def _names(unit: dict[str, NDArray[Any]]) -> tuple[str, list[tuple[str, ...]]]:
    """Return what the examples of a unit are, and the names of their variables."""
    if "names" not in unit:
        return "image", []
    content = json.loads(unit["names"].tobytes().decode())
    return str(content["kind"]), [tuple(map(str, names)) for names in content["names"]]


def _mean_map(unit: dict[str, NDArray[np.float32]], step: int, row: int) -> NDArray[np.float32]:
    first, second = (unit[f"after-{step + 1:02d}.{half}"][row] for half in "AB")
    total = first + second
    mean: NDArray[np.float32] = (total.sum(axis=0) if total.ndim > 1 else total) / np.float32(2)
    return mean
