"""Samples of untrained networks, and the number of examples that a precision needs: bias, coverage, cost and resuming."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perdure import audit as audit_records
from perdure import learners, tasks
from perdure.audits import ShapcSettings
from perdure.audits.shapc.allocation import decide_counts, first_counts, half_width, task_costs
from perdure.audits.shapc.runner import audit_shapc
from perdure.audits.shapc.scores import make_calibration
from perdure.audits.shapc.values import UNIT, ShapcValues, TaskValues, untrained_value_names
from perdure.base.errors import InputError
from perdure.engine.local import LocalEngine
from perdure.metrics.intervals import (
    BetweenGroups,
    VarianceComponent,
    interval_with_groups,
    student_interval,
)
from tests.helpers.checkpoints import audited, examples, folder, net, perturbed
from tests.helpers.crashes import contents

SETTINGS = ShapcSettings()
LATER = {0: (1, 2, 3), 1: (2, 3), 2: (3,)}
COSTS = task_costs(SETTINGS, LATER)
AVAILABLE = dict.fromkeys(LATER, 400)
SPREAD = {0: 0.03, 1: 0.05, 2: 0.12}
FLOOR, SCORE, BETWEEN = 0.25, 0.4, 0.006
PRECISION = 0.025


@pytest.mark.parametrize(
    ("options", "samples"),
    [
        ({}, 25),
        ({"samples": 800}, 100),
        ({"samples": 100}, 20),
        ({"samples": 8}, 8),
        ({"untrained_samples": 60}, 60),
        ({"method": "lime"}, 200),
        ({"method": "lime", "untrained_samples": 60}, 60),
        ({"method": "grad", "untrained_samples": 60}, 200),
    ],
)
def test_untrained_networks_have_fewer_samples_if_maps_are_means_over_draws(options, samples):
    assert ShapcSettings(**options).for_floor().samples == samples


def test_too_few_samples_of_untrained_networks_are_refused():
    with pytest.raises(InputError, match="untrained_samples: expected at least 2, one for each half, got 1"):
        ShapcSettings(untrained_samples=1)


def test_the_floor_with_fewer_samples_is_that_with_all(tmp_path):
    base = net()
    path = folder(tmp_path / "floor", base, perturbed(base, 1.0))
    data = [examples(0, 64), examples(1, 64)]
    few, all_samples = (
        audited(path, data=data, examples=64, samples=160, untrained=5, untrained_samples=samples)
        for samples in (None, 160)
    )
    names = untrained_value_names(ShapcSettings(untrained=5))
    tables = [make_values(result).values for result in (few, all_samples)]
    differences = np.mean([tables[0][name] - tables[1][name] for name in names], axis=0)[:, 0]
    error = differences.std(ddof=1) / math.sqrt(len(differences))
    assert abs(differences.mean()) < 3 * error
    assert error < 0.02
    assert few.mean == all_samples.mean  # the columns of the paper are the same


def make_values(result) -> TaskValues:
    """Return the stored values of the first task of an audit."""
    known = {name: value for name, value in result.settings.items() if name != "explained"}
    settings = ShapcSettings(**{**known, "shares": tuple(result.settings["shares"])})
    stored = ShapcValues.open(Path(result.folder), settings, {0: (1,)})
    return stored.tasks[0].first(len(result.examples[0]))


class Population:
    """An endless stream of examples of each task, with skewed values, whose expectations are known."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        networks = SETTINGS.untrained + 1
        self.effects = {tau: BETWEEN * self.rng.normal(size=networks) for tau in LATER}
        self.tables = {tau: self._table(tau, 0) for tau in LATER}

    @property
    def truth(self) -> float:
        """The score relative to one more untrained network."""
        limit = FLOOR + SCORE * (1 - FLOOR)
        floors = [FLOOR + effects[-1] for effects in self.effects.values()]
        return float(np.mean([(limit - floor) / (1 - floor) for floor in floors]))

    def first(self, counts: dict[int, int]) -> dict[int, TaskValues]:
        """Return the first examples of each task."""
        for tau, count in counts.items():
            if count > len(self.tables[tau]):
                self.tables[tau] = self.tables[tau].joined(self._table(tau, count - len(self.tables[tau])))
        return {tau: self.tables[tau].first(count) for tau, count in counts.items()}

    def _table(self, tau: int, count: int) -> TaskValues:
        steps = len(LATER[tau])
        own = self.rng.gamma(4, 0.5, size=(count, 1)) - 2  # mean 0, standard deviation 1, skewness 1
        values = {
            "limit": FLOOR
            + SCORE * (1 - FLOOR)
            + SPREAD[tau] * (0.8 * own + 0.6 * self.rng.normal(size=(count, steps))),
            "shapc": np.zeros((count, steps)),
        }
        for index, name in enumerate(untrained_value_names(SETTINGS)):
            floors = FLOOR + self.effects[tau][index] + 0.02 * own[:, 0] + 0.05 * self.rng.normal(size=count)
            values[name] = np.repeat(floors[:, None], steps, axis=1)
        zeros = np.zeros(count, dtype=np.int64)
        return TaskValues(zeros, zeros, np.zeros((count, 1 + steps), np.int64), values)


def cost(counts: dict[int, int]) -> float:
    """Return the samples of some examples."""
    return sum(count * COSTS[tau] for tau, count in counts.items())


def allocated(population: Population) -> tuple[dict[int, int], list[dict[int, int]]]:
    """Return the examples of each task when the precision is reached, and those of all looks before."""
    counts, looks = first_counts(AVAILABLE), []
    while True:
        looks.append(counts)
        decision = decide_counts(population.first(counts), 4, SETTINGS, COSTS, AVAILABLE, PRECISION)
        if decision.counts is None:
            return counts, looks
        counts = decision.counts


def equal_rounds(population: Population) -> dict[int, int]:
    """Return the same number of examples of each task, increased until the precision is reached."""
    for count in range(UNIT, 400, UNIT):
        counts = dict.fromkeys(LATER, count)
        calibration = make_calibration(population.first(counts), SETTINGS)
        assert calibration is not None
        if half_width(calibration.interval()) <= PRECISION:
            return counts
    raise AssertionError("the precision is not reached")


def test_a_precision_gives_an_unbiased_score_a_covering_interval_and_costs_less_than_equal_numbers():
    errors, hits, costs, equal, looks = [], [], [], [], []
    for seed in range(150):
        population = Population(seed)
        counts, steps = allocated(population)
        calibration = make_calibration(population.first(counts), SETTINGS)
        assert calibration is not None
        score = calibration.interval()
        errors.append(score.mean - population.truth)
        hits.append(score.low <= population.truth <= score.high)
        assert half_width(score) <= PRECISION
        costs.append(cost(counts))
        looks.append(len(steps))
        if seed < 40:
            equal.append(cost(equal_rounds(population)))
    error = np.std(errors, ddof=1) / math.sqrt(len(errors))
    assert abs(np.mean(errors)) < 3 * error
    assert error < 0.002
    assert np.mean(hits) >= 0.92
    assert np.mean(costs[:40]) < 0.9 * np.mean(equal)
    assert max(looks) <= 6


def test_more_examples_go_to_tasks_whose_examples_differ_more_for_their_cost():
    counts, _ = allocated(Population(0))
    assert counts[2] > counts[1] >= counts[0]
    assert all(count % UNIT == 0 for count in counts.values())


def test_the_numbers_of_examples_do_not_depend_on_the_means():
    population = Population(3)
    tasks = population.first(first_counts(AVAILABLE))
    decision = decide_counts(tasks, 4, SETTINGS, COSTS, AVAILABLE, PRECISION)
    for task in tasks.values():
        # Deviations from the mean change their sign.
        task.values["limit"] = 2 * task.values["limit"].mean(axis=0) - task.values["limit"]
        for name in untrained_value_names(SETTINGS):
            task.values[name] = 2 * task.values[name].mean(axis=0) - task.values[name]
    assert decide_counts(tasks, 4, SETTINGS, COSTS, AVAILABLE, PRECISION) == decision


def test_a_precision_below_the_differences_between_untrained_networks_ends_with_that_reason():
    population = Population(1)
    for tau in LATER:
        population.effects[tau] *= 10
    counts, precision = dict.fromkeys(LATER, 160), 0.01
    decision = decide_counts(population.first(counts), 4, SETTINGS, COSTS, AVAILABLE, precision)
    assert decision.counts is None
    assert decision.stopped.startswith("±0.01 cannot be reached with 12 untrained networks")


def test_without_differences_between_groups_the_interval_is_that_of_student():
    components = [VarianceComponent(0.02, 9), VarianceComponent(0.01, 15)]
    expected = student_interval(0.3, components, 26)
    interval = interval_with_groups(0.3, components, BetweenGroups(0.0, 4, 0.0, 1.2), 26)
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high), abs=0.01)
    only_groups = interval_with_groups(0.3, [VarianceComponent(0.0, 9)], BetweenGroups(0.02, 4, 0.0, 1.0), 26)
    expected = student_interval(0.3, [VarianceComponent(0.02, 4)], 26)
    assert only_groups.high == pytest.approx(expected.high, rel=0.05)


def checkpoints(path: Path) -> tuple[Path, dict[str, Any]]:
    """Return a folder with three checkpoints, the last of which differs more, and options of its audit."""
    base = net()
    data = [examples(task, 200) for task in (0, 1, 0)]
    states = (base, perturbed(base, 0.3), perturbed(base, 2.0))
    return folder(path, *states), {"data": data, "examples": None, "precision": 0.12, "samples": 16, "untrained": 6}


def test_an_interrupted_audit_with_precision_resumes_with_bit_identical_files(tmp_path):
    path, options = checkpoints(tmp_path / "complete")
    complete = audited(path, **options)
    other, _ = checkpoints(tmp_path / "interrupted")

    def stop(done, total, estimate):
        if total > 2 and done == total - 1:  # within the second look
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        audited(other, **options, progress=stop)
    resumed = audited(other, **options)
    assert contents(other / "cache") == contents(path / "cache")
    assert resumed.calibrated == complete.calibrated
    assert half_width(complete.calibrated) <= 0.12
    # Values of a larger audit do not change what a precision uses.
    audited(other, **{**options, "precision": None, "examples": 40})
    again = audited(other, **options)
    assert again.calibrated == complete.calibrated
    assert again.mean == complete.mean


def test_workers_do_not_change_an_audit_with_precision(tmp_path):
    benchmark = tasks.load("split-digits", tasks=2, per_class=10)
    for name in ("one", "two"):
        run = learners.Run(benchmark, learners.get("naive"), "small-conv", training=learners.Training(epochs=1, lr=0.1))
        learners.execute(run, tmp_path / name)
    options: dict[str, Any] = {"samples": 8, "untrained": 4, "background": 10}
    limits: dict[str, Any] = {"precision": 0.2, "examples": 24}
    alone = audit_shapc(tmp_path / "one", settings=ShapcSettings(**options), **limits)
    with LocalEngine(2) as engine:
        audit = audit_records(tmp_path / "two", shapc=ShapcSettings(**options), **limits, engine=engine)
    assert audit.shapc[0].calibrated == alone.calibrated
    assert Path(audit.shapc[0].folder, "values.csv").read_bytes() == Path(alone.folder, "values.csv").read_bytes()
