"""A callback for the Trainer of Hugging Face transformers: records checkpoints, accuracies and costs of each task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from perdure.importers.plugins.step_recorder import StepRecorder
from perdure.record import Recorder

_ADVICE = "Call trainer.evaluate() after each trainer.train(), with eval_dataset={task: dataset, ...}."


class RecordCallback(TrainerCallback):
    """Writes the record of a model that ``trainer.train`` trains on one task after another.

    ::

        callback = RecordCallback("runs/mine", tasks=["news", "reviews"])
        for task in ["news", "reviews"]:
            trainer = Trainer(model, args, train_dataset=train[task], eval_dataset=test, callbacks=[callback],
                              compute_metrics=compute_metrics)  # test: {"news": dataset, "reviews": dataset}
            trainer.train()
            trainer.evaluate()

    Each ``trainer.train`` is a step. ``tasks``: the keys of ``eval_dataset``, in the order of the curriculum. ``metric``: the
    name under which ``compute_metrics`` returns the accuracy. Evaluations within ``trainer.train`` are not recorded. Costs are
    those that the Trainer counts (``total_flos``: two operations per multiply-add). ``cost`` holds what only the method knows:
    numbers kept per parameter, parameters of old networks (``teachers``), bits of stored examples (``memory_bits``). Further
    options are those of `perdure.Recorder`.
    """

    def __init__(self, path: str | Path, tasks: Sequence[str], metric: str = "accuracy", **options: Any) -> None:
        self.metric = metric
        self.cost: dict[str, int | None] = {"kept": None}
        self._tasks = tuple(tasks)
        self._path = path
        self._options = options
        self._flops_before = 0.0
        self._epochs_before = 0.0

    @cached_property
    def _steps(self) -> StepRecorder:
        """Created on first use, which only the first of several processes reaches."""
        return StepRecorder(self._path, self._tasks, _ADVICE, **self._options)

    @property
    def recorder(self) -> Recorder:
        """The recorder, for ``next_step`` and ``restore`` after a crash."""
        return self._steps.recorder

    def on_train_begin(self, _args: Any, state: Any, _control: Any, model: Any = None, **_kwargs: Any) -> None:
        """Start a step."""
        if state.is_world_process_zero:
            self._steps.begin_training(model)
            self._flops_before, self._epochs_before = float(state.total_flos), float(state.epoch or 0)

    def on_train_end(self, _args: Any, state: Any, _control: Any, **_kwargs: Any) -> None:
        """End the training of a step."""
        if not state.is_world_process_zero:
            return
        flops, epochs = float(state.total_flos) - self._flops_before, float(state.epoch or 0) - self._epochs_before
        cost = dict(self.cost)
        if flops > 0 and epochs > 0:
            cost["operations"], cost["passes"] = round(flops / 2), round(flops / 2 / epochs)
        self._steps.end_training(cost)

    def on_evaluate(
        self,
        _args: Any,
        state: Any,
        _control: Any,
        metrics: Mapping[str, float] | None = None,
        model: Any = None,
        **_kwargs: Any,
    ) -> None:
        """Record the accuracies."""
        names = {f"eval_{task}_{self.metric}": index for index, task in enumerate(self._tasks)}
        accuracies = {names[key]: float(value) for key, value in (metrics or {}).items() if key in names}
        if state.is_world_process_zero and not self._steps.is_training:
            self._steps.add_accuracies(accuracies, model)
