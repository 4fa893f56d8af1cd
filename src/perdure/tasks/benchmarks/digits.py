"""The 8 x 8 digits of scikit-learn, a benchmark without a download."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perdure.tasks.benchmark import Source, examples_in_memory, keep_random_state, stratified_source_rows
from perdure.tasks.registry import Description, register_benchmark

if TYPE_CHECKING:
    from pathlib import Path


@register_benchmark(
    Description(
        name="split-digits",
        title="8x8 digits of scikit-learn",
        classes=10,
        tasks=5,
        scenario="class",
        input_shape=(1, 8, 8),
        source="embedded (scikit-learn)",
        licence="CC BY 4.0",
        citation="Alpaydin & Kaynak 1998, Optical Recognition of Handwritten Digits (UCI)",
    )
)
def read_digits(_folder: Path, _progress: bool) -> Source:
    """Return the 1797 digits, gray values 0..16 scaled to 0..255, with a quarter of each class as test set.

    scikit-learn provides no test set. This one is drawn from a fixed seed, independent of the seed of the benchmark.
    """
    with keep_random_state():
        from sklearn.datasets import load_digits  # noqa: PLC0415  (takes two seconds)

    ink, labels = load_digits(return_X_y=True)
    x = np.rint(ink * (255 / 16)).astype(np.uint8).reshape(-1, 1, 8, 8)
    train, test = stratified_source_rows(labels, 0.25, np.random.default_rng(0))
    return Source(
        train=examples_in_memory(x[train], labels[train]),
        test=examples_in_memory(x[test], labels[test]),
        class_names=tuple(str(digit) for digit in range(10)),
        mean=(0.3057,),
        std=(0.3760,),
    )
