"""Global importance of features of tables and words of texts: how it changed, with simultaneous intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from perdure.audits.shapc.runner import Halves
from perdure.comparisons.results import FeatureChange
from perdure.comparisons.versions import Position, Version, inputs_at
from perdure.explain.adapters.inputs import Series, Table, Tokens
from perdure.metrics.prediction_tests import PredictionTest, value_test
from perdure.metrics.simultaneous import FEWEST_EXAMPLES, simultaneous_intervals
from perdure.runs.display import MOST_NAMES, displayed_inputs

if TYPE_CHECKING:
    from perdure.comparisons.reasons import Explained

FloatArray = NDArray[np.float64]
LEVEL = 0.95


def importance_changes(old: Version, explained: Explained, seed: int) -> tuple[FeatureChange, ...]:
    """Return how the importance of each feature or word changed, largest change first; empty for images and series.

    The importance of a feature for one example is its share of the example's attributions, |a_f| / sum |a|. It has no unit,
    so versions whose scores have different scales can be compared. Words that occur in fewer than five examples are left out.
    """
    players = _players(old, explained.positions)
    if players is None:
        return ()
    features, index = players
    before, after = (_shares(maps, index, len(features)) for maps in (explained.old, explained.new))
    has_attributions = ~np.isnan(before).all(axis=1) & ~np.isnan(after).all(axis=1)
    before, after = before[has_attributions], after[has_attributions]
    used = np.flatnonzero((~np.isnan(before) & ~np.isnan(after)).sum(axis=0) >= FEWEST_EXAMPLES)
    if not len(used):
        return ()
    before, after = before[:, used], after[:, used]
    intervals = simultaneous_intervals(after - before, LEVEL, seed)
    references = [_shares(maps, index, len(features))[has_attributions][:, used] for maps in explained.references]
    tests = _tests([before, *references, after]) if references else [None] * len(used)
    changes = [
        FeatureChange(
            feature=features[feature],
            old=float(np.nanmean(before[:, column])),
            new=float(np.nanmean(after[:, column])),
            mean=float(intervals.mean[column]),
            low=float(intervals.low[column]),
            high=float(intervals.high[column]),
            examples=int(intervals.n[column]),
            retraining=tests[column],
        )
        for column, feature in enumerate(used)
    ]
    return tuple(sorted(changes, key=lambda change: -abs(change.mean)))


def word_profiles(
    old: Version, positions: Sequence[Position], means: Sequence[NDArray[np.floating]]
) -> FloatArray | None:
    """Return the mean magnitude of each word's attributions for each version; None if the inputs are not texts.

    Positions of texts are not comparable features, words are.
    """
    if not isinstance(old.run.inputs, Tokens):
        return None
    players = _players(old, positions)
    if players is None:
        return None
    words, index = players
    profiles = [
        np.bincount(index.ravel(), weights=np.abs(values).reshape(len(index), -1).ravel(), minlength=len(words))
        for values in means
    ]
    return np.stack(profiles) / len(index)


def _tests(shares: Sequence[FloatArray]) -> list[PredictionTest | None]:
    """Test the importance of each feature under NEW, the last version, among the known ones (Bonferroni over features)."""
    means = np.stack([np.nanmean(values, axis=0) for values in shares])
    differences = shares[-1] - np.mean(shares[:-1], axis=0)
    count = (~np.isnan(differences)).sum(axis=0)
    variances = np.nanvar(differences, axis=0, ddof=1) / count
    features = means.shape[1]
    tests: list[PredictionTest | None] = []
    for column in range(features):
        test = value_test(
            means[:, column],
            example_variance=float(variances[column]),
            examples=int(count[column]),
            level=1 - (1 - LEVEL) / features,
        )
        tests.append(
            PredictionTest(
                test.observed,
                test.expected,
                test.low,
                test.high,
                min(1.0, test.p * features),
                test.versions,
                test.reason,
                LEVEL,
            )
        )
    return tests


def _players(old: Version, positions: Sequence[Position]) -> tuple[list[str], NDArray[np.int64]] | None:
    """Return the names of features or words, and which of them each value of each map belongs to, (examples, values)."""
    description, form = old.run.inputs, old.run.data.form
    rows = np.concatenate([inputs_at(old, [position]).cpu().numpy().reshape(1, -1) for position in positions])
    if isinstance(description, Series) or inputs_at(old, positions[:1]).dim() != 2:
        return None
    displayed = displayed_inputs(description, form, rows)
    if displayed is None:
        return None
    if isinstance(description, Tokens):
        numbers: dict[str, int] = {}
        index = [[numbers.setdefault(word, len(numbers)) for word in words] for words in displayed.names]
        return list(numbers), np.array(index)
    if form is not None:
        features = [name.partition(" = ")[0] for name in displayed.names[0]]
    else:
        features = list((description if isinstance(description, Table) else Table()).features(rows.shape[1]))
    if len(features) > MOST_NAMES:
        return None
    return features, np.tile(np.arange(len(features)), (len(rows), 1))


def _shares(maps: Halves, index: NDArray[np.int64], features: int) -> FloatArray:
    """Return each feature's share of the attributions of each example, (examples, features); NaN for absent words."""
    values = np.abs((maps[0] + maps[1]) / 2).reshape(len(index), -1).astype(np.float64)
    total = values.sum(axis=1, keepdims=True)
    shares = np.divide(values, total, out=np.full_like(values, np.nan), where=total > 0)
    table = np.full((len(index), features), np.nan)
    for row, (numbers, row_shares) in enumerate(zip(index, shares, strict=True)):
        sums = np.bincount(numbers, weights=row_shares, minlength=features)
        present = np.unique(numbers)
        table[row, present] = sums[present]
    return table
