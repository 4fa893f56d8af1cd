"""Co2L: a contrastive representation with distilled relations, and a linear head for each checkpoint."""

import copy
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from perdure.base.errors import InputError
from perdure.learners.data import Batch
from perdure.learners.learner import learner_parameter_count
from perdure.learners.parts.contrast import asymmetric_contrastive_loss, relation_distillation
from perdure.learners.parts.memory import StoredExamples, concatenate_memory, shuffle_memory
from perdure.learners.parts.ranges import require_range_above, require_range_at_least
from perdure.learners.parts.replay import ClassMemoryLearner
from perdure.learners.parts.views import strong_views
from perdure.nets import features_of, head_of

EMBEDDING = 128
HEAD_BATCH, HEAD_MOMENTUM, HEAD_DECAY, HEAD_MILESTONES = 256, 0.9, 0.2, (0.6, 0.75, 0.9)
"""Training of the head: its learning rate is multiplied by HEAD_DECAY after these fractions of its epochs."""


class Co2L(ClassMemoryLearner, name="co2l"):
    """Co2L (Cha et al. 2021): contrastive features, distilled relations, then a linear head.

    Two strong views of the new examples and of as many stored ones pass through the network's body and an MLP (d, d,
    128) and are normalized to unit length. The loss is the supervised contrastive loss with the new examples as
    anchors, plus, from the second task on, distillation of the similarities that the body and MLP before the task
    give to the same views (Eq. 3 to 6). As in the authors' code, the contrastive loss is multiplied by temperature /
    0.07 and divided by the number of all views, stored ones included. The memory holds equal random shares of the
    classes seen so far.

    After each task the network's linear head is trained from zero on features of un-augmented examples of the task
    and the memory, with equal weight for each class and the body frozen. So a checkpoint is a classifier like any
    other, and the heads of two checkpoints are unrelated. Within a task the head is that of the previous task, so
    accuracies measured there combine the new body with the old head, and patience is refused.

    Differences from the authors' code: a batch has as many stored examples as new ones; theirs is drawn from the task's
    data and the whole memory together, so stored examples are rarer. An anchor is an example of the batch; theirs is
    any example of the task's classes, which differs only if a task is visited again. The teacher's batch norm is in
    evaluation mode; theirs is in training mode. Their head is trained on augmented examples drawn with equal
    probability for each class, here on un-augmented ones with weights. Their learning rate follows a cosine after ten
    warm-up epochs, the first task has 500 epochs, and one optimizer serves all tasks; here learning rate and epochs are
    the training settings, and each task has a new optimizer.
    """

    @dataclass(frozen=True)
    class Settings:
        """``temperature``: of the contrast. ``student_temperature``, ``teacher_temperature``: of the relations.

        ``distillation``: weight of the relations. ``buffer``: number of stored examples. ``head_epochs``,
        ``head_rate``: epochs and learning rate of the linear head.
        """

        temperature: float = 0.5
        student_temperature: float = 0.2
        teacher_temperature: float = 0.01
        distillation: float = 1.0
        buffer: int = 500
        head_epochs: int = 100
        head_rate: float = 1.0

        def __post_init__(self) -> None:
            require_range_above(self, 0, "temperature", "student_temperature", "teacher_temperature", "buffer")
            require_range_above(self, 0, "head_epochs", "head_rate")
            require_range_at_least(self, 0, "distillation")

    supports_patience = False
    search_space = {"distillation": (0.1, 10.0)}
    published = {"split-cifar10": {"lr": 0.5, "batch_size": 512, "momentum": 0.9, "weight_decay": 1e-4, "epochs": 100}}

    def begin(self) -> None:
        """Start with an empty memory and a new projection, without a teacher."""
        super().begin()
        size, head_outputs = self.feature_size, self.linear_head().out_features
        if head_outputs != self.outputs:
            raise InputError(
                f"co2l: the network's last linear layer has {head_outputs} outputs, expected {self.outputs}; "
                "use a network that ends with a linear classifier"
            )
        self.projection = self.make_module(
            lambda: nn.Sequential(nn.Linear(size, size), nn.ReLU(), nn.Linear(size, EMBEDDING))
        )
        self.context.meter.watch(self.projection, "projection")
        self.teacher: nn.Module | None = None
        self.teacher_projection = self.frozen_projection()

    def trained_parameters(self) -> Iterable[nn.Parameter]:
        """Return the parameters of the network and of the projection."""
        return [*self.net.parameters(), *self.projection.parameters()]

    def before_task(self, step: int, task: int) -> None:  # noqa: ARG002
        """Use copies of the current network and projection as teachers, from the second task on."""
        self.teacher = self.snapshot() if self.visited else None
        self.teacher_projection = self.frozen_projection()

    def loss(self, batch: Batch) -> Tensor:
        """Return asymmetric contrast + distillation of relations, on two views of new and stored examples."""
        settings, replayed = self.settings, self.memory.draw(batch.size)
        new = StoredExamples(batch.unaugmented_x, batch.y)
        examples = concatenate_memory([new, replayed]) if replayed else new
        x = torch.cat([strong_views(examples.raw, self.context.preparation, self.context.generator) for _ in range(2)])
        anchors = (torch.arange(len(examples), device=x.device) < batch.size).repeat(2)
        z = co2l_embedding(self.net, self.projection, x)
        loss = asymmetric_contrastive_loss(z, examples.y.repeat(2), settings.temperature, anchors)
        if self.teacher is not None:
            with torch.no_grad():
                teacher_z = co2l_embedding(self.teacher, self.teacher_projection, x)
            temperatures = (settings.student_temperature, settings.teacher_temperature)
            loss = loss + settings.distillation * relation_distillation(z, teacher_z, *temperatures)
        return loss

    def after_task(self, step: int, task: int) -> None:  # noqa: ARG002
        """Train a new head, then store equal shares of the classes."""
        new, past = self.task_examples(task), self.stored_from_other_tasks(task)
        self.train_head(new if past is None else concatenate_memory([new, past]))
        for key, examples in self.examples_by_class(task).items():
            self.memory.store(key, shuffle_memory(examples, self.context.generator))

    def train_head(self, examples: StoredExamples) -> None:
        """Train the linear head from zero on the frozen features, with equal weight for each class.

        During this training the features are centered and scaled to a mean squared length of 1, so that one learning
        rate fits any network; center and scale are then merged into the head. A head without a bias cannot absorb the
        center, so it is trained without centering.
        """
        settings, generator, net_head = self.settings, self.context.generator, self.linear_head()
        # A layer separate from the network's, so that its passes are counted in the same way for any network.
        head = self.make_module(
            lambda: nn.Linear(net_head.in_features, net_head.out_features, net_head.bias is not None)
        ).to(net_head.weight)
        self.context.meter.watch(head, "linear head")
        features = self.evaluation_features(examples.raw)
        center = features.mean(dim=0) if head.bias is not None else torch.zeros_like(features[0])
        scale = (features - center).square().sum(dim=1).mean().sqrt().clamp_min(1e-12)
        features = (features - center) / scale
        weight = 1 / torch.bincount(examples.y, minlength=self.outputs)[examples.y]
        weight = weight / weight.mean()
        for parameter in head.parameters():
            nn.init.zeros_(parameter)
        optimizer = torch.optim.SGD(head.parameters(), lr=settings.head_rate, momentum=HEAD_MOMENTUM)
        milestones = [round(share * settings.head_epochs) for share in HEAD_MILESTONES]
        schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones, HEAD_DECAY)
        for _ in range(settings.head_epochs):
            for indices in torch.split(torch.randperm(len(examples), generator=generator), HEAD_BATCH):
                y = examples.y[indices]
                losses = F.cross_entropy(self.mask_other_tasks(head(features[indices]), y), y, reduction="none")
                optimizer.zero_grad()
                (weight[indices] * losses).mean().backward()  # type: ignore[no-untyped-call]
                optimizer.step()
            schedule.step()
        with torch.no_grad():
            net_head.weight.copy_(head.weight / scale)
            if net_head.bias is not None:
                net_head.bias.copy_(head.bias - net_head.weight @ center)

    def linear_head(self) -> nn.Linear:
        """Return the network's linear head."""
        was_training = self.net.training
        with self.context.meter.paused(), torch.no_grad():
            head = head_of(self.net.eval(), self.blank_inputs())
        self.net.train(was_training)
        return head

    def frozen_projection(self) -> nn.Module:
        """Return a frozen copy of the projection."""
        return copy.deepcopy(self.projection).requires_grad_(False)

    @property
    def extra_parameters(self) -> int:
        """The projection, which is not part of a checkpoint."""
        return learner_parameter_count(self.projection)

    @property
    def teacher_parameters(self) -> int:
        """The old network and projection, from the second task on."""
        return learner_parameter_count(self.net) + learner_parameter_count(self.projection) if self.visited else 0


def co2l_embedding(net: nn.Module, projection: nn.Module, x: Tensor) -> Tensor:
    """Return embeddings of unit length for network inputs."""
    return F.normalize(projection(features_of(net, x)), dim=1)
