"""Contrastive losses on unit-length embeddings."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def supervised_contrast(z: Tensor, y: Tensor, temperature: float, anchors: Tensor | None = None) -> Tensor:
    """Return the supervised contrastive loss (Khosla et al. 2020, Eq. 2) of embeddings of unit length, (n, d).

    For an anchor i it is minus the mean, over the others p of its class, of log softmax(z_i . z_p / temperature), the
    softmax over all others. ``anchors`` (a mask) restricts the mean to some: with the new examples alone it is
    Co2L's asymmetric loss (Cha et al. 2021, Eq. 3), in which stored examples are only compared with. An anchor alone in
    its class is left out. There is no factor temperature / 0.07, which public code multiplies by.
    """
    alike = (y[:, None] == y[None, :]) & ~_diagonal(z)
    count = alike.sum(dim=1)
    chosen = count > 0 if anchors is None else (count > 0) & anchors
    if not bool(chosen.any()):
        return z.sum() * 0.0
    # masked_fill and not a product: the diagonal of log-probabilities is minus infinity.
    among = log_similarities(z, temperature).masked_fill(~alike, 0.0).sum(dim=1)
    return -(among[chosen] / count[chosen]).mean()


def relation_distillation(
    student: Tensor, teacher: Tensor, student_temperature: float, teacher_temperature: float
) -> Tensor:
    """Return instance-wise relation distillation (Cha et al. 2021, Eq. 5): similarities must stay as the teacher's.

    For each embedding, the cross-entropy between the teacher's and the student's softmax of the similarities to all
    others, averaged.
    """
    target = log_similarities(teacher, teacher_temperature).exp()
    log_probabilities = log_similarities(student, student_temperature).masked_fill(_diagonal(student), 0.0)
    return -(target * log_probabilities).sum(dim=1).mean()


def log_similarities(z: Tensor, temperature: float) -> Tensor:
    """Return, for each embedding, the log softmax of its similarities to all others; minus infinity to itself."""
    return F.log_softmax((z @ z.T / temperature).masked_fill(_diagonal(z), -torch.inf), dim=1)


def _diagonal(z: Tensor) -> Tensor:
    return torch.eye(len(z), dtype=torch.bool, device=z.device)
