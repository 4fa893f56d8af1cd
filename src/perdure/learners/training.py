"""Training settings that all learners share: epochs, batches, optimizer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

import torch
from torch import nn

from perdure.base.errors import InputError, error_suggestion

Optimizer = Literal["sgd", "adam", "adagrad"]
Amp = Literal["off", "bfloat16", "float16"]


@dataclass(frozen=True)
class Training:
    """How the network is trained on each task. A new optimizer is created for every task.

    ``milestones``: epochs after which the learning rate is multiplied by ``decay``. ``patience``: stop a task when its
    validation accuracy has not increased for this many epochs and restore the best weights; 0 trains all epochs.
    ``evaluate_every``: evaluate all tasks after every this many batches within a task (for the stability-gap measures);
    0 evaluates only after each task. ``amp``: automatic mixed precision; the losses of training batches are computed in this
    type where PyTorch considers it safe. Parameters, importances, checkpoints, evaluations and explanations stay in single
    precision.
    """

    epochs: int = 10
    batch_size: int = 32
    lr: float = 0.03
    optimizer: Optimizer = "sgd"
    momentum: float = 0.0
    weight_decay: float = 0.0
    milestones: tuple[int, ...] = ()
    decay: float = 0.1
    patience: int = 0
    evaluate_every: int = 0
    amp: Amp = "off"

    def __post_init__(self) -> None:
        for name, minimum in (("epochs", 1), ("batch_size", 1), ("patience", 0), ("evaluate_every", 0)):
            if getattr(self, name) < minimum:
                raise InputError(f"{name}: expected at least {minimum}, got {getattr(self, name)}")
        for name in ("lr", "decay"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name}: expected a positive number, got {getattr(self, name)}")
        for name in ("momentum", "weight_decay"):
            if not getattr(self, name) >= 0:
                raise InputError(f"{name}: expected a number of at least 0, got {getattr(self, name)}")
        for name, choices in (("optimizer", get_args(Optimizer)), ("amp", get_args(Amp))):
            value = getattr(self, name)
            if value not in choices:
                raise InputError(f"{name}: unknown name {value!r}; {error_suggestion(str(value), list(choices))}")
        if self.momentum and self.optimizer != "sgd":
            raise InputError(
                f"momentum: expected 0 with {self.optimizer}, got {self.momentum}; momentum is an option of sgd"
            )

    def make_optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """Return a new optimizer for the parameters."""
        trained = list(parameters)
        if self.optimizer == "adam":
            return torch.optim.Adam(trained, lr=self.lr, weight_decay=self.weight_decay)
        if self.optimizer == "adagrad":
            return torch.optim.Adagrad(trained, lr=self.lr, weight_decay=self.weight_decay)
        return torch.optim.SGD(trained, lr=self.lr, momentum=self.momentum, weight_decay=self.weight_decay)

    @property
    def adaptive(self) -> bool:
        """Whether the optimizer divides each parameter's update by the size of its past gradients."""
        return self.optimizer != "sgd"

    def rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch (0-based)."""
        return self.lr * float(self.decay ** sum(epoch >= milestone for milestone in self.milestones))

    def to_json(self) -> dict[str, Any]:
        """Return the settings as plain JSON values."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.amp == "off":
            del values["amp"]  # records without mixed precision stay as earlier versions write them
        return {**values, "milestones": list(self.milestones)}
