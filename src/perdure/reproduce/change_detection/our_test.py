"""Our test: are the importance of features, the reasons, their size and the accuracy within what retraining changes?"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from perdure.audits.shapc.runner import limit_of_pair_values
from perdure.comparisons.retraining_tests import attribution_profiles, attribution_scales, retraining_tests
from perdure.metrics import combine_p_values
from perdure.reproduce.change_detection.models import SETTINGS, ExplainedModel


class Similarities:
    """Similarity of the reasons of two models: the mean of SHAPC over the first ``examples``. Each pair is computed once."""

    def __init__(self, examples: int) -> None:
        self.examples = examples
        self._known: dict[tuple[tuple[str, int], ...], float] = {}

    def matrix(self, models: Sequence[ExplainedModel]) -> NDArray[np.float64]:
        """Return the similarity of each model to each other one."""
        matrix = np.full((len(models), len(models)), np.nan)
        for row, first in enumerate(models):
            for column, second in enumerate(models[:row]):
                matrix[row, column] = matrix[column, row] = self._between(first, second)
        return matrix

    def _between(self, first: ExplainedModel, second: ExplainedModel) -> float:
        pair = tuple(sorted([(first.kind, first.number), (second.kind, second.number)]))
        if pair not in self._known:
            halves = [(model.halves[0][: self.examples], model.halves[1][: self.examples]) for model in (first, second)]
            self._known[pair] = float(np.nanmean(limit_of_pair_values(halves[0], halves[1], SETTINGS)))
        return self._known[pair]


def retraining_p_value(known: Sequence[ExplainedModel], new: ExplainedModel, similarities: Similarities) -> float:
    """Return the p-value of the hypothesis that NEW is one more version retrained on the same data.

    The tests are those of `perdure.compare`. 1 if there is none, which happens only if all known versions are equal.
    """
    models = [*known, new]
    maps = [model.features[: similarities.examples] for model in models]
    tests = retraining_tests(
        similarities.matrix(models),
        attribution_profiles(maps),
        attribution_scales(maps),
        np.stack([model.correct for model in models]).astype(np.float64),
    )
    p = combine_p_values(tests)
    return 1.0 if math.isnan(p) else p
