"""Contrastive losses on embeddings of unit length."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def supervised_contrastive_loss(z: Tensor, y: Tensor, temperature: float, anchors: Tensor | None = None) -> Tensor:
    """Return the supervised contrastive loss (Khosla et al. 2020, Eq. 2) of embeddings of unit length, (n, d).

    The loss of an anchor i is minus the mean, over the other examples p of its class, of log softmax(z_i . z_p /
    temperature), where the softmax runs over all other examples. ``anchors`` (a boolean mask) restricts the mean to
    some anchors: with the new examples as anchors, this is Co2L's asymmetric loss (Cha et al. 2021, Eq. 3), in which
    stored examples are only compared with. An anchor that is alone in its class is left out. The factor temperature /
    0.07 of public implementations is not applied.
    """
    same_class = (y[:, None] == y[None, :]) & ~_diagonal(z)
    count = same_class.sum(dim=1)
    included = count > 0 if anchors is None else (count > 0) & anchors
    if not bool(included.any()):
        return z.sum() * 0.0
    # masked_fill instead of a product, because the diagonal of the log-probabilities is minus infinity.
    total = log_similarities(z, temperature).masked_fill(~same_class, 0.0).sum(dim=1)
    return -(total[included] / count[included]).mean()


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
