"""Seeds of the random streams of a run, one for each purpose."""

from __future__ import annotations

import numpy as np

_PURPOSES = ("network", "order", "augmentation", "learner", "global", "part", "trial")


def derived_seed(seed: int, purpose: str, *numbers: int) -> int:
    """Return a seed for one purpose, step and epoch, so that the random streams of a run are independent."""
    sequence = np.random.SeedSequence([seed, _PURPOSES.index(purpose), *numbers])
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))
