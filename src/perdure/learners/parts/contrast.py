"""Contrastive losses on embeddings of unit length."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

BASE_TEMPERATURE = 0.07
"""Temperature relative to which public implementations scale contrastive losses."""


def supervised_contrastive_loss(z: Tensor, y: Tensor, temperature: float) -> Tensor:
    """Return the supervised contrastive loss (Khosla et al. 2020, Eq. 2) of embeddings of unit length, (n, d).

    The mean of `anchor_contrast` over all embeddings; those that are alone in their class are left out. The factor
    temperature / 0.07 of the authors' code is not applied, as in X-DER's code.
    """
    losses, has_positives = anchor_contrast(z, y, temperature)
    return losses.sum() / has_positives.sum().clamp_min(1)


def asymmetric_contrastive_loss(z: Tensor, y: Tensor, temperature: float, anchors: Tensor) -> Tensor:
    """Return Co2L's asymmetric supervised contrastive loss (Cha et al. 2021, Eq. 3) of embeddings of unit length.

    temperature / 0.07 times the sum of `anchor_contrast` over the anchors (a boolean mask), divided by the number of
    all embeddings, including those that are only compared with, as in the authors' code. The paper's equation has
    neither the factor nor the division.
    """
    losses, _ = anchor_contrast(z, y, temperature)
    return temperature / BASE_TEMPERATURE * losses[anchors].sum() / len(z)


def anchor_contrast(z: Tensor, y: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Return the contrastive loss of each embedding, (n,), and whether another embedding has the same class.

    The loss of embedding i is minus the mean, over the other embeddings p of its class, of log softmax(z_i . z_p /
    temperature), where the softmax runs over all other embeddings; 0 if i is alone in its class.
    """
    same_class = (y[:, None] == y[None, :]) & ~_diagonal(z)
    count = same_class.sum(dim=1)
    # masked_fill instead of a product, because the diagonal of the log-probabilities is minus infinity.
    total = log_similarities(z, temperature).masked_fill(~same_class, 0.0).sum(dim=1)
    return -total / count.clamp_min(1), count > 0


def relation_distillation(
    student: Tensor, teacher: Tensor, student_temperature: float, teacher_temperature: float
) -> Tensor:
    """Return the instance-wise relation distillation loss (Cha et al. 2021, Eq. 5).

    For each embedding, the cross-entropy between the teacher's and the student's softmax over the similarities to all
    other embeddings; averaged over embeddings.
    """
    target = log_similarities(teacher, teacher_temperature).exp()
    log_probabilities = log_similarities(student, student_temperature).masked_fill(_diagonal(student), 0.0)
    return -(target * log_probabilities).sum(dim=1).mean()


def log_similarities(z: Tensor, temperature: float) -> Tensor:
    """Return the log softmax of each embedding's similarities to all others; the diagonal is minus infinity."""
    return F.log_softmax((z @ z.T / temperature).masked_fill(_diagonal(z), -torch.inf), dim=1)


def _diagonal(z: Tensor) -> Tensor:
    return torch.eye(len(z), dtype=torch.bool, device=z.device)
