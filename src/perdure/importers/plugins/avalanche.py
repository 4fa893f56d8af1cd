"""A plug-in for strategies of avalanche: records checkpoints, accuracies and costs after each experience."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from avalanche.benchmarks.utils import AvalancheDataset
from avalanche.core import SupervisedPlugin
from avalanche.models import avalanche_forward
from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.plugins.clock import Clock
from avalanche.training.storage_policy import ExemplarsBuffer
from avalanche.training.templates.base_sgd import PeriodicEval
from avalanche.training.utils import ParamData

from perdure.base.errors import InputError
from perdure.importers.plugins.step_recorder import StepRecorder
from perdure.importers.plugins.training_cost import BatchMeter, pass_cost

_ADVICE = "Call strategy.eval(benchmark.test_stream) after each strategy.train(experience)."
_DEEPEST = 8  # levels of attributes that are searched for stored tensors


class RecordPlugin(SupervisedPlugin):
    """Writes the record of a strategy. A task of the record is an experience of the benchmark.

    ::

        plugin = RecordPlugin("runs/naive", benchmark, learner="naive")
        strategy = Naive(model=model, optimizer=optimizer, plugins=[plugin])
        for experience in benchmark.train_stream:
            strategy.train(experience)
            strategy.eval(benchmark.test_stream)

    Accuracies are those of ``strategy.eval`` on the experiences of ``stream``; evaluations within ``strategy.train``
    (``eval_every``) are recorded as evaluations within the step. With ``costs``, the first batch of each experience is measured
    with torch's flop counter, and the memory of the other plug-ins is counted: examples in buffers, numbers kept per
    parameter, old networks. What cannot be counted is left empty. Further options are those of `perdure.Recorder`, among them
    the name of the ``benchmark``.
    """

    def __init__(
        self, path: str | Path, benchmark: Any, /, *, stream: str = "test", costs: bool = True, **options: Any
    ) -> None:
        super().__init__()
        trained, tested = list(benchmark.train_stream), list(benchmark.streams[stream])
        if len(trained) != len(tested):
            raise InputError(
                f"benchmark: expected one experience of the stream {stream!r} per training experience, got {len(tested)} and "
                f"{len(trained)}."
            )
        self._example_bits = _example_bits(trained[0].dataset)
        lifetime = sum(len(experience.dataset) for experience in trained)
        if self._example_bits is not None:
            options.setdefault("lifetime_bits", lifetime * self._example_bits)
        options.setdefault("test_examples", [len(experience.dataset) for experience in tested])
        self._steps = StepRecorder(path, len(tested), _ADVICE, **options)
        self.recorder = self._steps.recorder
        self._stream, self._costs = stream, costs
        self._meter = BatchMeter()
        self._counts: dict[int, list[int]] = {}
        self._begin_step()

    def _begin_step(self) -> None:
        self._batches = self._examples = 0
        self._pass_per_example: float | None = None
        self._batch_per_example: float | None = None
        self._carried: dict[str, int | None] = {}

    def before_training_exp(self, strategy: Any, *_args: Any, **_kwargs: Any) -> None:
        """Start a step."""
        self._steps.begin_training(strategy.model, _experience_index(strategy))
        self._begin_step()
        if self._costs:
            self._carried = self._stored(strategy)

    def before_training_iteration(self, strategy: Any, *_args: Any, **_kwargs: Any) -> None:
        """Measure the cost of the first batch of the experience."""
        if self._costs and self._batches == 0:
            x = strategy.mb_x[:2]
            labels = strategy.mb_task_id[:2] if hasattr(strategy.experience, "task_labels") else None
            self._pass_per_example = pass_cost(strategy.model, lambda net: avalanche_forward(net, x, labels)) / len(x)
            self._meter.start()

    def after_training_iteration(self, strategy: Any, *_args: Any, **_kwargs: Any) -> None:
        """Count batches and examples."""
        cost = self._meter.stop()
        if cost is not None:
            self._batch_per_example = cost / len(strategy.mb_x)
        self._batches += 1
        self._examples += len(strategy.mb_x)

    def after_training_exp(self, strategy: Any, *_args: Any, **_kwargs: Any) -> None:
        """End the training of a step."""
        cost = dict(self._carried)
        if self._batch_per_example is not None and self._pass_per_example is not None:
            size = len(strategy.experience.logging().dataset)
            cost["operations"] = round(self._batch_per_example * self._examples)
            cost["passes"] = round(self._pass_per_example * size)
        self._steps.end_training(cost)

    def before_eval(self, _strategy: Any, *_args: Any, **_kwargs: Any) -> None:
        """Start an evaluation."""
        self._counts = {}

    def after_eval_iteration(self, strategy: Any, *_args: Any, **_kwargs: Any) -> None:
        """Count correct decisions."""
        if strategy.experience.logging().origin_stream.name != self._stream:
            return
        labels = strategy.mb_y if strategy.mb_y.ndim == 1 else strategy.mb_y.argmax(1)
        counts = self._counts.setdefault(_experience_index(strategy), [0, 0])
        counts[0] += int((strategy.mb_output.argmax(1) == labels).sum())
        counts[1] += len(labels)

    def after_eval(self, strategy: Any, *_args: Any, **_kwargs: Any) -> None:
        """Record the accuracies."""
        accuracies = {task: correct / count for task, (correct, count) in self._counts.items()}
        self._steps.add_accuracies(accuracies, strategy.model, self._batches)

    def _stored(self, strategy: Any) -> dict[str, int | None]:
        """Return what the strategy carries over from earlier experiences: examples, numbers per parameter, old networks."""
        totals = {"examples": 0, "kept": 0, "teachers": 0, "unknown": 0}
        ignored = (EvaluationPlugin, PeriodicEval, Clock, RecordPlugin)
        visited = {id(strategy), id(strategy.model)}
        for plugin in strategy.plugins:
            if not isinstance(plugin, ignored):
                _count_stored(vars(plugin), totals, visited)
        unknown = totals["unknown"] > 0
        bits = None if unknown or self._example_bits is None else totals["examples"] * self._example_bits
        return {"memory_bits": bits, "kept": None if unknown else totals["kept"], "teachers": totals["teachers"]}


def _experience_index(strategy: Any) -> int:
    """Return the index of the current experience, which avalanche hides from strategies but not from loggers."""
    return int(strategy.experience.logging().current_experience)


def _example_bits(dataset: Any) -> int | None:
    """Return the size of one input and its label in bits; None if the input is not a tensor."""
    x = dataset[0][0]
    return int(x.numel() * x.element_size() * 8 + 64) if hasattr(x, "numel") else None


def _count_stored(value: Any, totals: dict[str, int], visited: set[int], depth: int = 0) -> None:
    """Add what a plug-in stores to ``totals``. Tensors whose purpose is not known count as unknown."""
    if id(value) in visited or depth > _DEEPEST:
        return
    visited.add(id(value))
    if isinstance(value, ExemplarsBuffer):
        totals["examples"] += len(value.buffer)
    elif isinstance(value, AvalancheDataset):
        totals["examples"] += len(value)
    elif isinstance(value, ParamData):
        totals["kept"] += value.data.numel()
    elif hasattr(value, "state_dict") and hasattr(value, "parameters"):
        totals["teachers"] += sum(parameter.numel() for parameter in value.parameters())
    elif hasattr(value, "numel"):
        totals["unknown"] += value.numel() > 1  # single numbers are settings
    elif isinstance(value, Mapping):
        for item in value.values():
            _count_stored(item, totals, visited, depth + 1)
    elif isinstance(value, list | tuple | set):
        for item in value:
            _count_stored(item, totals, visited, depth + 1)
    elif type(value).__module__.startswith("avalanche.training") and hasattr(value, "__dict__"):
        _count_stored(vars(value), totals, visited, depth + 1)
