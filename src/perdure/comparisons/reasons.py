"""The reasons of two versions: calibrated SHAPC per example, relative to retrained versions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perdure.audits.shapc.runner import Halves, limit_of_pair_values, pair_values
from perdure.audits.shapc.scores import compute_reference_scores, make_calibration, mean_of_known
from perdure.audits.shapc.values import ShapcSettings, TaskValues, shapc_value_names, untrained_value_names
from perdure.comparisons.importance import importance_changes, word_profiles
from perdure.comparisons.maps import MapMaker
from perdure.comparisons.results import ReasonsChange
from perdure.comparisons.retraining_tests import attribution_profiles, attribution_scales, retraining_tests
from perdure.comparisons.versions import Position, Version
from perdure.metrics.prediction_tests import PredictionTest
from perdure.runs.untrained import UntrainedNetworks

SMALLEST_SPAN = 1e-6


@dataclass(frozen=True)
class Explained:
    """The maps of all versions on the same examples."""

    positions: Sequence[Position]
    old: Halves
    new: Halves
    references: tuple[Halves, ...]
    untrained: tuple[NDArray[np.float64], ...]
    """Noise-free consistency of OLD with each untrained network, for each example."""
    without_floor: str
    """Why there are no untrained networks; empty if there are."""

    def rows(self, task: int) -> NDArray[np.bool_]:
        """Return which examples belong to a task, as a mask."""
        return np.array([position.task == task for position in self.positions])

    @property
    def tasks(self) -> list[int]:
        """The tasks of the examples, in order."""
        return list(dict.fromkeys(position.task for position in self.positions))


def explain_versions(
    maker: MapMaker, old: Version, new: Version, references: Sequence[Version], positions: Sequence[Position]
) -> Explained:
    """Explain all versions, and untrained networks with OLD's architecture, on the same examples with the same draws."""
    settings = maker.settings
    explained_old, explained_new = maker.maps(old, positions), maker.maps(new, positions)
    explained_references = tuple(maker.maps(reference, positions) for reference in references)
    untrained = UntrainedNetworks(old.run, settings.untrained, settings.seed)
    networks = untrained.networks
    floor_maker = maker.for_floor()
    own = floor_maker.maps(old, positions) if networks else explained_old
    floors = tuple(
        limit_of_pair_values(own, floor_maker.maps(old, positions, network), floor_maker.settings)
        for network in networks
    )
    return Explained(
        positions, explained_old, explained_new, explained_references, floors, "" if floors else untrained.reason
    )


def compare_reasons(
    explained: Explained,
    old: Version,
    settings: ShapcSettings,
    examples: NDArray[np.int64],
    level: float = 0.95,
) -> ReasonsChange:
    """Return the similarity of the reasons of OLD and NEW; ``examples`` are their positions in the test set."""
    tables = _task_tables(explained, explained.new, settings)
    shapc, calibrated = compute_reference_scores(tables, len(tables), settings, explained.without_floor, level)
    floors = {task: _floor(tables[key], settings) for key, task in enumerate(explained.tasks)}
    similarities = np.full(len(explained.positions), np.nan)
    for key, task in enumerate(explained.tasks):
        limits = tables[key].values["limit"][:, 0]
        similarities[explained.rows(task)] = (limits - floors[task]) / (1 - floors[task])
    is_calibrated = make_calibration(tables, settings) is not None
    return ReasonsChange(
        calibrated=calibrated,
        shapc=shapc,
        per_example=similarities if is_calibrated else np.full_like(similarities, np.nan),
        similarities=similarities,
        examples=examples,
        importance=importance_changes(old, explained, settings.seed),
        reference_calibrated=tuple(
            _similarity(explained, explained.old, maps, settings, floors) for maps in explained.references
        ),
        reason=explained.without_floor or None,
    )


def _task_tables(explained: Explained, other: Halves, settings: ShapcSettings) -> dict[int, TaskValues]:
    """Return the values of each example, by task, in the form of a SHAPC audit with a single later step."""
    tables = {}
    quantities = pair_values(explained.old, other, settings)
    quantities |= dict(zip(untrained_value_names(settings), explained.untrained, strict=False))
    for key, task in enumerate(explained.tasks):
        rows = explained.rows(task)
        table = TaskValues.blank(int(rows.sum()), 1, shapc_value_names(settings))
        for name, values in quantities.items():
            table.values[name][:, 0] = values[rows]
        tables[key] = table
    return tables


def _floor(table: TaskValues, settings: ShapcSettings) -> float:
    """Return the mean similarity with untrained networks; 0 without them, so that the scale is that of SHAPC."""
    names = untrained_value_names(settings)
    values = np.concatenate([table.values[name][:, 0] for name in names]) if names else np.array([np.nan])
    floor = float(mean_of_known(values))
    return 0.0 if math.isnan(floor) or 1 - floor < SMALLEST_SPAN else floor


def _similarity(
    explained: Explained, first: Halves, second: Halves, settings: ShapcSettings, floors: Mapping[int, float]
) -> float:
    """Return the calibrated similarity of two versions: the mean over tasks of (mean limit - floor) / (1 - floor)."""
    limit = limit_of_pair_values(first, second, settings)
    scores = [
        (float(mean_of_known(limit[explained.rows(task)])) - floor) / (1 - floor) for task, floor in floors.items()
    ]
    return float(mean_of_known(np.array(scores)))


def reasons_tests(
    explained: Explained, old: Version, settings: ShapcSettings, correct: NDArray[np.float64] | None
) -> dict[str, PredictionTest]:
    """Test NEW against OLD and the references; empty without references. ``correct`` as in `retraining_tests`."""
    if not explained.references:
        return {}
    tables = _task_tables(explained, explained.new, settings)
    floors = {task: _floor(tables[key], settings) for key, task in enumerate(explained.tasks)}
    versions = [explained.old, *explained.references, explained.new]
    similarity = np.ones((len(versions), len(versions)))
    for first in range(len(versions)):
        for second in range(first):
            value = _similarity(explained, versions[first], versions[second], settings, floors)
            similarity[first, second] = similarity[second, first] = value
    means = [(first + second) / 2 for first, second in versions]
    profiles = word_profiles(old, explained.positions, means)
    return retraining_tests(
        similarity, attribution_profiles(means) if profiles is None else profiles, attribution_scales(means), correct
    )
