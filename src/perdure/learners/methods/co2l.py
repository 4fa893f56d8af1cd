"""Co2L: a representation learned by contrast and kept by distilling relations, then a linear head."""

import copy
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from perdure.base.errors import InputError
from perdure.learners.data import Batch
from perdure.learners.learner import parameters_in
from perdure.learners.parts.contrast import relation_distillation, supervised_contrast
from perdure.learners.parts.memory import Stored, joined, shuffled
from perdure.learners.parts.ranges import above, at_least
from perdure.learners.parts.replay import ClassMemoryLearner
from perdure.learners.parts.views import strong_views
from perdure.nets import features_of, head_of

EMBEDDING = 128
HEAD_BATCH, HEAD_MOMENTUM, HEAD_DECAY, HEAD_MILESTONES = 256, 0.9, 0.2, (0.6, 0.75, 0.9)
"""How the head is trained: the rate falls by HEAD_DECAY after these shares of its epochs."""


class Co2L(ClassMemoryLearner, name="co2l"):
    """Contrastive continual learning (Cha et al. 2021, Eq. 3 to 6).

    Two strong views of the new examples and of as many stored ones go through the network's body and an MLP (d, d, 128)
    to unit length. The loss is the supervised contrast with the new examples as anchors, plus (from the second task on)
    distillation of the similarities that body and MLP before the task give to the same views. Memory: equal random
    shares of the classes met so far.

    After each task the network's linear head is trained anew on the features of un-augmented examples, body frozen, over
    the task and the memory with equal weight for each class: a checkpoint is a classifier like any other, and the heads of two
    checkpoints are unrelated. The published recipe has a cosine rate after ten epochs of warming up and 500 epochs for the
    first task; the rate and the epochs here are the training's. Within a task the head is still the last task's:
    accuracies measured there judge the new body by the old head, so patience is refused.
    """

    @dataclass(frozen=True)
    class Settings:
        """``temperature`` of the contrast; ``student_temperature`` and ``teacher_temperature`` of the relations.

        ``distillation``: weight of the relations. ``buffer``: stored examples. ``head_epochs``, ``head_rate``: training of
        the linear head.
        """

        temperature: float = 0.5
        student_temperature: float = 0.2
        teacher_temperature: float = 0.01
        distillation: float = 1.0
        buffer: int = 500
        head_epochs: int = 100
        head_rate: float = 1.0

        def __post_init__(self) -> None:
            above(self, 0, "temperature", "student_temperature", "teacher_temperature", "buffer")
            above(self, 0, "head_epochs", "head_rate")
            at_least(self, 0, "distillation")

    judged_within_task = False
    search = {"distillation": (0.1, 10.0)}
    published = {"split-cifar10": {"lr": 0.5, "batch_size": 512, "momentum": 0.9, "weight_decay": 1e-4, "epochs": 100}}

    def begin(self) -> None:
        """Begin with an empty memory, a new projection, and without a teacher."""
        super().begin()
        size, found = self.feature_size, self.head().out_features
        if found != self.outputs:
            raise InputError(f"co2l: the network's last linear layer has {found} outputs, expected {self.outputs}")
        self.projection = self.drawn(
            lambda: nn.Sequential(nn.Linear(size, size), nn.ReLU(), nn.Linear(size, EMBEDDING))
        )
        self.context.meter.watch(self.projection, "projection")
        self.teacher: nn.Module | None = None
        self.teacher_projection = self.frozen_projection()

    def trained_parameters(self) -> Iterable[nn.Parameter]:
        """The network's and the projection's."""
        return [*self.net.parameters(), *self.projection.parameters()]

    def before_task(self, step: int, task: int) -> None:  # noqa: ARG002
        """What the representation is now is distilled."""
        self.teacher = self.snapshot() if self.visited else None
        self.teacher_projection = self.frozen_projection()

    def loss(self, batch: Batch) -> Tensor:
        """Return the asymmetric contrast and the distillation of relations, on two views of new and stored examples."""
        settings, past = self.settings, self.memory.draw(batch.size)
        new = Stored(batch.plain_x, batch.y)
        both = new if past is None else joined([new, past])
        x = torch.cat([strong_views(both.raw, self.context.preparation, self.context.generator) for _ in range(2)])
        anchors = (torch.arange(len(both), device=x.device) < batch.size).repeat(2)
        z = embedded(self.net, self.projection, x)
        loss = supervised_contrast(z, both.y.repeat(2), settings.temperature, anchors)
        if self.teacher is None:
            return loss
        with torch.no_grad():
            old = embedded(self.teacher, self.teacher_projection, x)
        relations = relation_distillation(z, old, settings.student_temperature, settings.teacher_temperature)
        return loss + float(settings.distillation) * relations

    def after_task(self, step: int, task: int) -> None:  # noqa: ARG002
        """Train a new head, then keep equal shares of the classes."""
        new, past = self.stored_task(task), self.others(task)
        self.train_head(new if past is None else joined([new, past]))
        for group, own in self.classes_of(task).items():
            self.memory.keep(group, shuffled(own, self.context.generator))

    def train_head(self, examples: Stored) -> None:
        """Train the linear head from zero on the frozen features, each class with the same weight.

        While it is trained the features are centred and scaled to a mean squared length of 1, so that one rate fits any
        network; the head then takes both over. A head without a bias cannot take over the centre, and is trained without.
        """
        settings, generator, own = self.settings, self.context.generator, self.head()
        # A layer apart from the network's, so that its passes are metered alike for any network.
        head = self.drawn(lambda: nn.Linear(own.in_features, own.out_features, own.bias is not None)).to(own.weight)
        self.context.meter.watch(head, "linear head")
        features = self.frozen_features(examples.raw)
        centre = features.mean(dim=0) if head.bias is not None else torch.zeros_like(features[0])
        scale = (features - centre).square().sum(dim=1).mean().sqrt().clamp_min(1e-12)
        features = (features - centre) / scale
        weight = 1 / torch.bincount(examples.y, minlength=self.outputs)[examples.y]
        weight = weight / weight.mean()
        for parameter in head.parameters():
            nn.init.zeros_(parameter)
        optimizer = torch.optim.SGD(head.parameters(), lr=settings.head_rate, momentum=HEAD_MOMENTUM)
        milestones = [round(share * settings.head_epochs) for share in HEAD_MILESTONES]
        schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones, HEAD_DECAY)
        for _ in range(settings.head_epochs):
            for chosen in torch.split(torch.randperm(len(examples), generator=generator), HEAD_BATCH):
                y = examples.y[chosen]
                losses = F.cross_entropy(self.own_outputs(head(features[chosen]), y), y, reduction="none")
                optimizer.zero_grad()
                (weight[chosen] * losses).mean().backward()  # type: ignore[no-untyped-call]
                optimizer.step()
            schedule.step()
        with torch.no_grad():
            own.weight.copy_(head.weight / scale)
            if own.bias is not None:
                own.bias.copy_(head.bias - own.weight @ centre)

    def head(self) -> nn.Linear:
        """Return the network's linear head."""
        was_training = self.net.training
        with self.context.meter.paused(), torch.no_grad():
            found = head_of(self.net.eval(), self.two_blanks())
        self.net.train(was_training)
        return found

    def frozen_projection(self) -> nn.Module:
        """Return a copy of the projection as it is."""
        return copy.deepcopy(self.projection).requires_grad_(False)

    @property
    def kept(self) -> int:
        """The projection, which no checkpoint needs."""
        return parameters_in(self.projection)

    @property
    def teachers(self) -> int:
        """The old network and projection, once there are any."""
        return parameters_in(self.net) + parameters_in(self.projection) if self.visited else 0


def embedded(net: nn.Module, projection: nn.Module, x: Tensor) -> Tensor:
    """Return the unit-length embeddings of network inputs."""
    return F.normalize(projection(features_of(net, x)), dim=1)
