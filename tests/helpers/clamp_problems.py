"""Synthetic problems for the CLAMP tests, as in Appendix B of the paper."""

from dataclasses import dataclass

import numpy as np

from perdure import surrogate


@dataclass(frozen=True)
class Scenario:
    """A synthetic problem with its true parameters in gauge-fixed form."""

    curriculum: list[int]
    curves: np.ndarray
    gain: np.ndarray
    efficiency: np.ndarray
    retention: np.ndarray
    translation: np.ndarray


def appendix_b(seed: int, noise: float = 0.0) -> Scenario:
    """Return a problem as in Appendix B: 5 tasks, 3 algorithms, 9 random steps.

    A is uniform in [-1, 1] with diagonal 1; all other parameters are uniform in [0, 1].
    """
    rng = np.random.default_rng(seed)
    transfer = rng.uniform(-1, 1, (5, 5))
    np.fill_diagonal(transfer, 1)
    difficulty = rng.uniform(0, 1, 5)
    gamma, retention, translation = rng.uniform(0, 1, (3, 3))
    curriculum = rng.integers(0, 5, 9).tolist()
    curves = surrogate.simulate(curriculum, transfer, difficulty, gamma, retention, translation)
    noisy = np.clip(curves + rng.normal(0, noise, curves.shape), -1, 1)
    mean = gamma.mean()
    return Scenario(curriculum, noisy, transfer * mean / difficulty, gamma / mean, retention, translation / mean)
