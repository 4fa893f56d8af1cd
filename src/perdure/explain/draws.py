"""Random numbers that depend on the seed and the example, never on batches, order or the network."""

from __future__ import annotations

import hashlib

import numpy as np
from torch import Tensor


def generator(seed: int, *counters: int) -> np.random.Generator:
    """Return the random generator for a seed and counters (example, permutation, pass)."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, *counters])))


def example_key(example: Tensor) -> int:
    """Return a number that identifies an example, from its values as float32.

    The same example gets the same draws in every batch and for every network and checkpoint (common random numbers), so
    that the shared part of the sampling noise cancels in their differences.
    """
    plain = np.ascontiguousarray(example.detach().cpu().float().numpy(), dtype="<f4")
    return int.from_bytes(hashlib.blake2b(plain.tobytes(), digest_size=8).digest(), "little")


def draw_permutation_ranks(seed: int, index: int, players: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the rank of each player in a random order: ``ranks[i]`` is the position of player i."""
    return generator(seed, index).permutation(players)
