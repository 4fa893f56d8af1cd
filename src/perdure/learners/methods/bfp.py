"""Backward feature projection: the old features must stay a linear map of the new ones."""

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from perdure.learners.data import Batch
from perdure.learners.learner import parameters_in
from perdure.learners.methods.derpp import DERPlusPlus
from perdure.learners.parts.memory import BalancedReservoir, Stored
from perdure.learners.parts.ranges import at_least
from perdure.nets import features_and_outputs, features_of

RATE, MOMENTUM = 0.1, 0.9
"""The projection's own SGD."""


class BFP(DERPlusPlus, name="bfp"):
    """Backward feature projection (Gu et al. 2023, Eq. 4): DER++ + alpha_bfp * mean ||A h_new - h_old|| / sqrt(d).

    h are penultimate features, of the batch and of a third draw from the memory; h_old are those of the network before
    the task, in evaluation mode. The linear map A (with a bias) is made anew for each task and trained jointly by an
    SGD of its own. Once there is an old network, the logits that stored examples are pulled to are its own for the same
    view, and no longer the stored ones. The memory is a class-balanced reservoir.
    """

    @dataclass(frozen=True)
    class Settings(DERPlusPlus.Settings):
        """``alpha``, ``beta``, ``buffer``: as in der++. ``alpha_bfp``: weight of the projection's distance."""

        alpha_bfp: float = 1.0

        def __post_init__(self) -> None:
            super().__post_init__()
            at_least(self, 0, "alpha_bfp")

    search = {**DERPlusPlus.search, "alpha_bfp": (0.1, 10.0)}
    published = {
        "split-cifar10": {**DERPlusPlus.published["split-cifar10"], "alpha_bfp": 1.0},
        "split-cifar100": {**DERPlusPlus.published["split-cifar100"], "alpha_bfp": 1.0},
        "split-tiny-imagenet": {
            "lr": 0.1,
            "batch_size": 64,
            "milestones": (35, 60, 75),
            "decay": 0.1,
            "alpha": 0.3,
            "beta": 0.8,
            "alpha_bfp": 1.0,
        },
    }

    def begin(self) -> None:
        """Begin with an empty memory, without an old network, and with a projection."""
        self.memory = BalancedReservoir(self.settings.buffer, self.context.generator)
        self.teacher: nn.Module | None = None
        self.projection = self.made_projection(0)
        self.projection_optimizer = self.made_optimizer()
        self.context.meter.watch(self.projection, "projection")

    def before_task(self, step: int, task: int) -> None:  # noqa: ARG002
        """What the network is now stays comparable; forget the old projection."""
        self.teacher = self.snapshot() if self.visited else None
        self.projection.load_state_dict(self.made_projection(step).state_dict())
        self.projection_optimizer = self.made_optimizer()

    def loss(self, batch: Batch) -> Tensor:
        """Return der++'s loss plus the distance of the projected features; then offer the batch to the memory."""
        features, logits = features_and_outputs(self.net, batch.x)
        loss = self.cross_entropy(logits, batch.y) + self.replayed(batch.size)
        if self.teacher is not None:
            loss = loss + self.settings.alpha_bfp * self.projected(batch, features, self.teacher)
        self.memory.offer(batch.plain_x, batch.y, logits.detach())
        return loss

    def projected(self, batch: Batch, features: Tensor, teacher: nn.Module) -> Tensor:
        """Return the mean distance between old features and projected new ones, of the batch and of a third draw."""
        x = batch.x
        if (past := self.memory.draw(batch.size)) is not None:
            old_x = self.view(past)
            x = torch.cat([x, old_x])
            features = torch.cat([features, features_and_outputs(self.net, old_x)[0]])
        with torch.no_grad():
            old = features_of(teacher, x)
        return distance(self.projection(features), old)

    @torch.no_grad()
    def past_logits(self, past: Stored, x: Tensor) -> Tensor:
        """Return the old network's logits; in the first task there is none, so the stored ones."""
        return super().past_logits(past, x) if self.teacher is None else cast(Tensor, self.teacher(x))

    def after_backward(self, batch: Batch) -> None:  # noqa: ARG002
        """Step the projection along with the network."""
        self.projection_optimizer.step()
        self.projection_optimizer.zero_grad()

    @property
    def teachers(self) -> int:
        """The old network, once there is one."""
        return parameters_in(self.net) if self.visited else 0

    def made_projection(self, step: int) -> nn.Linear:
        """Return a new linear map of the features."""
        size = self.feature_size
        return self.drawn(lambda: nn.Linear(size, size), step)

    def made_optimizer(self) -> torch.optim.SGD:
        """Return the projection's optimiser."""
        return torch.optim.SGD(self.projection.parameters(), lr=RATE, momentum=MOMENTUM)


def distance(projected: Tensor, old: Tensor) -> Tensor:
    """Return the mean over examples of ||projected - old|| / sqrt(d)."""
    lengths: Tensor = torch.linalg.vector_norm(projected - old, dim=1)
    return lengths.mean() / float(old.shape[1] ** 0.5)
