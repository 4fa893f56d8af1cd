"""Does the learner still decide for the same reasons? SHAPC over the checkpoints of a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from perdure import explain
from perdure.audits.shapc.allocation import Counts, Decision, decide_counts, first_counts, task_costs
from perdure.audits.shapc.reference import reference_run
from perdure.audits.shapc.results import RetrainingReference, ShapcResult
from perdure.audits.shapc.scores import (
    compute_reference_scores,
    compute_scores,
    describe_scores_budget,
    running_mean_score,
)
from perdure.audits.shapc.values import (
    AUTO,
    LEAST_BIASED,
    UNIT,
    ShapcSettings,
    ShapcValues,
    TaskValues,
    shapc_value_names,
    untrained_value_names,
)
from perdure.base.errors import InputError
from perdure.explain import get_explainer
from perdure.explain.adapters.adapted import Adapted, function_model
from perdure.explain.adapters.inputs import Tokens
from perdure.explain.adapters.views import input_view
from perdure.explain.shapley.players import players_of
from perdure.metrics import Interval
from perdure.metrics.shapc import Zeros, shapc_at_shares
from perdure.runs.cache import Cache
from perdure.runs.data import Rows, balanced_data_order, check_regression_outputs
from perdure.runs.display import displayed_inputs
from perdure.runs.loaded_run import (
    LoadedRun,
    copy_run_head,
    describe_run_score,
    load_run,
    run_network_device,
    run_predictions,
)
from perdure.runs.networks import NetworkSource
from perdure.runs.untrained import UntrainedNetworks

KIND = "shapc"
VERSION = 3
"""Increases when values are computed differently, so that stored ones are not reused."""
EXAMPLES = 40
"""Test examples per task, unless a number or a precision is given."""
EXACT_PLAYERS = 10
"""Up to this number of players, models without gradients get exact Shapley values: 1024 evaluations per map."""


class ShapcProgress(Protocol):
    """A callback for a progress bar: finished units, their number, and SHAPC-Mean so far."""

    def __call__(self, done: int, total: int, estimate: Interval | None) -> None:
        """Update the display."""


def audit_shapc(
    run: str | Path,
    *,
    settings: ShapcSettings | None = None,
    network: NetworkSource | None = None,
    data: Any = None,
    background_data: Any = None,
    examples: int | None = None,
    precision: float | None = None,
    keep_maps: bool = False,
    retrain_reference: bool | str | Path = False,
    data_dir: Path | None = None,
    device: str = "cpu",
    out: str | Path | None = None,
    level: float = 0.95,
    progress: ShapcProgress | None = None,
) -> ShapcResult:
    """Compute SHAPC of every task with every later step of a run, with its references.

    ``run`` is a record with checkpoints, or a folder of checkpoints (safetensors or torch files, one after each task, sorted by
    name) with ``network``, a function that returns the network, and ``data``, (inputs, output units) for each task.
    ``background_data`` are background inputs; by default the task's training examples, or for a user's data its test examples.

    Examples are explained in a seeded order balanced over classes: ``examples`` per task (40), or as many of each task as
    needed until the 95 % interval of the calibrated score is within ``precision`` of its mean (without untrained networks:
    that of SHAPC-Mean). ``examples`` is then the largest number per task. Finished values are stored in ``out`` (by default
    in the run's cache); the same call resumes from there with bit-identical results. ``keep_maps`` also stores the
    attributions.
    ``retrain_reference`` adds the score between this network and one trained from another seed: ``True`` trains it on the
    first task, a path takes the record of another seed. ``level`` is that of the intervals of SHAPC-Mean and of the
    calibrated score.

    Examples
    --------
    >>> from perdure import audits, learners, tasks
    >>> benchmark = tasks.load("split-digits", tasks=2, per_class=30)
    >>> rehearsal, training = learners.get("rehearsal"), learners.Training(epochs=3)
    >>> run = learners.Run(benchmark, rehearsal, training=training)
    >>> _ = learners.execute(run, "runs/rehearsal")
    >>> settings = audits.ShapcSettings(samples=20, untrained=2)
    >>> result = audits.audit_shapc("runs/rehearsal", settings=settings, examples=8)
    >>> 0 < result.mean.mean < 1, result.mean.n
    (True, 8)
    >>> result.floor.mean < result.mean.mean  # more similar than untrained networks
    True
    """
    if precision is not None and not 0 < precision < 1:
        raise InputError(f"precision: expected a number between 0 and 1, got {precision!r}")
    if examples is not None and examples < 2:
        raise InputError(f"examples: expected at least 2 per task, got {examples}")
    opened = open_shapc(run, settings, network, data, background_data, data_dir, device, out)
    loaded, cache, values, untrained = opened.loaded, opened.cache, opened.values, opened.untrained
    limit = examples_limit(examples, precision)
    tasks, stopped = ShapcRunner(loaded, loaded, values, untrained, keep_maps).run(limit, precision, progress)
    reference = None
    if retrain_reference:
        load = run_loader(network, data, background_data, data_dir, device)
        other = reference_run(loaded, retrain_reference, cache.folder / "retrained", load, data_dir, device)
        reference = _compare_seeds(opened, other, limit or EXAMPLES)
    return _result(loaded, values, untrained, tasks, stopped, reference, level)


@dataclass(frozen=True)
class OpenedShapc:
    """A run with the settings of its SHAPC audit, and the values that are stored so far."""

    loaded: LoadedRun
    cache: Cache
    values: ShapcValues
    untrained: UntrainedNetworks


def open_shapc(
    run: str | Path,
    settings: ShapcSettings | None,
    network: NetworkSource | None,
    data: Any,
    background_data: Any,
    data_dir: Path | None,
    device: str,
    out: str | Path | None,
) -> OpenedShapc:
    """Load a run and find the values of its audit; the arguments are those of `audit_shapc`."""
    loaded = load_run(run, network, data, background_data, data_dir, device, sequence=True)
    chosen = checked_settings(settings or ShapcSettings(method=AUTO), loaded)
    cache = loaded.cache if out is None else Cache(Path(out))
    later = {tau: tuple(range(tau + 1, len(loaded.curriculum))) for tau in loaded.first_visits()}
    key = {
        "version": VERSION,
        "settings": settings_to_json(chosen),
        "checkpoints": loaded.digests,
        "data": loaded.data.fingerprint,
        **loaded.identity,
    }
    values = ShapcValues.open(cache.entry(KIND, key).folder, chosen, later)
    return OpenedShapc(loaded, cache, values, UntrainedNetworks(loaded, chosen.untrained, chosen.seed))


def examples_limit(examples: int | None, precision: float | None) -> int | None:
    """Return the number of examples per task; None for as many as the precision needs."""
    return examples if examples is not None or precision is not None else EXAMPLES


def torch_threads() -> int:
    """Return the number of threads of torch; it affects the last bits of results."""
    return torch.get_num_threads()


def chosen_method(run: LoadedRun) -> str:
    """Return the method for a run: expected gradients, or Shapley values for models without gradients."""
    network = run.network(run.last_step())
    if not isinstance(network, Adapted) or (function_model(network) is None and not isinstance(network.inputs, Tokens)):
        return "expected_gradients"
    view = input_view(run.described(network), run.data.inputs(0, np.arange(1)), None, None)
    if function_model(network) is None and view.model is not network:
        return "expected_gradients"  # token ids with an embedding layer, or another layout
    players = view.players or players_of(None, view.x[0])
    return "exact_shapley" if players.count <= EXACT_PLAYERS else "shapley"


def checked_settings(settings: ShapcSettings, run: LoadedRun) -> ShapcSettings:
    """Check the method, its options and what is explained."""
    if settings.method == LEAST_BIASED:
        raise InputError(
            f"method {LEAST_BIASED}: only an audit of records can choose the explainer; pass the name of an explainer"
        )
    target = settings.target
    where = f"{run.path}: " if run.path != Path() else ""
    if run.data.kind != "classes" and isinstance(target, str):
        if run.data.kind == "multi-label" or target == "predicted":
            raise InputError(
                f"{where}{run.data.kind} data have no single true or predicted class; pass target= the output to explain",
                cli=f"{where}{run.data.kind} data have no single true or predicted class; pass --target and the number of "
                "the output to explain",
            )
        x = run.data.inputs(0, np.arange(1))
        network = run.network(run.last_step())
        check_regression_outputs(run.data.kind, network(x.to(run_network_device(network))).shape[1], str(run.path))
        target = 0
    method = chosen_method(run) if settings.method == AUTO else settings.method
    options = get_explainer(method).parsed_options(settings.options)
    return replace(settings, method=method, target=target, options=options)


def settings_to_json(settings: ShapcSettings) -> dict[str, Any]:
    """Return settings as JSON returns them."""
    plain: dict[str, Any] = json.loads(json.dumps(asdict(settings)))
    return plain


def run_loader(
    network: NetworkSource | None, data: Any, background_data: Any, data_dir: Path | None, device: str
) -> Callable[[Path], LoadedRun]:
    """Return a function that loads another run with the same network and data."""
    return lambda path: load_run(path, network, data, background_data, data_dir, device, sequence=True)


class ShapcRunner:
    """Explains units of examples under one network after the other and stores only their values."""

    def __init__(
        self,
        run: LoadedRun,
        other: LoadedRun,
        values: ShapcValues,
        untrained: UntrainedNetworks,
        keep_maps: bool = False,
        floors: ShapcValues | None = None,
    ) -> None:
        self.loaded, self.other, self.values, self.keep_maps = run, other, values, keep_maps
        self.untrained, self.floors = untrained, floors
        self.settings = values.settings
        self.orders = {
            tau: balanced_data_order(run.data.labels(run.curriculum[tau]), self.settings.seed, run.curriculum[tau])
            for tau in values.later_steps
        }

    def run(
        self, limit: int | None, precision: float | None, progress: ShapcProgress | None = None
    ) -> tuple[dict[int, TaskValues], str]:
        """Explain examples until there are enough; return their values and why it stopped."""
        wanted = self.wanted(limit)
        everything = "all test examples" if wanted == self.wanted(None) else f"{wanted} examples per task"
        try:
            if precision is not None:
                tasks, stopped = self._run_to_precision(limit, precision, progress)
                return tasks, stopped or everything
            rounds = -(-wanted // UNIT)
            tasks = {}
            for number in range(rounds):
                units = [(tau, number * UNIT) for tau in self.orders]
                self._explain(units, number * len(units), rounds * len(units), progress)
                tasks = self.first(dict.fromkeys(self.orders, min((number + 1) * UNIT, wanted)))
                if progress is not None:
                    estimate = running_mean_score(tasks, len(self.loaded.curriculum), self.settings.seed)
                    progress((number + 1) * len(self.orders), rounds * len(self.orders), estimate)
        finally:
            self.values.save()
        return tasks, everything

    def _run_to_precision(
        self, limit: int | None, precision: float, progress: ShapcProgress | None
    ) -> tuple[dict[int, TaskValues], str]:
        """Explain as many examples of each task as the precision needs; an empty text means that all are used."""
        counts = first_counts(self.available(limit))
        while True:
            units = self.units_of(counts)
            self._explain(units, 0, len(units), progress)
            tasks = self.first(counts)
            if progress is not None:
                estimate = running_mean_score(tasks, len(self.loaded.curriculum), self.settings.seed)
                progress(len(units), len(units), estimate)
            decision = self.decide(counts, limit, precision)
            if decision.counts is None:
                return tasks, decision.stopped
            counts = decision.counts

    def available(self, limit: int | None) -> dict[int, int]:
        """Return the number of examples of each task that may be explained."""
        return {tau: len(order) if limit is None else min(limit, len(order)) for tau, order in self.orders.items()}

    def decide(self, counts: Counts, limit: int | None, precision: float) -> Decision:
        """Return whether the stored values of some examples have a precision, and how many more it needs if not."""
        costs = task_costs(self.settings, self.values.later_steps)
        steps = len(self.loaded.curriculum)
        return decide_counts(self.first(counts), steps, self.settings, costs, self.available(limit), precision)

    @staticmethod
    def units_of(counts: Counts) -> list[tuple[int, int]]:
        """Return the units with some examples of each task, in the order in which they are explained."""
        units = [(start, tau) for tau, count in counts.items() for start in range(0, count, UNIT)]
        return [(tau, start) for start, tau in sorted(units)]

    def wanted(self, limit: int | None) -> int:
        """Return the number of examples per task; None means all."""
        most = max(len(order) for order in self.orders.values())
        return most if limit is None else min(limit, most)

    def first(self, counts: Counts) -> dict[int, TaskValues]:
        """Return the values of the first examples of each task."""
        return {tau: values.first(counts[tau]) for tau, values in self.values.tasks.items()}

    def is_missing(self, tau: int, start: int) -> bool:
        """Return whether the values of a unit are not stored yet: the step tau, and the rank of its first example."""
        rows = self.orders[tau][start : start + UNIT]
        done = len(self.values.tasks[tau]) >= start + len(rows) or self.values.has_part(tau, start)
        return len(rows) > 0 and (not done or (self.keep_maps and not self.values.has_maps(tau, start)))

    def explain_unit(self, tau: int, start: int) -> None:
        """Explain a unit of examples and store its values."""
        rows = self.orders[tau][start : start + UNIT]
        self.values.save_part(tau, start, self._unit(tau, rows, start))

    def _explain(self, units: Sequence[tuple[int, int]], done: int, total: int, progress: ShapcProgress | None) -> None:
        """Explain some units, unless an earlier call has done it; ``done`` of ``total`` units come before them."""
        for number, (tau, start) in enumerate(units, start=done + 1):
            if self.is_missing(tau, start):
                self.explain_unit(tau, start)
            if progress is not None:
                progress(number, total, None)
        if not self._has_read(units):
            self.values.update_parts()
        if not self._has_read(units):  # another process has moved the parts to the table
            self.values.update()

    def _has_read(self, units: Sequence[tuple[int, int]]) -> bool:
        """Return whether the values of some units are in memory."""
        return all(
            len(self.values.tasks[tau]) >= min(start + UNIT, len(self.orders[tau])) or start >= len(self.orders[tau])
            for tau, start in units
        )

    def _unit(self, tau: int, rows: Rows, first: int) -> TaskValues:
        """Explain some examples of a task under its own network and each later one, one network at a time."""
        task, later = self.loaded.curriculum[tau], self.values.later_steps[tau]
        unit = TaskValues.blank(len(rows), len(later), shapc_value_names(self.settings))
        unit.example[:], unit.label[:] = rows, self.loaded.data.labels(task)[rows]
        before, unit.predicted[:, 0] = self._explained(self.loaded, tau, tau, rows)
        maps = {tau: before}
        for column, step in enumerate(later):
            after, unit.predicted[:, 1 + column] = self._explained(self.other, step, tau, rows)
            for name, values in pair_values(before, after, self.settings).items():
                unit.values[name][:, column] = values
            if self.keep_maps:
                maps[step] = after
        for index, values in enumerate(self._floor(tau, rows, first, before)):
            unit.values[untrained_value_names(self.settings)[index]][:] = values[:, None]
        if self.keep_maps:
            self._store_maps(tau, first, task, unit, maps)
        return unit

    def _floor(self, tau: int, rows: Rows, first: int, before: Halves) -> list[Any]:
        """Return the consistency with each untrained network; values that another audit has computed are reused."""
        known = None if self.floors is None else self.floors.tasks.get(tau)
        if known is not None and np.array_equal(known.example[first : first + len(rows)], rows):
            stored = (known.values[name][first : first + len(rows), 0] for name in untrained_value_names(self.settings))
            return list(stored)
        settings = self.settings.for_floor()
        if settings != self.settings and self.untrained.networks:
            before = self._maps(self.loaded, self.loaded.network(tau), tau, tau, rows, settings)[0]
        return [
            limit_of_pair_values(before, self._maps(self.loaded, network, tau, tau, rows, settings)[0], settings)
            for network in self.untrained.networks
        ]

    def _explained(self, run: LoadedRun, step: int, tau: int, rows: Rows) -> tuple[Halves, Any]:
        """Return the maps of some examples of step tau after a step, and the decisions for them."""
        return self._maps(run, run.network(step), step, tau, rows)

    def _maps(
        self,
        run: LoadedRun,
        network: nn.Module,
        step: int,
        tau: int,
        rows: Rows,
        settings: ShapcSettings | None = None,
    ) -> tuple[Halves, Any]:
        """Return the maps of some examples of step tau under a network with the rule of a step, and its decisions."""
        task, settings = self.loaded.curriculum[tau], settings or self.settings
        rule = network if run.decides_by == "logits" else run.with_rule(network, step)
        x = run.data.inputs(task, rows).to(run_network_device(network))
        background = run.data.background(task, settings.background, settings.seed).to(x.device)
        decided = self._decisions(run, rule, x, step, task)
        target = {"label": run.data.labels(task)[rows], "predicted": decided}.get(str(settings.target), settings.target)
        if settings.head == "first":
            copy_run_head(network, self.loaded.network(tau))
        explained = run.described(rule if settings.score == "decision" else network)
        try:
            return halves_for_pair_values(explained, x, target, background, settings), decided
        except InputError as error:
            raise InputError(f"{run.path}: after step {step + 1}, task {task + 1}: {error}") from None

    @staticmethod
    def _decisions(run: LoadedRun, rule: nn.Module, x: Tensor, step: int, task: int) -> NDArray[np.int64]:
        """Return the predicted classes; -1 for a model that does not choose among classes."""
        if run.data.kind != "classes":
            return np.full(len(x), -1)
        return run_predictions(rule, x, run.candidates(step, task))

    def _store_maps(self, tau: int, first: int, task: int, unit: TaskValues, maps: dict[int, Halves]) -> None:
        tensors = {
            "sample": torch.as_tensor(unit.example),
            "label": torch.as_tensor(unit.label),
            "predicted": torch.as_tensor(unit.predicted),
        }
        tensors |= self._displayed(task, unit.example)
        is_series = self.loaded.data.inputs(task, unit.example[:1]).dim() == 3
        for step, halves in maps.items():
            for half, array in zip("AB", halves, strict=True):
                # A copy: both halves of a deterministic explainer are the same array, and safetensors refuses shared memory.
                stored = np.swapaxes(array, 1, 2) if is_series else array  # one row per channel
                tensors[f"after-{step + 1:02d}.{half}"] = torch.tensor(stored, dtype=torch.float32)
        self.values.save_maps(tau, first, tensors)

    def _displayed(self, task: int, rows: Rows) -> dict[str, Tensor]:
        """Return what a viewer shows of the examples: pictures, or the names of words or features as JSON text."""
        data = self.loaded.data
        images = data.images(task, rows)
        inputs = data.inputs(task, rows)
        if images is None and inputs.dim() == 3:
            network = self.loaded.described(self.loaded.network(self.loaded.last_step()))
            images = series_pictures(input_view(network, inputs, None, None).x.cpu().numpy())
            return {"pictures": torch.as_tensor(images), "names": _json_tensor({"kind": "series", "names": []})}
        if images is not None:
            return {"pictures": torch.as_tensor(images)}
        displayed = displayed_inputs(self.loaded.inputs, data.form, inputs.cpu().numpy())
        if displayed is None:
            return {}
        return {"names": _json_tensor({"kind": displayed.kind, "names": displayed.names})}


def _json_tensor(value: Any) -> Tensor:
    """Return a JSON value as the bytes of its text, for a file of tensors."""
    return torch.tensor(list(json.dumps(value).encode()), dtype=torch.uint8)


def series_pictures(x: NDArray[Any]) -> NDArray[np.uint8]:
    """Return series, (n, channels, time), as gray pictures with one row per channel."""
    low, high = x.min(axis=(0, 2), keepdims=True), x.max(axis=(0, 2), keepdims=True)
    scaled: NDArray[np.uint8] = ((x - low) * (255 / np.maximum(high - low, 1e-12))).astype(np.uint8)[:, None]
    return scaled


def reference_runner(opened: OpenedShapc, other: LoadedRun) -> ShapcRunner:
    """Return the runner that compares the networks of two seeds, each after the step that trained the task."""
    run, settings = opened.loaded, opened.values.settings
    steps = tuple(tau for tau in run.first_visits() if tau < len(other.curriculum))
    key = {
        "version": VERSION,
        "settings": settings_to_json(settings),
        "checkpoints": run.digests,
        "against": other.digests,
        "data": run.data.fingerprint,
        **run.identity,
    }
    entry = opened.cache.entry(f"{KIND}-reference", key)
    values = ShapcValues.open(entry.folder, settings, {tau: (tau,) for tau in steps})
    return ShapcRunner(run, other, values, opened.untrained, floors=opened.values)


def _compare_seeds(opened: OpenedShapc, other: LoadedRun, limit: int) -> RetrainingReference:
    """Compare the networks of two seeds."""
    run, settings = opened.loaded, opened.values.settings
    runner = reference_runner(opened, other)
    tasks, _ = runner.run(limit, None)
    reason = _reason_without_floor(tasks, settings, opened.untrained)
    mean, calibrated = compute_reference_scores(tasks, len(run.curriculum), settings, reason)
    return RetrainingReference(mean, calibrated, (str(run.path), str(other.path)), tuple(runner.values.later_steps))


def _reason_without_floor(tasks: dict[int, TaskValues], settings: ShapcSettings, untrained: UntrainedNetworks) -> str:
    """Return why there are no values of untrained networks; empty if there are some, without making the networks."""
    names = untrained_value_names(settings)
    known = any(np.isfinite(task.values[name]).any() for task in tasks.values() for name in names)
    return "" if known else untrained.reason


def _result(
    run: LoadedRun,
    values: ShapcValues,
    untrained: UntrainedNetworks,
    tasks: dict[int, TaskValues],
    stopped: str,
    reference: RetrainingReference | None,
    level: float,
) -> ShapcResult:
    settings = values.settings
    reason = _reason_without_floor(tasks, settings, untrained)
    scores = compute_scores(tasks, len(run.curriculum), settings, reason, level)
    budget, sufficient = describe_scores_budget(scores, settings.stochastic, settings.samples)
    return ShapcResult(
        run=str(run.path),
        learner=run.learner,
        benchmark=run.benchmark,
        seed=run.seed,
        tasks=run.tasks,
        curriculum=run.curriculum,
        settings={**settings_to_json(settings), "explained": _describe_explained(run, settings)},
        mean=scores.mean,
        var=scores.var,
        calibrated=scores.calibrated,
        floor=scores.floor,
        ratio=scores.ratio,
        matrices=scores.matrices,
        sensitivity=scores.sensitivity,
        outcomes=scores.outcomes,
        budget=budget,
        budget_is_enough=sufficient,
        stopped=stopped,
        table={tau: task.values["shapc"] for tau, task in tasks.items()},
        examples={tau: task.example for tau, task in tasks.items()},
        folder=str(values.folder),
        retraining=reference,
        calibrated_table=scores.contributions,
    )


def _describe_explained(run: LoadedRun, settings: ShapcSettings) -> str:
    names = {"label": "the true class", "predicted": "the class each network predicts"}
    target = names[settings.target] if isinstance(settings.target, str) else f"output {settings.target + 1}"
    text = describe_run_score(target, settings.score, run.decides_by)
    return f"{text}, with the head of the step that trained the task" if settings.head == "first" else text


FloatArray = NDArray[np.float64]
Halves = tuple[NDArray[Any], NDArray[Any]]


def halves_for_pair_values(
    network: nn.Module, x: Tensor, target: Any, background: Tensor, settings: ShapcSettings
) -> Halves:
    """Return the maps of both halves of the budget: (n, channels, height, width), (n, features) or (n, tokens)."""
    half = settings.samples // 2 if settings.stochastic else settings.samples
    maps = explain.attribute_for_seeds(
        network,
        x,
        target,
        [2 * settings.seed + index for index in range(2 if settings.stochastic else 1)],
        method=settings.method,
        background=background,
        samples=half,
        layer=settings.layer,
        reduce="comparable",
        batch_size=settings.batch_size,
        options=settings.options,
    )
    arrays = [_as_images(tensor.detach().cpu().numpy()) for tensor in maps]
    return arrays[0], arrays[-1]


def _as_images(maps: NDArray[Any]) -> NDArray[Any]:
    """Return maps of signals, (n, channels, length), as images of one row; other maps unchanged."""
    return maps[:, :, None, :] if maps.ndim == 3 else maps


def pair_values(before: Halves, after: Halves, settings: ShapcSettings) -> dict[str, FloatArray]:
    """Return every quantity for each example, and ``shapc`` at each share of the sensitivity table as ``shapc@0.1``."""
    same = _same_halves(before, after, settings.all_shares, settings)
    values = {
        "shapc": same[:, 0],
        "independent": _crossed(before, after, settings),
        "ceiling": (_ceiling(before, settings) + _ceiling(after, settings)) / 2,
        "doubled": _doubled(before, after, settings),
        "limit": limit_of_pair_values(before, after, settings),
    }
    return values | {f"shapc@{share:g}": same[:, index] for index, share in enumerate(settings.all_shares)}


def limit_of_pair_values(before: Halves, after: Halves, settings: ShapcSettings) -> FloatArray:
    """Return the consistency of each example without sampling noise, extrapolated from two budgets."""
    same = _same_halves(before, after, (settings.top,), settings, "drop")[:, 0]
    return 2 * _doubled(before, after, settings, "drop") - same


def _same_halves(
    before: Halves, after: Halves, shares: tuple[float, ...], settings: ShapcSettings, zeros: Zeros = "keep"
) -> FloatArray:
    """Return the mean consistency of A with A and of B with B."""
    halves = [_consistency(first, second, shares, settings, zeros) for first, second in zip(before, after, strict=True)]
    return (halves[0] + halves[1]) / 2


def _doubled(before: Halves, after: Halves, settings: ShapcSettings, zeros: Zeros = "keep") -> FloatArray:
    """Return the consistency of the means of both halves."""
    return _consistency(sum(before) / 2, sum(after) / 2, (settings.top,), settings, zeros)[:, 0]


def _ceiling(maps: Halves, settings: ShapcSettings) -> FloatArray:
    """Return the consistency of the two halves of one network."""
    return _consistency(maps[0], maps[1], (settings.top,), settings, "drop")[:, 0]


def _crossed(before: Halves, after: Halves, settings: ShapcSettings) -> FloatArray:
    """Return the mean consistency of A with B and of B with A."""
    forward = _consistency(before[0], after[1], (settings.top,), settings, "drop")[:, 0]
    reverse = _consistency(before[1], after[0], (settings.top,), settings, "drop")[:, 0]
    return (forward + reverse) / 2


def _consistency(
    first: Any, second: Any, shares: tuple[float, ...], settings: ShapcSettings, zeros: Zeros = "keep"
) -> FloatArray:
    if settings.variant == "authors":
        return shapc_at_shares(first, second, shares, channels="sum", normalise="range", zeros=zeros)
    return shapc_at_shares(first, second, shares, zeros=zeros)
