"""Evidence about reasons: SHAPC over the steps of a run, and the similarity of the reasons of target and baseline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from perdure.audits.shapc.results import ShapcResult
from perdure.audits.shapc.values import ShapcSettings, ShapcValues, untrained_value_names
from perdure.base.errors import InputError
from perdure.comparisons.gate.estimates import Estimator, NoEvidence
from perdure.comparisons.gate.targets import Target
from perdure.metrics import Missing
from perdure.metrics.missing import FloatArray
from perdure.policies import Estimate

if TYPE_CHECKING:
    from perdure.comparisons.gate.networks import Networks

EXPLAINED = 40
"""Test examples that are explained, unless a number is given: per task for SHAPC, in all for the reasons."""


@dataclass(frozen=True)
class Rounds:
    """Noise-free consistency and floor of each round of examples: one of each task, or one of each class and task."""

    values: FloatArray
    floors: FloatArray
    examples: int
    """Examples that were explained so far."""
    finished: bool
    """Whether all test examples are used."""


@dataclass
class ReasonsEvidence:
    """Explains the networks of target and baseline when a rule needs it; finished maps and values are reused."""

    networks: Callable[[], Networks]
    settings: ShapcSettings
    explained: int = EXPLAINED
    cache: Path | None = None
    progress: Callable[[str, int, int], None] | None = None

    def shapc_estimator(self, target: Target, metric: str) -> Estimator:
        """Return SHAPC-Mean or the calibrated score of a single run, over explained test examples."""
        _require_networks(target)

        def estimate(level: float) -> Estimate:
            result = self._shapc(target, 0, self.explained, level)
            value = result.mean if metric == "shapc_mean" else result.calibrated
            return Estimate(value, "examples", f"over {value.n} explained test examples, {result.settings['method']}")

        return estimate

    def shapc_values(self, target: Target, metric: str) -> list[float]:
        """Return SHAPC-Mean or the calibrated score of each run; a missing score carries its reason."""
        _require_networks(target)
        results = [self._shapc(target, index, self.explained) for index in range(len(target.models))]
        scores = [result.mean if metric == "shapc_mean" else result.calibrated for result in results]
        return [Missing(score.reason) if score.reason and score.mean != score.mean else score.mean for score in scores]

    def reasons_estimator(self) -> Estimator:
        """Return the calibrated similarity of the reasons of target and baseline."""
        old, new, _ = self._pair()

        def estimate(level: float) -> Estimate:
            from perdure.comparisons.comparison import compare  # noqa: PLC0415  (it needs torch)

            comparison = compare(
                old,
                new,
                settings=self.settings,
                examples=self.explained,
                cache=self.cache,
                level=level,
                progress=self.progress,
            )
            score = comparison.reasons.calibrated
            method = comparison.settings["method"]
            return Estimate(score, "examples", f"over {score.n} explained test examples, {method}")

        return estimate

    def reasons_rounds(self, count: int, seed: int) -> Rounds:
        """Explain target and baseline on ``count`` random examples of each task."""
        from perdure.audits.shapc.runner import checked_settings, limit_of_pair_values  # noqa: PLC0415
        from perdure.comparisons.maps import MapMaker, count_units, networks_to_explain  # noqa: PLC0415
        from perdure.comparisons.reasons import explain_versions  # noqa: PLC0415
        from perdure.comparisons.versions import Position  # noqa: PLC0415

        old, new, tasks = self._pair()
        settings = checked_settings(self.settings, old.run)
        orders = {
            task: np.random.default_rng([seed, task]).permutation(len(old.run.data.labels(task))) for task in tasks
        }
        shortest = min(len(order) for order in orders.values())
        used = min(count, shortest)
        positions = [Position(task, int(row)) for task in tasks for row in orders[task][:used]]
        total = count_units(positions) * networks_to_explain(2, settings)
        maker = MapMaker(old, settings, self.cache, self.progress, total)
        explained = explain_versions(maker, old, new, (), positions)
        if not explained.untrained:
            raise NoEvidence(explained.without_floor)
        values = limit_of_pair_values(explained.old, explained.new, settings)
        floors = np.mean(explained.untrained, axis=0)
        rounds = (_mean_over_tasks(part.reshape(len(tasks), used)) for part in (values, floors))
        return Rounds(*_known(*rounds), len(positions), used == shortest)

    def shapc_rounds(self, target: Target, count: int) -> Rounds:
        """Explain ``count`` examples per task of a run after each step; a round has one example of each class."""
        result = self._shapc(target, 0, count)
        tasks = _stored_values(result)
        per_task = []
        for values in tasks.values():
            known = values.first(count)
            floors = np.mean([known.values[name][:, 0] for name in untrained_value_names(_settings(result))], axis=0)
            classes = len(np.unique(known.label))
            blocks = len(known) // classes
            rows = slice(0, blocks * classes)
            per_task.append(
                [
                    np.nanmean(part.reshape(blocks, classes), axis=1)
                    for part in (np.nanmean(known.values["limit"], axis=1)[rows], floors[rows])
                ]
            )
        shortest = min(len(values) for values, _ in per_task)
        rounds = (np.mean([part[index][:shortest] for part in per_task], axis=0) for index in range(2))
        examples = sum(len(rows) for rows in result.examples.values())
        return Rounds(*_known(*rounds), examples, result.stopped == "all test examples")

    def _shapc(self, target: Target, index: int, examples: int, level: float = 0.95) -> ShapcResult:
        from perdure.audits.shapc.runner import audit_shapc  # noqa: PLC0415  (it needs torch)

        loading = self.networks().loading
        try:
            return audit_shapc(
                target.models[index],
                settings=self.settings,
                network=loading.network,
                data=loading.data,
                examples=examples,
                data_dir=loading.data_dir,
                device=loading.device,
                level=level,
            )
        except InputError as error:
            raise NoEvidence(f"SHAPC cannot be computed: {error}") from None

    def _pair(self) -> tuple[Any, Any, list[int]]:
        networks = self.networks()
        if networks.baseline is None:
            raise NoEvidence("no baseline was given (--baseline)")
        for side in (networks.target, networks.baseline):
            try:
                networks.version(side)
            except InputError as error:
                raise NoEvidence(f"its network cannot be loaded: {error}") from None
        if not (networks.target.is_single and networks.baseline.is_single):
            raise NoEvidence("it needs one run of the target and one of the baseline")
        return networks.pair


def _require_networks(target: Target) -> None:
    if not target.models:
        raise NoEvidence(f"{target.name}: these results hold no networks")


def _settings(result: ShapcResult) -> ShapcSettings:
    names = {field.name for field in fields(ShapcSettings)}
    known = {name: value for name, value in result.settings.items() if name in names}
    return ShapcSettings(**{**known, "shares": tuple(known["shares"])})


def _stored_values(result: ShapcResult) -> Any:
    later = {tau: tuple(range(tau + 1, len(result.curriculum))) for tau in result.table}
    return ShapcValues.open(Path(result.folder), _settings(result), later).tasks


def _mean_over_tasks(values: NDArray[Any]) -> FloatArray:
    """Return the mean over tasks of each round; NaN if an example has no important region."""
    means: FloatArray = values.mean(axis=0)
    return means


def _known(values: FloatArray, floors: FloatArray) -> tuple[FloatArray, FloatArray]:
    known = ~(np.isnan(values) | np.isnan(floors))
    return values[known], np.clip(floors[known], 0.0, 1.0)
