"""Dark experience replay: replay stored logits."""

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from perdure.learners.data import Batch
from perdure.learners.parts.memory import Reservoir
from perdure.learners.parts.ranges import require_range_above, require_range_at_least
from perdure.learners.parts.replay import ReplayLearner


class DER(ReplayLearner, name="der"):
    """Dark experience replay (Buzzega et al. 2020): replay stored logits instead of labels.

    The loss is cross-entropy + alpha * squared distance to stored logits (Eq. 5). Every training batch is added to a
    reservoir with the logits of its augmented view, in training mode, at that update. As many stored examples as new
    ones are drawn and augmented again.

    Differences from the paper: the distance is the mean of the squared differences over examples and outputs, as in the
    authors' code; the paper has the squared norm, which is larger by the number of outputs. In the task-incremental
    scenario only the outputs of the task are trained by labels; the authors mask outputs at test time only.
    """

    @dataclass(frozen=True)
    class Settings:
        """``alpha``: weight of the stored logits. ``buffer``: number of stored examples."""

        alpha: float = 0.3
        buffer: int = 500

        def __post_init__(self) -> None:
            require_range_at_least(self, 0, "alpha")
            require_range_above(self, 0, "buffer")

    search_space = {"alpha": (0.03, 3.0)}
    published = {
        "split-cifar10": {"lr": 0.03, "alpha": 0.3},
        "split-cifar100": {"lr": 0.03, "alpha": 0.3},
        "split-tiny-imagenet": {"lr": 0.03, "alpha": 0.1},
    }
    memory: Reservoir

    def begin(self) -> None:
        """Start with an empty reservoir."""
        self.memory = Reservoir(self.settings.buffer, self.context.generator)

    def loss(self, batch: Batch) -> Tensor:
        """Return cross-entropy + alpha * distance to stored logits, and add the batch to the memory."""
        logits = self.net(batch.x)
        loss = self.cross_entropy(logits, batch.y)
        if replayed := self.memory.draw(batch.size):
            loss = loss + self.settings.alpha * F.mse_loss(self.net(self.augment(replayed)), replayed.target_logits)
        self.memory.add(batch.unaugmented_x, batch.y, logits.detach())
        return loss
