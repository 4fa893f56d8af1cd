"""Differences of accuracy metrics between learners: pairing, correction, and words where there is no interval."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import perdure
from perdure import metrics
from perdure.audits import AccuracyDifference, Audit, audit_runs
from perdure.audits.performance import COMPARED_METRICS, run_seed
from perdure.record import Evaluations, Measurements

TASKS = 3


def table(final: float) -> np.ndarray:
    """Return an accuracy matrix whose old tasks end at ``final``."""
    steps, columns = np.indices((TASKS, TASKS))
    return np.where(steps == columns, 0.95, np.where(steps > columns, final, 0.1))


def runs_of(learner: str, finals: dict[int, float], **more) -> list[Measurements]:
    curriculum = tuple(range(TASKS))
    return [
        Measurements(f"{learner}/seed-{seed}", learner, table(final), curriculum, **more)
        for seed, final in finals.items()
    ]


def entries(audit: Audit, metric: str = "average_accuracy") -> dict[tuple[str, str], AccuracyDifference]:
    return {(entry.first, entry.second): entry for entry in audit.accuracy_differences if entry.metric == metric}


EWC = {0: 0.50, 1: 0.55, 2: 0.45, 3: 0.52}
SI = {3: 0.40, 2: 0.36, 1: 0.47, 9: 0.99}
NAIVE = {0: 0.10, 1: 0.12, 2: 0.15, 3: 0.11}


def test_differences_use_the_common_seeds_whatever_their_order_and_are_corrected_over_all_pairs():
    audit = audit_runs([*runs_of("ewc", EWC), *runs_of("si", SI), *runs_of("naive", NAIVE)])
    pairs = entries(audit)
    assert list(pairs) == [("ewc", "si"), ("ewc", "naive"), ("si", "naive")]
    assert pairs["ewc", "si"].seeds == (1, 2, 3)

    def accuracies(finals, seeds):
        return [metrics.average_accuracy(table(finals[seed])) for seed in seeds]

    tests = [
        stats.ttest_rel(accuracies(EWC, (1, 2, 3)), accuracies(SI, (1, 2, 3))),
        stats.ttest_rel(accuracies(EWC, range(4)), accuracies(NAIVE, range(4))),
        stats.ttest_rel(accuracies(SI, (1, 2, 3)), accuracies(NAIVE, (1, 2, 3))),
    ]
    for entry, test, corrected in zip(
        pairs.values(), tests, metrics.holm([test.pvalue for test in tests]), strict=True
    ):
        interval = test.confidence_interval(0.95)
        assert (entry.difference.low, entry.difference.high) == pytest.approx((interval.low, interval.high))
        assert entry.p == pytest.approx(corrected)
        assert entry.family == 3
    assert str(pairs["ewc", "naive"]).startswith("average accuracy of ewc is higher than that of naive: +0.2")
    assert "(Holm, 3 pairs), 4 seeds" in str(pairs["ewc", "naive"])
    # Each metric is a family of its own, and metrics that were not measured for both have no entry.
    assert {entry.metric for entry in audit.accuracy_differences} == set(COMPARED_METRICS)


def test_two_common_seeds_are_enough_and_a_difference_may_be_negative():
    audit = audit_runs([*runs_of("naive", {0: 0.10, 1: 0.12}), *runs_of("ewc", {0: 0.50, 1: 0.54})])
    (entry,) = entries(audit).values()
    assert (entry.difference.runs, entry.family) == (2, 1)
    assert entry.difference.low < entry.difference.mean < 0
    assert entry.p == entry.difference.p < 0.05
    assert "average accuracy of naive is lower than that of ewc" in str(entry)


def test_one_common_seed_has_a_difference_without_an_interval():
    audit = audit_runs([*runs_of("ewc", {0: 0.5}), *runs_of("si", {0: 0.2, 1: 0.3})])
    (entry,) = entries(audit).values()
    assert entry.difference.mean == pytest.approx(2 * 0.3 / 3)
    assert math.isnan(entry.difference.low)
    assert math.isnan(entry.p)
    assert (entry.family, entry.difference.reason) == (0, "one common run is not enough for an interval")
    assert "without an interval" in str(entry)


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (runs_of("si", {7: 0.3, 8: 0.4}), "they have no common seed"),
        (
            [replace(run, run="si/0") for run in runs_of("si", {0: 0.3, 1: 0.4})],
            "si has several runs with the same seed",
        ),
        ([replace(run, complete=False) for run in runs_of("si", SI)], "the runs of si are unfinished"),
        (
            [replace(run, curriculum=(2, 1, 0), table=run.table[:, ::-1]) for run in runs_of("si", SI)],
            "curricula differ",
        ),
        ([Measurements("si/0", "si", np.eye(2), (0, 1))], "different numbers of tasks (3 and 2)"),
    ],
)
def test_pairs_that_cannot_be_compared_say_why(other, reason):
    (entry,) = entries(audit_runs([*runs_of("ewc", EWC), *other])).values()
    assert math.isnan(entry.difference.mean)
    assert reason in (entry.difference.reason or "")
    assert reason in str(entry)


def test_learners_of_different_benchmarks_are_not_compared():
    audit = audit_runs([*runs_of("ewc", EWC, benchmark="x"), *runs_of("si", SI, benchmark="y")])
    assert audit.accuracy_differences == ()


def test_a_reference_is_compared_by_its_average_accuracy_only():
    joint = [
        Measurements(f"joint/seed-{seed}", "joint", np.full((1, TASKS), 0.9 + seed / 100), (2,), is_reference=True)
        for seed in EWC
    ]
    audit = audit_runs([*runs_of("ewc", EWC), *joint])
    assert [entry.metric for entry in audit.accuracy_differences] == ["average_accuracy"]
    assert audit.accuracy_differences[0].difference.runs == 4
    assert audit.learners[1].notes == {}


def test_differences_that_are_the_same_in_all_runs_have_no_p_value_but_count_in_the_family():
    same = {seed: final - 0.1 for seed, final in EWC.items()}
    audit = audit_runs([*runs_of("ewc", EWC), *runs_of("si", same), *runs_of("naive", NAIVE)])
    pairs = entries(audit)
    assert math.isnan(pairs["ewc", "si"].p)
    assert pairs["ewc", "si"].difference.reason == "the difference is the same in all runs"
    assert pairs["ewc", "naive"].family == 3
    assert pairs["ewc", "naive"].p == pytest.approx(
        metrics.holm([pairs["ewc", "naive"].difference.p, pairs["si", "naive"].difference.p, 1.0])[0]
    )


def test_worst_case_accuracies_with_and_without_evaluations_within_tasks_are_not_compared():
    dense = Evaluations(np.vstack([table(0.4), table(0.4)[-1:]]), (0, 1, 2, 2))
    audit = audit_runs([*runs_of("ewc", EWC), *runs_of("si", SI, evaluations=dense)])
    (entry,) = entries(audit, "worst_case_accuracy").values()
    assert entry.difference.reason == "accuracies were evaluated at different times (task boundaries; within tasks)"
    (compared,) = entries(audit).values()
    assert compared.tested


def test_the_differences_are_stored_and_loaded(tmp_path):
    audit = audit_runs([*runs_of("ewc", EWC), *runs_of("si", SI), *runs_of("naive", {0: 0.1})])
    audit.save(tmp_path / "audit.json")
    loaded = Audit.load(tmp_path / "audit.json")
    assert loaded.to_json() == audit.to_json()
    stored = json.loads((tmp_path / "audit.json").read_text())["accuracy_differences"][0]
    assert (stored["metric"], stored["first"], stored["second"]) == ("average_accuracy", "ewc", "si")
    assert stored["difference"]["low"] < stored["difference"]["mean"] < stored["difference"]["high"]
    assert (stored["family"], stored["seeds"]) == (1, [1, 2, 3])


def test_seeds_of_records_come_from_the_record_and_those_of_files_from_their_names(tmp_path):
    for learner in ("a", "b"):
        for seed in (3, 4):
            recorder = perdure.Recorder(tmp_path / learner / str(seed + 10), tasks=2, learner=learner, seed=seed)
            for row in ([0.9, 0.1], [0.5 + seed / 100 * (learner == "a"), 0.8]):
                recorder.after_task(accuracy=row)
    audit = perdure.audit(tmp_path)
    assert audit.learners[0].seeds == (3, 4)
    assert entries(audit)["a", "b"].seeds == (3, 4)
    assert {
        name: run_seed(name)
        for name in ("ewc_seed0.csv", "x/ewc-s12.json", "ewc/run2.csv", "ewc/seed-1/accuracy.csv", "all.json: run 3")
    } == {
        "ewc_seed0.csv": 0,
        "x/ewc-s12.json": 12,
        "ewc/run2.csv": 2,
        "ewc/seed-1/accuracy.csv": 1,
        "all.json: run 3": 3,
    }
    assert run_seed("ewc.csv") is None
    assert run_seed("results/cifar10.csv") is None
