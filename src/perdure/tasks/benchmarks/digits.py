"""The 8 x 8 digits that come with scikit-learn: a benchmark without a download."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perdure.tasks.source import Source, in_memory, stratified_rows

if TYPE_CHECKING:
    from pathlib import Path


def read_digits(_folder: Path, _progress: bool) -> Source:
    """Return the 1797 digits, ink 0..16 scaled to 0..255, a quarter of each class as test set.

    The data set has no split of its own: this one is drawn once, from a fixed seed, whatever the
    benchmark's seed is.
    """
    from sklearn.datasets import load_digits  # noqa: PLC0415  (two seconds only this benchmark should pay)

    ink, labels = load_digits(return_X_y=True)
    x = np.rint(ink * (255 / 16)).astype(np.uint8).reshape(-1, 1, 8, 8)
    train, test = stratified_rows(labels, 0.25, np.random.default_rng(0))
    return Source(
        train=in_memory(x[train], labels[train]),
        test=in_memory(x[test], labels[test]),
        class_names=tuple(str(digit) for digit in range(10)),
        mean=(0.3057,),
        std=(0.3760,),
    )
