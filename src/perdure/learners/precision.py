"""Automatic mixed precision of training batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from perdure.learners.training import Amp

_TYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


class MixedPrecision:
    """Computes losses in a smaller type, and scales those in half precision so that small gradients do not become zero."""

    def __init__(self, amp: Amp, device: torch.device) -> None:
        self.amp, self.device = amp, device
        self.scaler = torch.amp.GradScaler(device.type, enabled=amp == "float16")

    def autocast(self) -> AbstractContextManager[Any]:
        """Return the context in which a loss is computed."""
        if self.amp == "off":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=_TYPES[self.amp])

    def backward(self, loss: Tensor, optimizers: Iterable[torch.optim.Optimizer]) -> bool:
        """Compute the gradients of a loss; return whether they are finite, so that the parameters can be updated.

        With half precision the gradients of the optimizers' parameters are divided by the scale of the loss. If one of them is
        not finite, the scale is too large: it decreases, and the batch is left out.
        """
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        if self.amp != "float16":
            return True
        parameters: list[nn.Parameter] = []
        for optimizer in optimizers:
            self.scaler.unscale_(optimizer)
            parameters += [value for group in optimizer.param_groups for value in group["params"]]
        gradients = [value.grad for value in parameters if value.grad is not None]
        is_finite = all(bool(torch.isfinite(gradient).all()) for gradient in gradients)
        self.scaler.update()
        return is_finite

    def state(self) -> dict[str, Any]:
        """Return the scale of the loss, to resume a run."""
        return dict(self.scaler.state_dict())

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
        if state:
            self.scaler.load_state_dict(dict(state))
