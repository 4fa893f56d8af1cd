"""Random numbers that depend on a seed and on what they are for, never on batches, order or the network."""

from __future__ import annotations

import hashlib

import numpy as np
from torch import Tensor


def generator(seed: int, *counters: int) -> np.random.Generator:
    """Return the stream of its own that belongs to a seed and some counters (sample, permutation, pass)."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, *counters])))


def sample_key(sample: Tensor) -> int:
    """Return a number that stands for one sample, from its values as float32.

    The same sample gets the same draws wherever it stands in whichever batch, for every network and every
    checkpoint of it: their differences are then free of the part of the sampling noise they share.
    """
    plain = np.ascontiguousarray(sample.detach().cpu().float().numpy(), dtype="<f4")
    return int.from_bytes(hashlib.blake2b(plain.tobytes(), digest_size=8).digest(), "little")


def permutation_ranks(seed: int, index: int, players: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the places of the players in the random order with this number: ``ranks[i]`` is where player i stands."""
    return generator(seed, index).permutation(players)
