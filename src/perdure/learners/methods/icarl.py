"""iCaRL: exemplars selected by herding, distillation of sigmoids, and prediction by the nearest class mean."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from perdure.learners.data import Batch
from perdure.learners.learner import learner_parameter_count
from perdure.learners.parts.memory import memory_herding_order
from perdure.learners.parts.nearest_mean import NearestMean
from perdure.learners.parts.ranges import require_range_above
from perdure.learners.parts.replay import ClassMemoryLearner
from perdure.tasks import Examples


class ICaRL(ClassMemoryLearner, name="icarl"):
    """iCaRL (Rebuffi et al. 2017): herded exemplars, distillation, nearest class mean.

    Incremental classifier and representation learning, Algorithms 1 to 5. The stored exemplars are added to the
    training set. The loss is the binary cross-entropy of every output's sigmoid, averaged over outputs and examples;
    the targets are the old network's sigmoids for past classes, and 0 or 1 for all other classes. After a task,
    buffer / (number of classes so far) exemplars of each of its classes are selected by herding on features of unit
    length, and older classes drop their last ones.

    The prediction is the nearest class mean: the score is minus the squared distance between the unit-length feature
    of the input and the unit-length mean of the exemplars' features, including mirror images if the benchmark's
    augmentation flips. The network's logits are still available (``self.net``); `decision_network` without tensors
    returns the network itself.

    Differences from the paper: outputs of classes that are not seen yet exist and have the target 0; the loss is a mean
    over outputs instead of a sum; the old network's sigmoids are computed for the same augmented view at each update,
    not once before the task. These are as in mammoth. Mirror images in the class means are as in the authors' CIFAR-100
    code.

    A class that the present task trains has its labels as targets even if it was seen before, so revisited tasks and
    domain-incremental benchmarks work; in the latter nothing is distilled, because every class is trained in every
    task. Exemplars are stored for each class of each task. Before a class has exemplars (evaluation within its first
    task), some of its training examples are used instead; before any training, predictions are based on the network's
    logits.
    """

    decides_by = "nearest class mean"

    @dataclass(frozen=True)
    class Settings:
        """``buffer``: number of stored exemplars of all classes together."""

        buffer: int = 500

        def __post_init__(self) -> None:
            require_range_above(self, 0, "buffer")

    published = {
        "split-cifar10": {"lr": 0.1, "weight_decay": 1e-5},
        "split-cifar100": {"lr": 0.3, "weight_decay": 1e-5},
        "split-tiny-imagenet": {"lr": 0.03, "weight_decay": 1e-5},
    }

    def begin(self) -> None:
        """Start without exemplars and without a teacher."""
        super().begin()
        self.teacher: nn.Module | None = None
        self.task: int | None = None
        self.class_means: Tensor | None = None
        self.seen: Tensor | None = None

    def before_task(self, step: int, task: int) -> None:  # noqa: ARG002
        """Use a copy of the current network as the teacher, from the second task on."""
        self.teacher = self.snapshot() if self.visited else None
        self.task = task

    def training_examples(self, task: int) -> Sequence[Examples]:
        """Return the task's examples and the exemplars of all other tasks."""
        train = self.context.benchmark.tasks[task].train
        past = self.stored_from_other_tasks(task)
        return [train] if past is None else [train, Examples(past.raw.cpu().numpy(), past.y.cpu().numpy())]

    def loss(self, batch: Batch) -> Tensor:
        """Return the binary cross-entropy over all outputs; for past classes the targets are the old network's sigmoids."""
        targets = F.one_hot(batch.y, self.outputs).float()
        if self.teacher is not None:
            past = self.past_classes(batch.task)
            with torch.no_grad():
                targets[:, past] = torch.sigmoid(self.teacher(batch.x).float())[:, past]
        return F.binary_cross_entropy_with_logits(self.net(batch.x), targets)

    def after_update(self, batch: Batch) -> None:  # noqa: ARG002
        """Discard the class means, because the network has changed."""
        self.class_means, self.seen = None, None

    def after_task(self, step: int, task: int) -> None:  # noqa: ARG002
        """Select and store the exemplars of the task's classes, and compute the class means."""
        for key, examples in self.examples_by_class(task).items():
            features = F.normalize(self.evaluation_features(examples.raw), dim=1)
            self.memory.store(key, examples.select(memory_herding_order(features, self.examples_per_class(task))))
        self.task = None
        self.class_means, self.seen = self.compute_class_means()

    def logits(self, x: Tensor) -> Tensor:
        """Return minus the squared distance to each class mean."""
        if self.class_means is None:
            self.class_means, self.seen = self.compute_class_means()
        scores: Tensor = self.decision_network(self.net, self.decision())(x)
        return scores

    def decision(self) -> dict[str, Tensor]:
        """Return the class means, (classes, d), and which classes have one; empty if no class has a mean."""
        if self.class_means is None or self.seen is None or not bool(self.seen.any()):
            return {}
        return {"class_means": self.class_means, "seen": self.seen}

    @classmethod
    def decision_network(cls, net: nn.Module, tensors: Mapping[str, Tensor]) -> nn.Module:
        """Return the network that scores by the nearest class mean; without means, the network itself."""
        return NearestMean(net, tensors["class_means"], tensors["seen"]) if tensors else net

    @property
    def teacher_parameters(self) -> int:
        """The old network, from the second task on."""
        return learner_parameter_count(self.net) if self.visited else 0

    def compute_class_means(self) -> tuple[Tensor, Tensor]:
        """Return the unit-length mean of each class's features, (classes, d), and which classes have one."""
        seen = torch.zeros(self.outputs, dtype=torch.bool, device=self.context.device)
        means = torch.zeros(self.outputs, self.feature_size, device=self.context.device)
        for output, raw in self.exemplars().items():
            mirrored = [raw.flip(-1)] if self.context.preparation.augmentation == "crop-flip" else []
            features = F.normalize(self.evaluation_features(torch.cat([raw, *mirrored])), dim=1)
            means[output], seen[output] = F.normalize(features.mean(dim=0), dim=0), True
        return means, seen

    def exemplars(self) -> dict[int, Tensor]:
        """Return the exemplars of each class; within the first task of a class, some of its training examples."""
        parts: dict[int, list[Tensor]] = {}
        for key, stored in self.memory.groups.items():
            parts.setdefault(key % self.outputs, []).append(stored.raw)
        if self.task is not None:
            examples = self.task_examples(self.task)
            for output in set(self.context.benchmark.tasks[self.task].classes) - set(parts):
                parts[output] = [examples.raw[examples.y == output][: self.settings.buffer // self.outputs]]
        return {output: torch.cat(tensors) for output, tensors in parts.items()}

    def past_classes(self, task: int) -> list[int]:
        """Return the classes seen before that the present task does not train."""
        tasks = self.context.benchmark.tasks
        return sorted({output for seen in self.visited for output in tasks[seen].classes} - set(tasks[task].classes))
