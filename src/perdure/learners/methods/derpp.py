"""Dark experience replay with labels."""

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from perdure.learners.data import Batch
from perdure.learners.methods.der import DER
from perdure.learners.parts.ranges import require_range_above, require_range_at_least


class DERPlusPlus(DER, name="der++"):
    """DER++ (Buzzega et al. 2020): DER, plus the labels of a second draw from the memory.

    The loss is cross-entropy + alpha * squared distance to stored logits + beta * cross-entropy with stored labels
    (Eq. 6). The two draws from the reservoir are independent, as in the authors' code. Reservoir, logits and distance are
    as in DER. Differences from the paper: those of DER.
    """

    @dataclass(frozen=True)
    class Settings:
        """``alpha``: weight of the stored logits. ``buffer``: stored examples. ``beta``: weight of the stored labels."""

        alpha: float = 0.2
        buffer: int = 500
        beta: float = 0.5

        def __post_init__(self) -> None:
            require_range_at_least(self, 0, "alpha", "beta")
            require_range_above(self, 0, "buffer")

    search_space = {"alpha": (0.03, 3.0), "beta": (0.1, 3.0)}
    published = {
        "split-cifar10": {"lr": 0.03, "alpha": 0.2, "beta": 0.5},
        "split-cifar100": {"lr": 0.03, "alpha": 0.1, "beta": 0.5},
        "split-tiny-imagenet": {"lr": 0.03, "alpha": 0.2, "beta": 0.5},
    }

    def loss(self, batch: Batch) -> Tensor:
        """Return the loss of the batch and of two draws from the memory, and add the batch to the memory."""
        logits = self.net(batch.x)
        loss = self.cross_entropy(logits, batch.y)
        replay: Tensor | float = 0.0
        if first := self.memory.draw(batch.size):
            replay = self.settings.alpha * F.mse_loss(self.net(self.augment(first)), first.target_logits)
        if second := self.memory.draw(batch.size):
            replay = replay + self.settings.beta * self.cross_entropy(self.net(self.augment(second)), second.y)
        self.memory.add(batch.unaugmented_x, batch.y, logits.detach())
        return loss + replay
