"""Which explainer can be believed on a record's network, or on a user's? Samples, network and background, and what is kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from perdure.audits.bias.measure import METHODS, Progress, measure_bias
from perdure.audits.bias.results import FILE, SCHEMA, BiasResult, Verdict
from perdure.audits.bias.shapley_store import KeptShapley
from perdure.audits.controls import CONTROLS
from perdure.audits.retraining.maps import checked_methods
from perdure.base.errors import InputError
from perdure.base.files import alone, read_json
from perdure.record import Record
from perdure.runs.data import BenchmarkData, Data, OwnData, balanced_order
from perdure.runs.loaded_run import filled, rebuilt_benchmark, rebuilt_network

SHAPLEY = Path("trust") / "shapley"
"""Where Shapley values are kept in a record, to be used again."""
COMPARISONS = Path("trust") / "comparisons"
"""Where every comparison is kept; the one asked for last is what the record shows, and what chooses its explainer."""


def record_bias(
    record: str | Path,
    *,
    step: int | None = None,
    samples: int = 50,
    target: Literal["label", "predicted"] = "label",
    background: int = 100,
    methods: str | Sequence[str] = METHODS,
    network: Callable[[], nn.Module] | None = None,
    data: Any = None,
    data_dir: Path | None = None,
    device: str = "cpu",
    seed: int = 0,
    progress: Progress | None = None,
    **options: Any,
) -> BiasResult:
    """Return the attribution bias of explainers on a record's network, and keep it in the record.

    The checkpoint after ``step`` (0-based; by default the last) is asked about ``samples`` test samples of the tasks it has
    learned, balanced over tasks and classes. ``network`` (a function that makes it) and ``data`` ((inputs, labels) of each
    task) are needed where the record does not name its own. Other options are those of `measure_bias`. Called again with the
    same settings it returns what it has kept; with others the Shapley values that fit are used again.
    """
    opened = Record.open(record)
    place = _step(opened, step)
    own = None if data is None else OwnData.checked(data, None)
    benchmark = None if own is not None and network is not None else rebuilt_benchmark(opened, data_dir)
    if own is None and benchmark is None:
        raise InputError(f"{record}: give data=, the tasks' test data")
    source: Data = own if own is not None else BenchmarkData(benchmark, device)  # type: ignore[arg-type]
    if network is not None:
        what = f"{record}: the checkpoint after step {place + 1}"
        model = filled(network(), opened.checkpoint(place), what).to(device)
    elif benchmark is not None:
        model = rebuilt_network(opened, benchmark, place).to(device)
    else:
        raise InputError(f"{record}: give network=, a function that makes its network")
    seen = sorted(set(opened.manifest.curriculum[: place + 1])) or [0]
    if opened.manifest.trains_all:
        seen = list(range(len(source.classes)))
    asked = _Asked.of(source, seen, samples, background, seed, device)
    about = {
        "step": place + 1,
        "checkpoint": opened.manifest.checkpoints[place].sha256,
        "data": source.fingerprint,
        "asked": sorted(checked_methods(methods)),
        "samples": len(asked.x),
        "target": target,
        "permutations": options.get("permutations"),
        "options": {name: str(value) for name, value in sorted(options.items())},
        "seed": seed,
    }
    file, own_file = opened.path / FILE, opened.path / COMPARISONS / f"{_digest(about)}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    with alone(file.parent):
        if own_file.exists() and (kept := read_json(own_file)).get("schema") == SCHEMA:
            found = BiasResult.from_json(kept)
            found.save(file)
            return found
        words = f"{opened.manifest.learner} after step {place + 1} of {opened.measurements.benchmark}"
        found = measure_bias(
            model,
            asked.x,
            asked.y if target == "label" else "predicted",
            background=asked.background,
            methods=methods,
            seed=seed,
            subject=words,
            tables=KeptShapley(opened.path / SHAPLEY),
            progress=progress,
            **options,
        )
        found = replace(found, settings={**found.settings, "about": about})
        for place_of_it in (own_file, file):
            found.save(place_of_it)
    return found


@dataclass(frozen=True)
class _Asked:
    """Samples of several tasks with their labels, and training samples of the same tasks."""

    x: Tensor
    y: NDArray[np.int64]
    background: Tensor

    @classmethod
    def of(cls, data: Data, tasks: Sequence[int], samples: int, background: int, seed: int, device: str) -> _Asked:
        """Draw from each task as evenly as the numbers allow."""
        if samples < 1:
            raise InputError(f"samples: expected at least 1, got {samples}")
        xs, ys, backgrounds = [], [], []
        for count, others, task in zip(
            _even(samples, len(tasks)), _even(max(background, len(tasks)), len(tasks)), tasks, strict=True
        ):
            rows = np.sort(balanced_order(data.labels(task), seed, task)[:count])
            if len(rows):
                xs.append(data.inputs(task, rows).to(device))
                ys.append(data.labels(task)[rows])
            backgrounds.append(data.background(task, others, seed).to(device))
        return cls(torch.cat(xs), np.concatenate(ys), torch.cat(backgrounds))


def _even(total: int, parts: int) -> list[int]:
    return [total // parts + (place < total % parts) for place in range(parts)]


def _step(record: Record, step: int | None) -> int:
    kept = record.manifest.checkpoints
    if not kept:
        raise InputError(f"{record.path}: no checkpoint was kept, so there is no network to ask about")
    if step is not None and step not in kept:
        raise InputError(f"{record.path}: no checkpoint was kept after step {step + 1}; there are {_counted(kept)}")
    return max(kept) if step is None else step


def _digest(about: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:12]


def _counted(steps: Any) -> str:
    return ", ".join(str(step + 1) for step in sorted(steps))


def chosen_explainer(record: str | Path) -> Verdict:
    """Return the verdict that was kept in a record: the explainer to use, and the evidence for it.

    Refused when it is not less biased than both controls by more than chance: then it has shown nothing.
    """
    file = Path(record) / FILE
    if not file.exists():
        raise InputError(
            f"{record}: its explainers have not been compared yet; run `perdure trust {record}` first, or name one (--method)"
        )
    verdict = BiasResult.load(file).verdict
    if verdict is None:
        raise InputError(f"{file}: no explainer could be ranked on this network, so none can be chosen")
    if nothing := [name for name in verdict.tied if name in CONTROLS]:
        raise InputError(
            f"{file}: {verdict.least} has the lowest bias but cannot be told from {' and '.join(nothing)}, the control; "
            "compare on more samples, or name an explainer (--method)"
        )
    return verdict


def one_explainer(records: Sequence[str | Path]) -> str:
    """Return the explainer that all records choose: stability is compared under one."""
    chosen = {str(record): chosen_explainer(record).least for record in records}
    if len(set(chosen.values())) > 1:
        said = "; ".join(f"{record}: {name}" for record, name in chosen.items())
        raise InputError(
            f"the records choose different explainers ({said}), and stability compares under one only; name it (--method)"
        )
    return next(iter(chosen.values()))
