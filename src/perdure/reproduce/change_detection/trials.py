"""Trials: an old version, references that were retrained on the same data, and a new version."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

REFERENCES = 5
OTHER_REFERENCES = (3, 9)
PARTITIONS = 3
"""Random partitions of the harmless models into disjoint groups."""
GROUPS = 8
"""Disjoint groups of known versions that every changed model is compared with."""
SEED = 0


@dataclass(frozen=True)
class Trial:
    """Numbers of the models: the known versions are harmless models, and the first of them is OLD."""

    known: tuple[int, ...]
    new: int

    @property
    def old(self) -> int:
        """The version that methods without references compare with."""
        return self.known[0]


def harmless_trials(models: int, references: int) -> list[list[Trial]]:
    """Return trials in which NEW is also a harmless model: one list for each group.

    Each partition divides the models into disjoint groups of OLD, the references and NEW, and each member of a group is NEW
    once. Groups of one partition are independent; groups of different partitions share models.
    """
    rng = np.random.default_rng((SEED, references))
    groups = [group for _ in range(PARTITIONS) for group in _disjoint_groups(models, references + 2, rng)]
    return [
        [Trial((*group[position + 1 :], *group[:position]), group[position]) for position in range(len(group))]
        for group in groups
    ]


def changed_trials(models: int, changed: int, references: int) -> list[list[Trial]]:
    """Return trials in which NEW is a changed model: one list for each changed model, one trial for each group."""
    rng = np.random.default_rng((SEED, references, 1))
    groups = _disjoint_groups(models, references + 1, rng)[:GROUPS]
    return [[Trial(group, new) for group in groups] for new in range(changed)]


def _disjoint_groups(models: int, size: int, rng: np.random.Generator) -> list[tuple[int, ...]]:
    order: NDArray[np.int64] = rng.permutation(models)
    return [tuple(order[start : start + size].tolist()) for start in range(0, models - size + 1, size)]
