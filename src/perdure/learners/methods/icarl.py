"""iCaRL: exemplars by herding, distillation by sigmoids, and the nearest class mean decides."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from perdure.learners.data import Batch
from perdure.learners.learner import parameters_in
from perdure.learners.parts.memory import herded
from perdure.learners.parts.nearest_mean import NearestMean
from perdure.learners.parts.ranges import above
from perdure.learners.parts.replay import ClassMemoryLearner
from perdure.tasks import Examples


class ICaRL(ClassMemoryLearner, name="icarl"):
    """Incremental classifier and representation learning (Rebuffi et al. 2017, Algorithms 1 to 5).

    The stored exemplars join the training set. The loss is the binary cross-entropy of every output's sigmoid, averaged
    over outputs and examples; the targets are the old network's sigmoids for past classes and 0 or 1 for all others.
    After a task each of its classes keeps buffer / (number of classes so far) exemplars, chosen by herding on features of
    unit length, and older classes drop their last ones.

    The decision is the nearest class mean: minus the squared distance between the unit-length feature of the input and
    the unit-length mean of the exemplars' features, mirror images included where the benchmark's augmentation mirrors. The
    network's logits are still there (``self.net``): `decision_network` of no tensors is the network itself.

    A class that the present task trains has its labels as targets even if it was met before, so a revisited task and a
    domain-incremental benchmark work; in the latter nothing is distilled, because no class is only past. Exemplars are
    kept for each class of each task. Before a class has exemplars (evaluation within its first task) some of its training
    examples stand in; before any training the network's logits decide.
    """

    decides_by = "nearest class mean"

    @dataclass(frozen=True)
    class Settings:
        """``buffer``: stored exemplars of all classes together."""

        buffer: int = 500

        def __post_init__(self) -> None:
            above(self, 0, "buffer")

    published = {
        "split-cifar10": {"lr": 0.1, "weight_decay": 1e-5},
        "split-cifar100": {"lr": 0.3, "weight_decay": 1e-5},
        "split-tiny-imagenet": {"lr": 0.03, "weight_decay": 1e-5},
    }

    def begin(self) -> None:
        """Begin without exemplars and without a teacher."""
        super().begin()
        self.teacher: nn.Module | None = None
        self.task: int | None = None
        self.class_means: Tensor | None = None
        self.seen: Tensor | None = None

    def before_task(self, step: int, task: int) -> None:  # noqa: ARG002
        """What the network is now teaches this task."""
        self.teacher = self.snapshot() if self.visited else None
        self.task = task

    def training_examples(self, task: int) -> Sequence[Examples]:
        """Return the task's examples and the exemplars of the others."""
        train = self.context.benchmark.tasks[task].train
        past = self.others(task)
        return [train] if past is None else [train, Examples(past.raw.cpu().numpy(), past.y.cpu().numpy())]

    def loss(self, batch: Batch) -> Tensor:
        """Return the binary cross-entropy over all outputs."""
        targets = F.one_hot(batch.y, self.outputs).float()
        if self.teacher is not None:
            past = self.past_classes(batch.task)
            with torch.no_grad():
                targets[:, past] = torch.sigmoid(self.teacher(batch.x))[:, past]
        return F.binary_cross_entropy_with_logits(self.net(batch.x), targets)

    def after_step(self, batch: Batch) -> None:  # noqa: ARG002
        """The means are those of an older network now."""
        self.class_means, self.seen = None, None

    def after_task(self, step: int, task: int) -> None:  # noqa: ARG002
        """Choose the exemplars of the task's classes."""
        for group, own in self.classes_of(task).items():
            features = F.normalize(self.frozen_features(own.raw), dim=1)
            self.memory.keep(group, own.at(herded(features, self.share(task))))
        self.task = None
        self.class_means, self.seen = self.means()

    def logits(self, x: Tensor) -> Tensor:
        """Return minus the squared distance to each class mean."""
        if self.class_means is None:
            self.class_means, self.seen = self.means()
        scores: Tensor = self.decision_network(self.net, self.decision())(x)
        return scores

    def decision(self) -> dict[str, Tensor]:
        """Return the means, (classes, d), and which classes have one; nothing before any class has."""
        if self.class_means is None or self.seen is None or not bool(self.seen.any()):
            return {}
        return {"class_means": self.class_means, "seen": self.seen}

    @classmethod
    def decision_network(cls, net: nn.Module, tensors: Mapping[str, Tensor]) -> nn.Module:
        """Return the network that scores by the nearest class mean; without means, the network itself."""
        return NearestMean(net, tensors["class_means"], tensors["seen"]) if tensors else net

    @property
    def teachers(self) -> int:
        """The old network, once there is one."""
        return parameters_in(self.net) if self.visited else 0

    def means(self) -> tuple[Tensor, Tensor]:
        """Return the unit-length mean of each class's features, (classes, d), and which classes have one."""
        seen = torch.zeros(self.outputs, dtype=torch.bool, device=self.context.device)
        means = torch.zeros(self.outputs, self.feature_size, device=self.context.device)
        for unit, raw in self.exemplars().items():
            mirrored = [raw.flip(-1)] if self.context.preparation.augmentation == "crop-flip" else []
            features = F.normalize(self.frozen_features(torch.cat([raw, *mirrored])), dim=1)
            means[unit], seen[unit] = F.normalize(features.mean(dim=0), dim=0), True
        return means, seen

    def exemplars(self) -> dict[int, Tensor]:
        """Return the images that stand for each class: its exemplars, or within its first task some training examples."""
        found: dict[int, list[Tensor]] = {}
        for group, stored in self.memory.groups.items():
            found.setdefault(group % self.outputs, []).append(stored.raw)
        if self.task is not None:
            examples = self.stored_task(self.task)
            for unit in set(self.context.benchmark.tasks[self.task].classes) - set(found):
                found[unit] = [examples.raw[examples.y == unit][: self.settings.buffer // self.outputs]]
        return {unit: torch.cat(parts) for unit, parts in found.items()}

    def past_classes(self, task: int) -> list[int]:
        """Return the classes met before that the present task does not train."""
        tasks = self.context.benchmark.tasks
        return sorted({unit for seen in self.visited for unit in tasks[seen].classes} - set(tasks[task].classes))
