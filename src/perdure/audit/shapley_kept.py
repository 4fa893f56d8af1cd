"""Shapley values that are kept sample by sample, so that the work can be stopped, and samples added."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from perdure import explain
from perdure.explain import ShapleyTable
from perdure.record.tensors import load_tensors, save_tensors


def kept_table(
    folder: Path | None,
    network: nn.Module,
    x: Tensor,
    target: NDArray[np.int64],
    told: Callable[[int, int], None],
    **options: Any,
) -> ShapleyTable:
    """Return `explain.shapley_table` of some samples, reading those that an earlier call has left in ``folder``.

    A sample's values depend on the network, the sample, its target, its baseline and the options alone, so it does not
    matter in which company it was explained.
    """
    rows = []
    shared = _digest(network, options)
    for index in range(len(x)):
        file = None if folder is None else folder / f"{_key(shared, x[index], int(target[index]))}.safetensors"
        if file is not None and file.exists():
            rows.append(_read(file))
        else:
            row = explain.shapley_table(network, x[index : index + 1], target[index : index + 1], **options)
            if file is not None:
                file.parent.mkdir(parents=True, exist_ok=True)
                _write(file, row)
            rows.append(row)
        told(index + 1, len(x))
    parts = [row.parts for row in rows if row.parts is not None]
    return replace(
        rows[0],
        values=np.concatenate([row.values for row in rows]),
        stderr=np.concatenate([row.stderr for row in rows]),
        parts=np.concatenate(parts, axis=1) if parts else None,
        evaluations=sum(row.evaluations for row in rows),
    )


def _digest(network: nn.Module, options: dict[str, Any]) -> str:
    """Return what tells network and options from others."""
    digest = hashlib.sha256()
    for name, value in sorted(network.state_dict().items()):
        digest.update(name.encode() + _bytes(value))
    for name, value in sorted(options.items()):
        players = getattr(value, "labels", value)
        digest.update(name.encode() + (_bytes(players) if isinstance(players, Tensor) else repr(players).encode()))
    return digest.hexdigest()


def _key(shared: str, sample: Tensor, target: int) -> str:
    return hashlib.sha256(shared.encode() + _bytes(sample) + str(target).encode()).hexdigest()[:24]


def _bytes(value: Tensor) -> bytes:
    return value.detach().cpu().contiguous().numpy().tobytes()


def _write(file: Path, row: ShapleyTable) -> None:
    about = {
        "permutations": row.permutations,
        "evaluations": row.evaluations,
        "estimator": row.estimator,
        "layer": row.layer,
    }
    tensors = {"values": torch.from_numpy(row.values), "stderr": torch.from_numpy(row.stderr)}
    if row.parts is not None:
        tensors["parts"] = torch.from_numpy(row.parts)
    tensors["about"] = torch.tensor(list(json.dumps(about).encode()), dtype=torch.uint8)
    save_tensors(file, tensors)


def _read(file: Path) -> ShapleyTable:
    found = load_tensors(file)
    about = json.loads(bytes(found.pop("about").tolist()))
    arrays = {name: value.numpy() for name, value in found.items()}
    return ShapleyTable(values=arrays["values"], stderr=arrays["stderr"], parts=arrays.get("parts"), **about)
