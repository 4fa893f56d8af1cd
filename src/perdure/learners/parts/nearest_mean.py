"""The nearest-class-mean classifier as a network: normalized features, then minus the squared distance to each mean."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import skip_init

from perdure.nets import Network, features_of

UNSEEN = -5.0
"""Score of a class without a mean. Unit vectors are at most 2 apart, so the score of a class with a mean is at least -4."""


class NearestMean(nn.Module):
    """Scores each class by minus the squared distance between its mean and the input's feature, both of unit length.

    ``means``: (classes, d), rows of unit length. Where ``seen`` is false the score is the constant `UNSEEN`: finite,
    below all others, and with gradient 0, so that attributions of an unseen class are 0 everywhere. For unit vectors
    -||f - m||^2 = 2 f . m - 2, so the scores are a linear layer on the normalized features.
    """

    def __init__(self, net: nn.Module, means: Tensor, seen: Tensor) -> None:
        super().__init__()
        self.body = net.body if isinstance(net, Network) else Features(net)
        self.unit = UnitLength()
        # Not initialized, because an evaluation must not draw random numbers.
        self.scores = skip_init(nn.Linear, means.shape[1], len(means), device=means.device)  # type: ignore[no-untyped-call]
        self.scores.requires_grad_(False)
        self.scores.weight.copy_(2 * means * seen[:, None])
        self.scores.bias.copy_(torch.where(seen, -2.0, UNSEEN))

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores, (batch, classes)."""
        scores: Tensor = self.scores(self.unit(self.body(x)))
        return scores


class Features(nn.Module):
    """The penultimate features of any network, as a module."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        """Return the input of the network's last linear layer."""
        return features_of(self.net, x)


class UnitLength(nn.Module):
    """Divides each feature vector by its length; a zero vector stays zero."""

    def forward(self, features: Tensor) -> Tensor:
        """Return vectors of unit length."""
        return F.normalize(features, dim=1)
