"""Averaged GEM: one constraint from a random batch of the memory."""

from dataclasses import dataclass

from torch import Tensor

from perdure.learners.data import Batch
from perdure.learners.gem import GEM
from perdure.learners.memory import Reservoir, as_tensors
from perdure.learners.ranges import above


class AGEM(GEM, name="agem"):
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

    search = {}
    published = {"split-cifar10": {"lr": 0.03}, "split-cifar100": {"lr": 0.03}, "split-tiny-imagenet": {"lr": 0.01}}

    def begin(self) -> None:
        """Begin with an empty reservoir."""
        self.reservoir = Reservoir(self.settings.buffer, self.context.generator)

    def after_backward(self, batch: Batch) -> None:  # noqa: ARG002
        """Take out of the gradient what would raise the loss on the memory."""
        past = self.reservoir.draw(self.settings.reference)
        if past is None:
            return
        gradient = self.flat_gradient()
        self.set_gradient(without_conflict(gradient, self.gradient_on(past)))

    def after_task(self, step: int, task: int) -> None:  # noqa: ARG002
        """Offer the task's examples, each once, to the reservoir."""
        examples = as_tensors(self.context.benchmark.tasks[task].train, self.context.device)
        self.reservoir.offer(examples.raw, examples.y)

    @property
    def memory_bits(self) -> int:
        """What the reservoir holds."""
        return self.reservoir.bits


def without_conflict(gradient: Tensor, reference: Tensor) -> Tensor:
    """Return A-GEM's projection: unchanged unless the two make an obtuse angle, then orthogonal to the reference."""
    product = gradient @ reference
    if bool(product >= 0):
        return gradient
    return gradient - product / (reference @ reference) * reference
