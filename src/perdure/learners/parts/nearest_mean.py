"""The nearest class mean as a network: features of unit length, then minus the squared distance to each mean."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import skip_init

from perdure.nets import Network, features_of

UNSEEN = -5.0
"""Score of a class without a mean. Vectors of unit length are at most 2 apart, so no class with one scores below -4."""


class NearestMean(nn.Module):
    """Scores a class by minus the squared distance between its mean and the input's feature, both of unit length.

    ``means`` is (classes, d), rows of unit length. Where ``seen`` is false the score is the constant `UNSEEN`: finite,
    below all others, and with a gradient of 0, so that the attributions of a class not met yet are 0 everywhere. For unit
    vectors -||f - m||^2 = 2 f . m - 2, so the distances are a linear layer after a division by the length.
    """

    def __init__(self, net: nn.Module, means: Tensor, seen: Tensor) -> None:
        super().__init__()
        self.body = net.body if isinstance(net, Network) else Features(net)
        self.unit = UnitLength()
        # Not initialised, because that would draw random numbers, and an evaluation must leave no trace.
        self.scores = skip_init(nn.Linear, means.shape[1], len(means), device=means.device)  # type: ignore[no-untyped-call]
        self.scores.requires_grad_(False)
        self.scores.weight.copy_(2 * means * seen[:, None])
        self.scores.bias.copy_(torch.where(seen, -2.0, UNSEEN))

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores, (batch, classes)."""
        scores: Tensor = self.scores(self.unit(self.body(x)))
        return scores


class Features(nn.Module):
    """The penultimate features of a network of the user's own."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        """Return what the network's last linear layer is given."""
        return features_of(self.net, x)


class UnitLength(nn.Module):
    """Divides each feature vector by its length; one of zeros stays as it is."""

    def forward(self, features: Tensor) -> Tensor:
        """Return vectors of unit length."""
        return F.normalize(features, dim=1)
