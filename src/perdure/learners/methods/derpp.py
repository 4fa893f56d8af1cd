"""Dark experience replay with labels."""

from dataclasses import dataclass

from torch import Tensor

from perdure.learners.methods.der import DER
from perdure.learners.parts.ranges import at_least


class DERPlusPlus(DER, name="der++"):
    """DER++ (Buzzega et al. 2020, Eq. 6): DER + beta * cross-entropy on a second, independent draw from the reservoir."""

    @dataclass(frozen=True)
    class Settings(DER.Settings):
        """``alpha``: weight of the stored logits. ``beta``: weight of the stored labels. ``buffer``: stored examples."""

        alpha: float = 0.2
        beta: float = 0.5

        def __post_init__(self) -> None:
            super().__post_init__()
            at_least(self, 0, "beta")

    search = {"alpha": (0.03, 3.0), "beta": (0.1, 3.0)}
    published = {
        "split-cifar10": {"lr": 0.03, "alpha": 0.2, "beta": 0.5},
        "split-cifar100": {"lr": 0.03, "alpha": 0.1, "beta": 0.5},
        "split-tiny-imagenet": {"lr": 0.03, "alpha": 0.2, "beta": 0.5},
    }

    def replayed(self, count: int) -> Tensor | float:
        """Return the loss on stored logits and, of other examples, on stored labels."""
        return super().replayed(count) + self.labels_replayed(count)

    def labels_replayed(self, count: int) -> Tensor | float:
        """Return the weighted cross-entropy on stored examples."""
        past = self.memory.draw(count)
        if past is None:
            return 0.0
        beta: float = self.settings.beta
        return beta * self.cross_entropy(self.net(self.view(past)), past.y)
