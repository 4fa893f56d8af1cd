"""Attribution bias on the network of a record, or on a user's own network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from perdure.audits.bias.measure import BiasSettings, PreparedBias, Progress, measure_bias, prepare_bias
from perdure.audits.bias.results import FILE, BiasResult
from perdure.audits.bias.shapley_cache import CachedShapley
from perdure.audits.bias.units import fill_shapley_cache
from perdure.audits.controls import methods_without_controls
from perdure.base.errors import InputError
from perdure.base.files import check_digest, lock_folder
from perdure.engine import Engine, fixed_threads
from perdure.explain import Players
from perdure.runs.cache import Cache, cache_digest
from perdure.runs.data import (
    RunData,
    UserData,
    balanced_data_order,
    check_regression_outputs,
    with_background,
)
from perdure.runs.loaded_run import LoadedRun, load_run
from perdure.runs.networks import NetworkSource, made_network, usable_network
from perdure.runs.single_network import SingleNetwork

KIND = "bias"
EXAMPLES = 50
BACKGROUND = 100
Target = Literal["label", "predicted"] | int


@dataclass(frozen=True)
class _Selection:
    """Which examples are explained, and how."""

    examples: int
    target: Target
    background: int
    settings: BiasSettings
    device: str


@dataclass(frozen=True)
class _Explained:
    """A network with the selected examples: what `measure_bias` is called with."""

    network: nn.Module
    x: Tensor
    target: Any
    background: Tensor

    def prepare(self, settings: BiasSettings) -> PreparedBias:
        """Return network and examples in the form in which they are explained."""
        return prepare_bias(self.network, self.x, self.target, self.background, settings)


@dataclass(frozen=True)
class _RecordSource:
    """The network of a record, as another process loads it."""

    record: Path
    step: int | None
    network: NetworkSource | None
    data: UserData | None
    data_dir: Path | None
    selection: _Selection

    @property
    def device(self) -> str:
        """Where the network runs."""
        return self.selection.device

    def run(self) -> LoadedRun:
        """Load the record."""
        return load_run(self.record, self.network, self.data, None, self.data_dir, self.device)

    def explained(self, run: LoadedRun) -> _Explained:
        """Return the network after the step, and examples of the tasks that it has learned."""
        index, chosen = run.checked_step(self.step), self.selection
        tasks = run.seen_tasks(index)
        selected = ExampleSelection.of(
            run.data, tasks, chosen.examples, chosen.background, chosen.settings.seed, chosen.device
        )
        target = explained_unit(
            chosen.target, run.data.kind, selected.y, lambda: run.network(index)(selected.x[:1]).shape[1]
        )
        return _Explained(run.described(run.network(index)), selected.x, target, selected.background)

    def prepare(self) -> PreparedBias:
        """Return network and examples in the form in which they are explained."""
        return self.explained(self.run()).prepare(self.selection.settings)


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
    engine: Engine | None = None,
) -> BiasResult:
    """Compute the attribution bias of explainers on a record's network, and store it in the record.

    The checkpoint after ``step`` (0-based; by default the last) is explained on ``examples`` test examples of the tasks it has
    learned, balanced over tasks and classes. ``network`` (a function that returns it) and ``data`` ((inputs, labels) of each
    task) are needed if the record does not name its own. A repeated call with the same settings returns the stored result;
    with other settings, matching Shapley values are reused. ``engine``: where the Shapley values are computed; by default one
    example after another in this process.
    """
    chosen = settings or BiasSettings()
    source = _RecordSource(
        Path(record).absolute(),
        step,
        network,
        None if data is None else UserData.checked(data),
        data_dir,
        _Selection(examples, target, background, chosen, device),
    )
    run = replace(source, record=Path(record)).run()
    index = run.checked_step(step)
    explained = source.explained(run)
    key = {
        "step": index + 1,
        "checkpoint": run.checkpoints[index],
        **run.identity,
        "data": run.data.fingerprint,
        "methods": sorted(methods_without_controls(chosen.methods)),
        "examples": len(explained.x),
        "background": len(explained.background),
        "target": target,
        "settings": _settings_key(chosen),
    }
    entry = run.cache.entry(KIND, key)
    stored, shown = entry.file(FILE.name), run.path / FILE
    if stored.exists():
        check_digest(stored)
        result = BiasResult.load(stored)
    else:
        subject = f"{run.learner} after step {index + 1} of {run.benchmark}"
        with nullcontext() if engine is None else fixed_threads(engine.threads):
            measured = _measure(explained, source, subject, run.cache, progress, engine)
            request = {
                "methods": list(methods_without_controls(chosen.methods)),
                "examples": examples,
                "background": background,
                "device": device,
                "threads": torch.get_num_threads(),
            }
        result = replace(measured, settings={**measured.settings, "key": key, "request": request})
        with lock_folder(entry.folder, wait=True):
            result.save(stored, digest=True)
    shown.parent.mkdir(exist_ok=True)
    with lock_folder(shown.parent, wait=True):
        result.save(shown, digest=True)
    return result


def _measure(
    explained: _Explained,
    source: _RecordSource | _NetworkSource,
    subject: str,
    cache: Cache | None,
    progress: Progress | None,
    engine: Engine | None,
) -> BiasResult:
    """Measure the bias; with an engine, first compute the Shapley values of all examples with it."""
    report = progress or (lambda *_: None)

    def fill(prepared: PreparedBias) -> None:
        if engine is not None and cache is not None:
            show = partial(report, "Shapley values")
            fill_shapley_cache(prepared, source, Cache(cache.folder.absolute()), engine, show)

    return measure_bias(
        explained.network,
        explained.x,
        explained.target,
        background=explained.background,
        settings=source.selection.settings,
        subject=subject,
        progress=progress,
        before=fill,
        **({} if cache is None else {"shapley_table": CachedShapley(cache)}),
    )


@dataclass(frozen=True)
class _NetworkSource:
    """A user's network and data, as another process loads them."""

    network: Any
    data: UserData
    selection: _Selection

    @property
    def device(self) -> str:
        """Where the network runs."""
        return self.selection.device

    def explained(self) -> _Explained:
        """Return the network and the selected examples."""
        chosen, data, seed = self.selection, self.data, self.selection.settings.seed
        if len(data.tasks) == 1:
            rows = np.sort(balanced_data_order(data.labels(0), seed)[: chosen.examples])
            selected = ExampleSelection(
                data.inputs(0, rows).to(chosen.device),
                data.labels(0)[rows],
                data.background(0, chosen.background, seed).to(chosen.device),
            )
        else:
            tasks = range(len(data.tasks))
            selected = ExampleSelection.of(data, tasks, chosen.examples, chosen.background, seed, chosen.device)
        x = selected.x
        network = self.network.build(data) if isinstance(self.network, SingleNetwork) else self.network
        model = made_network(network, "network").to(chosen.device).eval()
        usable = usable_network(model, x, data.form, classes=data.kind == "classes")
        target = explained_unit(chosen.target, data.kind, selected.y, lambda: usable(x[:1]).shape[1])
        return _Explained(usable, x, target, selected.background)

    def prepare(self) -> PreparedBias:
        """Return network and examples in the form in which they are explained."""
        return self.explained().prepare(self.selection.settings)


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
    engine: Engine | None = None,
) -> BiasResult:
    """Compute the attribution bias of explainers on a user's trained network, or on a model outside PyTorch.

    ``data`` is (inputs, labels) or (inputs, labels, background), inputs preprocessed for the network; or a Dataset or
    DataLoader. ``target``: the true class, the predicted class, or the index of an output for every example. ``engine``:
    where the Shapley values are computed; it needs a folder ``cache``.
    """
    if engine is not None and cache is None:
        raise InputError("engine: needs cache=, a folder for the Shapley values")
    selection = _Selection(examples, target, background, settings or BiasSettings(), device)
    source = _NetworkSource(network, UserData.checked(*with_background(data)), selection)
    with nullcontext() if engine is None else fixed_threads(engine.threads):
        folder = None if cache is None else Cache(cache)
        return _measure(source.explained(), source, subject, folder, progress, engine)


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
