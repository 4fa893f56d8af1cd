"""A callback for Lightning's Trainer: records checkpoints, accuracies and costs of each task."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    from pytorch_lightning.callbacks import Callback

from perdure.base.errors import InputError
from perdure.importers.plugins.step_recorder import StepRecorder
from perdure.importers.plugins.training_cost import BatchMeter
from perdure.record import Recorder

_ADVICE = "Call trainer.test(model, test_loaders), with one loader per task, after each trainer.fit."


class RecordCallback(Callback):
    """Writes the record of a model that ``trainer.fit`` trains on one task after another.

    ::

        callback = RecordCallback("runs/mine", tasks=3, metric="accuracy")
        for task in range(3):
            trainer = Trainer(max_epochs=2, callbacks=[callback])
            trainer.fit(model, train_loaders[task])
            trainer.test(model, test_loaders)  # one loader per task

    Each ``trainer.fit`` is a step. ``metric``: the name under which ``test_step`` logs the accuracy. With ``costs``, the first
    batch of each step is measured with torch's flop counter and multiplied by the number of batches. ``cost`` holds what only
    the method knows: numbers kept per parameter, parameters of old networks (``teachers``), bits of stored examples
    (``memory_bits``). Further options are those of `perdure.Recorder`.
    """

    def __init__(
        self,
        path: str | Path,
        tasks: int | Sequence[str],
        metric: str = "accuracy",
        *,
        costs: bool = True,
        **options: Any,
    ) -> None:
        self.metric = metric
        self.cost: dict[str, int | None] = {"kept": None}
        self._arguments = (path, tasks, _ADVICE)
        self._options = options
        self._costs = costs
        self._meter = BatchMeter()
        self._batches = 0
        self._batch_cost: int | None = None

    @cached_property
    def _steps(self) -> StepRecorder:
        """Created on first use, which only the first of several processes reaches."""
        return StepRecorder(*self._arguments, **self._options)

    @property
    def recorder(self) -> Recorder:
        """The recorder, for ``next_step`` and ``restore`` after a crash."""
        return self._steps.recorder

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Start a step."""
        if trainer.is_global_zero:
            self._steps.begin_training(pl_module)
            self._batches, self._batch_cost = 0, None

    def on_train_batch_start(self, trainer: Any, _module: Any, _batch: Any, _batch_idx: int) -> None:
        """Measure the cost of the first batch."""
        if self._costs and self._batches == 0 and trainer.is_global_zero:
            self._meter.start()

    def on_train_batch_end(self, _trainer: Any, _module: Any, _outputs: Any, _batch: Any, _batch_idx: int) -> None:
        """Count batches."""
        cost = self._meter.stop()
        if cost is not None:
            self._batch_cost = cost
        self._batches += 1

    def on_exception(self, _trainer: Any, _module: Any, _exception: BaseException) -> None:
        """Stop measuring if training fails."""
        self._meter.stop()

    def on_fit_end(self, trainer: Any, _module: Any) -> None:
        """End the training of a step."""
        if not trainer.is_global_zero:
            return
        cost = dict(self.cost)
        if self._batch_cost is not None:
            cost["operations"] = self._batch_cost * self._batches
            cost["passes"] = self._batch_cost * int(trainer.num_training_batches)
        self._steps.end_training(cost)

    def on_test_end(self, trainer: Any, pl_module: Any) -> None:
        """Record the accuracies."""
        if trainer.is_global_zero:
            self._steps.add_accuracies(self._test_accuracies(trainer), pl_module)

    def _test_accuracies(self, trainer: Any) -> dict[int, float]:
        """Return the logged accuracy of each test loader; if there are several, the names contain their indices."""
        loaders = len(trainer.num_test_batches)
        names = [self.metric] if loaders == 1 else [f"{self.metric}/dataloader_idx_{i}" for i in range(loaders)]
        logged = trainer.callback_metrics
        missing = [name for name in names if name not in logged]
        if missing:
            known = ", ".join(sorted(logged)) or "nothing"
            raise InputError(f"metric {self.metric!r}: test_step did not log {missing[0]!r}; it logged {known}.")
        return {task: float(logged[name]) for task, name in enumerate(names)}
