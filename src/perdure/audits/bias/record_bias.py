"""Attribution bias on the network of a record, or on a user's own network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from perdure.audits.bias.measure import BiasSettings, Progress, measure_bias
from perdure.audits.bias.results import FILE, BiasResult
from perdure.audits.bias.shapley_cache import CachedShapley
from perdure.audits.controls import methods_without_controls
from perdure.base.errors import InputError
from perdure.base.files import check_digest, lock_folder
from perdure.explain import Players
from perdure.runs.cache import Cache, cache_digest
from perdure.runs.data import (
    RunData,
    UserData,
    balanced_data_order,
    check_regression_outputs,
    with_background,
)
from perdure.runs.loaded_run import load_run
from perdure.runs.networks import NetworkSource, made_network, usable_network

KIND = "bias"
EXAMPLES = 50
BACKGROUND = 100
Target = Literal["label", "predicted"] | int


def record_bias(
    record: str | Path,
    *,
    step: int | None = None,
    examples: int = EXAMPLES,
    target: Target = "label",
    background: int = BACKGROUND,
    settings: BiasSettings | None = None,
    network: NetworkSource | None = None,
    data: Any = None,
    data_dir: Path | None = None,
    device: str = "cpu",
    progress: Progress | None = None,
) -> BiasResult:
    """Compute the attribution bias of explainers on a record's network, and store it in the record.

    The checkpoint after ``step`` (0-based; by default the last) is explained on ``examples`` test examples of the tasks it has
    learned, balanced over tasks and classes. ``network`` (a function that returns it) and ``data`` ((inputs, labels) of each
    task) are needed if the record does not name its own. A repeated call with the same settings returns the stored result;
    with other settings, matching Shapley values are reused.
    """
    run = load_run(record, network, data, None, data_dir, device)
    chosen = settings or BiasSettings()
    index = run.checked_step(step)
    selected = ExampleSelection.of(run.data, run.seen_tasks(index), examples, background, chosen.seed, device)
    key = {
        "step": index + 1,
        "checkpoint": run.checkpoints[index],
        **run.identity,
        "data": run.data.fingerprint,
        "methods": sorted(methods_without_controls(chosen.methods)),
        "examples": len(selected.x),
        "background": len(selected.background),
        "target": target,
        "settings": _settings_key(chosen),
    }
    entry = run.cache.entry(KIND, key)
    stored, shown = entry.file(FILE.name), run.path / FILE
    with lock_folder(entry.folder):
        if stored.exists():
            check_digest(stored)
            result = BiasResult.load(stored)
        else:
            measured = measure_bias(
                run.described(run.network(index)),
                selected.x,
                explained_unit(target, run.data.kind, selected.y, lambda: run.network(index)(selected.x[:1]).shape[1]),
                background=selected.background,
                settings=chosen,
                subject=f"{run.learner} after step {index + 1} of {run.benchmark}",
                shapley_table=CachedShapley(run.cache),
                progress=progress,
            )
            result = replace(measured, settings={**measured.settings, "key": key})
            result.save(stored, digest=True)
        shown.parent.mkdir(exist_ok=True)
        with lock_folder(shown.parent, wait=True):
            result.save(shown, digest=True)
    return result


def network_bias(
    network: Any,
    data: Any,
    *,
    examples: int = EXAMPLES,
    target: Target = "label",
    background: int = BACKGROUND,
    settings: BiasSettings | None = None,
    subject: str = "",
    device: str = "cpu",
    cache: Path | None = None,
    progress: Progress | None = None,
) -> BiasResult:
    """Compute the attribution bias of explainers on a user's trained network, or on a model outside PyTorch.

    ``data`` is (inputs, labels) or (inputs, labels, background), inputs preprocessed for the network; or a Dataset or
    DataLoader. ``target``: the true class, the predicted class, or the index of an output for every example.
    """
    chosen = settings or BiasSettings()
    user_data = UserData.checked(*with_background(data))
    if len(user_data.tasks) == 1:
        rows = np.sort(balanced_data_order(user_data.labels(0), chosen.seed)[:examples])
        selected = ExampleSelection(
            user_data.inputs(0, rows).to(device),
            user_data.labels(0)[rows],
            user_data.background(0, background, chosen.seed).to(device),
        )
    else:
        tasks = range(len(user_data.tasks))
        selected = ExampleSelection.of(user_data, tasks, examples, background, chosen.seed, device)
    x = selected.x
    model = made_network(network, "network").to(device).eval()
    usable = usable_network(model, x, user_data.form, classes=user_data.kind == "classes")
    arguments = {} if cache is None else {"shapley_table": CachedShapley(Cache(cache))}
    return measure_bias(
        usable,
        x,
        explained_unit(target, user_data.kind, selected.y, lambda: usable(x[:1]).shape[1]),
        background=selected.background,
        settings=chosen,
        subject=subject,
        progress=progress,
        **arguments,
    )


def explained_unit(target: Target, kind: str, labels: NDArray[np.int64], outputs: Callable[[], int]) -> Any:
    """Return what `measure_bias` explains: the label of each example, ``"predicted"``, or one output for all examples."""
    if isinstance(target, int):
        return target
    if kind == "regression":
        check_regression_outputs(kind, outputs(), "data")
    if kind == "multi-label" or (kind == "regression" and target == "predicted"):
        raise InputError(
            f"data: {kind} data have no single true or predicted class; pass target= the output to explain",
            cli=f"--data: {kind} data have no single true or predicted class; pass --target and the number of the output",
        )
    return labels if target == "label" else "predicted"


def _settings_key(settings: BiasSettings) -> dict[str, Any]:
    """Return settings as JSON values that differ whenever the settings do."""
    values = {
        name: value
        for name, value in vars(settings).items()
        if name not in ("methods", "options", "players", "baseline")
    }
    players, baseline = settings.players, settings.baseline
    return {
        **values,
        "options": {name: {key: str(value) for key, value in own.items()} for name, own in settings.options.items()},
        "players": cache_digest(players.labels) if isinstance(players, Players) else players,
        "baseline": cache_digest(baseline) if isinstance(baseline, np.ndarray | Tensor) else baseline,
    }


@dataclass(frozen=True)
class ExampleSelection:
    """Test examples of several tasks with their labels, and background examples of the same tasks."""

    x: Tensor
    y: NDArray[np.int64]
    background: Tensor

    @classmethod
    def of(
        cls, data: RunData, tasks: Sequence[int], examples: int, background: int, seed: int, device: str
    ) -> ExampleSelection:
        """Select from each task as evenly as the numbers allow."""
        if examples < 1:
            raise InputError(f"examples: expected at least 1, got {examples}")
        xs, ys, backgrounds = [], [], []
        counts = _even_parts(examples, len(tasks))
        background_counts = _even_parts(max(background, len(tasks)), len(tasks))
        for count, background_count, task in zip(counts, background_counts, tasks, strict=True):
            rows = np.sort(balanced_data_order(data.labels(task), seed, task)[:count])
            if len(rows):
                xs.append(data.inputs(task, rows).to(device))
                ys.append(data.labels(task)[rows])
            backgrounds.append(data.background(task, background_count, seed).to(device))
        return cls(torch.cat(xs), np.concatenate(ys), torch.cat(backgrounds))


def _even_parts(total: int, parts: int) -> list[int]:
    return [total // parts + (index < total % parts) for index in range(parts)]
