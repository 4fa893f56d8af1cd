"""Averaged GEM: one constraint from a random batch of the memory."""

from dataclasses import dataclass

from torch import Tensor

from perdure.learners.data import Batch
from perdure.learners.methods.gem import ProjectingLearner
from perdure.learners.parts.memory import Reservoir
from perdure.learners.parts.ranges import above


class AGEM(ProjectingLearner, name="agem"):
    """Averaged GEM (Chaudhry et al. 2019, Eq. 11): if g . g_ref < 0, g <- g - (g . g_ref / g_ref . g_ref) g_ref.

    g_ref is the gradient on a random batch of a real reservoir over all past tasks; a widespread implementation keeps only one
    mini-batch of each task.
    """

    @dataclass(frozen=True)
    class Settings:
        """``buffer``: stored examples. ``reference``: how many of them make the reference gradient."""

        buffer: int = 500
        reference: int = 64

        def __post_init__(self) -> None:
            above(self, 0, "buffer", "reference")

    published = {"split-cifar10": {"lr": 0.03}, "split-cifar100": {"lr": 0.03}, "split-tiny-imagenet": {"lr": 0.01}}

    memory: Reservoir

    def begin(self) -> None:
        """Begin with an empty reservoir."""
        self.memory = Reservoir(self.settings.buffer, self.context.generator)

    def after_backward(self, batch: Batch) -> None:  # noqa: ARG002
        """Take out of the gradient what would raise the loss on the memory."""
        past = self.memory.draw(self.settings.reference)
        if past is None:
            return
        gradient = self.flat_gradient()
        self.set_gradient(without_conflict(gradient, self.gradient_on(past)))

    def after_task(self, step: int, task: int) -> None:  # noqa: ARG002
        """Offer the task's examples, each once, to the reservoir."""
        examples = self.stored_task(task)
        self.memory.offer(examples.raw, examples.y)


def without_conflict(gradient: Tensor, reference: Tensor) -> Tensor:
    """Return A-GEM's projection: unchanged unless the two make an obtuse angle, then orthogonal to the reference."""
    product = gradient @ reference
    if bool(product >= 0):
        return gradient
    return gradient - product / (reference @ reference) * reference
