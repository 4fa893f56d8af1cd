"""Averaged GEM: one gradient constraint, from a random batch of the memory."""

from dataclasses import dataclass

from torch import Tensor

from perdure.learners.data import Batch
from perdure.learners.parts.gradient_vectors import flat_gradient, set_flat_gradient
from perdure.learners.parts.memory import Reservoir
from perdure.learners.parts.ranges import require_range_above
from perdure.learners.parts.replay import ReplayLearner


class AGEM(ReplayLearner, name="agem"):
    """Averaged GEM (Chaudhry et al. 2019): one gradient constraint from a batch of the memory.

    If g . g_ref < 0, then g <- g - (g . g_ref / g_ref . g_ref) g_ref (Eq. 11). g_ref is the gradient on a random
    batch from a reservoir over all past tasks.

    Differences from the paper: it stores equal numbers of examples of each class and trains one epoch per task; here
    the memory is a reservoir to which a task's examples are added when it ends, and training can have any number of
    epochs. mammoth stores only one mini-batch per task.
    """

    @dataclass(frozen=True)
    class Settings:
        """``buffer``: number of stored examples. ``reference``: stored examples per reference gradient."""

        buffer: int = 500
        reference: int = 64

        def __post_init__(self) -> None:
            require_range_above(self, 0, "buffer", "reference")

    published = {"split-cifar10": {"lr": 0.03}, "split-cifar100": {"lr": 0.03}, "split-tiny-imagenet": {"lr": 0.01}}

    memory: Reservoir

    def begin(self) -> None:
        """Start with an empty reservoir."""
        self.memory = Reservoir(self.settings.buffer, self.context.generator)

    def after_backward(self, batch: Batch) -> None:  # noqa: ARG002
        """Remove the component of the gradient that increases the loss on the memory."""
        if replayed := self.memory.draw(self.settings.reference):
            gradient = flat_gradient(self.net)
            set_flat_gradient(self.net, remove_conflict(gradient, self.gradient_on(replayed)))

    def after_task(self, step: int, task: int) -> None:  # noqa: ARG002
        """Add each of the task's examples to the reservoir once."""
        examples = self.task_examples(task)
        self.memory.add(examples.raw, examples.y)


def remove_conflict(gradient: Tensor, reference: Tensor) -> Tensor:
    """Return A-GEM's projection: orthogonal to the reference if the two make an obtuse angle, else unchanged."""
    product = gradient @ reference
    if bool(product >= 0):
        return gradient
    return gradient - product / (reference @ reference) * reference
