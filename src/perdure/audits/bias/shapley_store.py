"""Shapley values that are kept sample by sample, so that a long measurement can be stopped and goes on."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from perdure import explain
from perdure.base.files import write_atomically
from perdure.explain import Players, ShapleyTable


@dataclass(frozen=True)
class KeptShapley:
    """Makes tables as `explain.shapley_table` does, one sample after another, and keeps each in a file of ``folder``.

    A file's name is a digest of all that decides its values: the weights, the sample, its target, the background and every
    setting. Another network, or the same one trained further, finds nothing.
    """

    folder: Path

    def __call__(
        self,
        model: nn.Module,
        x: Any,
        target: Any,
        *,
        background: Any = None,
        batch_size: int | None = None,
        progress: Callable[[int, int], None] | None = None,
        **settings: Any,
    ) -> ShapleyTable:
        """Return the table of all samples; ``settings`` as in `explain.shapley_table`."""
        common = _digest(_weights(model), background, *(f"{name}={_said(settings[name])}" for name in sorted(settings)))
        tables = []
        for index in range(len(x)):
            own = target if isinstance(target, str | int) else target[index : index + 1]
            file = self.folder / f"{_digest(common, x[index], own)[:24]}.npz"
            if file.exists():
                table = _read(file)
            else:
                table = explain.shapley_table(
                    model, x[index : index + 1], own, background=background, batch_size=batch_size, **settings
                )
                _write(file, table)
            tables.append(table)
            if progress is not None:
                progress(index + 1, len(x))
        return _joined(tables)


def _weights(model: nn.Module) -> str:
    return _digest(*(part for name, tensor in sorted(model.state_dict().items()) for part in (name, tensor)))


def _said(value: Any) -> str:
    """Return a setting in words that differ when it does."""
    if isinstance(value, Players):
        return f"{value.kind}-{_digest(value.labels)}"
    return _digest(value) if isinstance(value, np.ndarray | Tensor) else repr(value)


def _digest(*parts: Any) -> str:
    total = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray | Tensor):
            array = np.ascontiguousarray(part.detach().cpu().numpy() if isinstance(part, Tensor) else part)
            total.update(f"{array.dtype.str}{array.shape}".encode() + array.tobytes())
        else:
            total.update(repr(part).encode())
        total.update(b"|")
    return total.hexdigest()


def _write(file: Path, table: ShapleyTable) -> None:
    content = io.BytesIO()
    np.savez(
        content,
        values=table.values,
        stderr=table.stderr,
        parts=np.zeros((0, *table.values.shape)) if table.parts is None else table.parts,
        counts=np.array([table.permutations, table.evaluations]),
        words=np.array([table.estimator, table.layer or ""]),
    )
    write_atomically(file, content.getvalue())


def _read(file: Path) -> ShapleyTable:
    with np.load(file, allow_pickle=False) as kept:
        return ShapleyTable(
            values=kept["values"],
            stderr=kept["stderr"],
            parts=kept["parts"] if len(kept["parts"]) else None,
            permutations=int(kept["counts"][0]),
            evaluations=int(kept["counts"][1]),
            estimator=str(kept["words"][0]),
            layer=str(kept["words"][1]) or None,
        )


def _joined(tables: list[ShapleyTable]) -> ShapleyTable:
    first = tables[0]
    parts = [table.parts for table in tables if table.parts is not None]
    return ShapleyTable(
        values=np.concatenate([table.values for table in tables]),
        stderr=np.concatenate([table.stderr for table in tables]),
        parts=np.concatenate(parts, axis=1) if parts else None,
        permutations=first.permutations,
        evaluations=sum(table.evaluations for table in tables),
        estimator=first.estimator,
        layer=first.layer,
    )
