"""Backward feature projection: the old features must remain a linear map of the new ones."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from perdure.learners.data import Batch
from perdure.learners.learner import learner_parameter_count
from perdure.learners.methods.derpp import DERPlusPlus
from perdure.learners.parts.memory import BalancedReservoir
from perdure.learners.parts.ranges import require_range_above, require_range_at_least
from perdure.learners.parts.replay import ReplayLearner
from perdure.nets import features_and_outputs, features_of

RATE, MOMENTUM = 0.1, 0.9
"""Learning rate and momentum of the projection's SGD."""


class BFP(ReplayLearner, name="bfp"):
    """Backward feature projection (Gu et al. 2023): DER++ and a linear map to old features.

    The loss is that of DER++ + alpha_bfp * mean ||A h_new - h_old|| / sqrt(d) (Eq. 4). h are penultimate features of
    the batch and of a third draw from the memory; h_old are the features of the network before the task, in
    evaluation mode. The linear map A (with a bias) is reinitialized for each task and trained jointly by its own SGD.
    From the second task on, the target logits of stored examples are those of the old network for the same augmented
    view instead of the stored logits. The memory is a class-balanced reservoir.

    Differences from the authors' code: on Permuted and Rotated MNIST it keeps the stored logits as targets; here the old
    network gives them on every benchmark.
    """

    @dataclass(frozen=True)
    class Settings:
        """``alpha``, ``buffer``, ``beta``: as for DER++. ``alpha_bfp``: weight of the feature distance."""

        alpha: float = 0.2
        buffer: int = 500
        beta: float = 0.5
        alpha_bfp: float = 1.0

        def __post_init__(self) -> None:
            require_range_at_least(self, 0, "alpha", "beta", "alpha_bfp")
            require_range_above(self, 0, "buffer")

    search_space = {**DERPlusPlus.search_space, "alpha_bfp": (0.1, 10.0)}
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
    memory: BalancedReservoir

    def begin(self) -> None:
        """Start with an empty memory and a projection, without a teacher."""
        self.memory = BalancedReservoir(self.settings.buffer, self.context.generator)
        self.teacher: nn.Module | None = None
        self.projection = self.make_projection(0)
        self.projection_optimizer = self.make_projection_optimizer()
        self.context.meter.watch(self.projection, "projection")

    def before_task(self, step: int, task: int) -> None:  # noqa: ARG002
        """Use a copy of the current network as the teacher, from the second task on, and reinitialize the projection."""
        self.teacher = self.snapshot() if self.visited else None
        self.projection.load_state_dict(self.make_projection(step).state_dict())
        self.projection_optimizer = self.make_projection_optimizer()

    def loss(self, batch: Batch) -> Tensor:
        """Return the loss of DER++ + alpha_bfp * feature distance, and add the batch to the memory."""
        features, logits = features_and_outputs(self.net, batch.x)
        loss = self.cross_entropy(logits, batch.y)
        replay: Tensor | float = 0.0
        if first := self.memory.draw(batch.size):
            x = self.augment(first)
            student_logits = self.net(x)
            with torch.no_grad():
                target = first.target_logits if self.teacher is None else self.teacher(x)
            replay = self.settings.alpha * F.mse_loss(student_logits, target)
        if second := self.memory.draw(batch.size):
            replay = replay + self.settings.beta * self.cross_entropy(self.net(self.augment(second)), second.y)
        loss = loss + replay
        if self.teacher is not None:
            x = batch.x
            if third := self.memory.draw(batch.size):
                third_x = self.augment(third)
                x = torch.cat([x, third_x])
                features = torch.cat([features, features_and_outputs(self.net, third_x)[0]])
            with torch.no_grad():
                old_features = features_of(self.teacher, x)
            loss = loss + self.settings.alpha_bfp * bfp_feature_distance(self.projection(features), old_features)
        self.memory.add(batch.unaugmented_x, batch.y, logits.detach())
        return loss

    def after_backward(self, batch: Batch) -> None:  # noqa: ARG002
        """Update the projection together with the network."""
        self.projection_optimizer.step()
        self.projection_optimizer.zero_grad()

    @property
    def teacher_parameters(self) -> int:
        """The old network, from the second task on."""
        return learner_parameter_count(self.net) if self.visited else 0

    def make_projection(self, step: int) -> nn.Linear:
        """Return a new linear map of the features."""
        size = self.feature_size
        return self.make_module(lambda: nn.Linear(size, size), step)

    def make_projection_optimizer(self) -> torch.optim.SGD:
        """Return a new optimizer for the projection."""
        return torch.optim.SGD(self.projection.parameters(), lr=RATE, momentum=MOMENTUM)


def bfp_feature_distance(projected: Tensor, old: Tensor) -> Tensor:
    """Return the mean over examples of ||projected - old|| / sqrt(d)."""
    lengths: Tensor = torch.linalg.vector_norm(projected - old, dim=1)
    return lengths.mean() / float(old.shape[1] ** 0.5)
