"""Dark experience replay: keep the logits, not only the labels."""

from dataclasses import dataclass
from typing import cast

from torch import Tensor
from torch.nn import functional as F

from perdure.learners.data import Batch
from perdure.learners.parts.memory import Reservoir, Stored
from perdure.learners.parts.ranges import above, at_least
from perdure.learners.parts.replay import ReplayLearner


class DER(ReplayLearner, name="der"):
    """Dark experience replay (Buzzega et al. 2020, Eq. 5): cross-entropy + alpha * squared distance to stored logits.

    Every training batch is offered to a reservoir, with the logits that the network had for its augmented view, in
    training mode, at that step. As many stored examples as there are new ones are drawn, augmented anew, and their logits
    pulled to the stored ones: the mean of the squared differences over examples and outputs, as in the authors' code (the
    paper writes the squared norm, which is larger by the number of outputs).
    """

    @dataclass(frozen=True)
    class Settings:
        """``alpha``: weight of the stored logits. ``buffer``: stored examples."""

        alpha: float = 0.3
        buffer: int = 500

        def __post_init__(self) -> None:
            at_least(self, 0, "alpha")
            above(self, 0, "buffer")

    search = {"alpha": (0.03, 3.0)}
    published = {
        "split-cifar10": {"lr": 0.03, "alpha": 0.3},
        "split-cifar100": {"lr": 0.03, "alpha": 0.3},
        "split-tiny-imagenet": {"lr": 0.03, "alpha": 0.1},
    }
    memory: Reservoir

    def begin(self) -> None:
        """Begin with an empty reservoir."""
        self.memory = Reservoir(self.settings.buffer, self.context.generator)

    def loss(self, batch: Batch) -> Tensor:
        """Return the loss of the batch and of what is replayed; then offer the batch to the reservoir."""
        logits = self.net(batch.x)
        loss = self.cross_entropy(logits, batch.y) + self.replayed(batch.size)
        self.memory.offer(batch.plain_x, batch.y, logits.detach())
        return loss

    def replayed(self, count: int) -> Tensor | float:
        """Return the loss on stored examples."""
        return self.logits_replayed(count)

    def logits_replayed(self, count: int) -> Tensor | float:
        """Return the weighted squared distance to the logits of drawn examples, 0 while nothing is stored."""
        past = self.memory.draw(count)
        if past is None:
            return 0.0
        x = self.view(past)
        alpha: float = self.settings.alpha
        return alpha * F.mse_loss(self.net(x), self.past_logits(past, x))

    def past_logits(self, past: Stored, x: Tensor) -> Tensor:  # noqa: ARG002
        """Return the logits that examples, seen as ``x``, are pulled to: the stored ones."""
        return cast(Tensor, past.logits)
