"""Audits of runs, and their files."""

import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import perdure
from perdure import metrics
from perdure.audits import Audit, audit_measures, audit_runs
from perdure.audits import audit as audit_records
from perdure.base.errors import InputError
from perdure.importers import read_accuracy_matrices
from perdure.record import Cost, Evaluations, Measurements, Record

R = np.array([[0.9, 0.2, 0.1], [0.6, 0.8, 0.3], [0.5, 0.7, 1.0]])
COST = Cost.from_rows([[10, 0, 0, 0, 99, 10], [10, 20, 0, 50, 99, 10], [10, 20, 5, 100, 99, 10]])


def run(learner="ewc", table=R, **more) -> Measurements:
    return Measurements(
        run=f"{learner}.csv", learner=learner, table=np.asarray(table, float), curriculum=(0, 1, 2), **more
    )


def test_the_measures_of_a_run_equal_the_metrics():
    values = audit_measures(run(cost=COST, lifetime_bits=200))
    assert values["A"] == metrics.accuracy(R)
    assert values["forgetting"] == metrics.average_forgetting(R)
    assert values["MS"] == pytest.approx((1 + 1 / 3 + 1 / 3) / 3)
    assert values["SSS"] == pytest.approx(1 - (0 + 0.25 + 0.5) / 3)
    assert values["CE"] == pytest.approx(1.0)
    with_teachers = audit_measures(run(cost=COST, lifetime_bits=200), count_teachers=True)
    assert with_teachers["MS"] == pytest.approx((1 + 1 / 3 + 10 / 35) / 3)


def test_each_missing_cost_has_its_own_reason():
    values = audit_measures(run())
    assert metrics.reason(values["MS"]) == "no costs were given"
    values = audit_measures(run(cost=COST))
    assert "lifetime_bits" in (metrics.reason(values["SSS"]) or "")
    half = Cost.from_rows([[10, 0, 0, 0, math.nan, 10]] * 3)
    assert "operations" in (metrics.reason(audit_measures(run(cost=half))["CE"]) or "")


def test_evaluations_within_tasks_give_minimum_accuracy_and_windowed_forgetting():
    evaluations = Evaluations(np.array([[0.9, 0.2, 0.1], [0.0, 0.5, 0.2], *R[1:].tolist()]), (0, 1, 1, 2))
    values = audit_measures(run(evaluations=evaluations))
    assert values["min_accuracy"] == pytest.approx((0.0 + 0.7) / 2)
    assert values["windowed_forgetting"] == pytest.approx(metrics.windowed_forgetting(evaluations.values, 10))
    assert "windowed_forgetting" not in audit_measures(run())


def test_runs_are_averaged_and_learners_compared():
    better = np.clip(R + 0.1, 0, 1)
    audit = audit_runs(
        [run(*arguments, cost=COST, lifetime_bits=200) for arguments in (("ewc", R), ("ewc", better), ("si", R * 0.5))]
    )
    ewc, si = audit.learners
    assert ewc.measures["A"].mean == pytest.approx((metrics.accuracy(R) + metrics.accuracy(better)) / 2)
    assert ewc.measures["A"].method == "t"
    np.testing.assert_allclose(ewc.table, (R + better) / 2)
    criteria = {name: ewc.measures[name].mean for name in metrics.CRITERIA}
    assert ewc.scores["W2"].mean == pytest.approx(metrics.cl_score(criteria, "W2"))
    assert si.cl_stability["W1"].reason == "stability needs at least two runs"
    assert audit.first_places["ewc"] > audit.first_places["si"]
    assert audit.correlation == {}


def test_three_learners_give_a_correlation_of_the_criteria():
    audit = audit_runs([run(name, R * scale) for name, scale in (("a", 1.0), ("b", 0.7), ("c", 0.4))])
    assert audit.correlation["A"]["FWT"] == pytest.approx(1)
    assert audit.correlation["A"]["REM"] == pytest.approx(-1)
    assert "MS" not in audit.correlation


def test_scores_with_missing_criteria_are_missing_unless_renormalised():
    plain = audit_runs([run()])
    assert "MS, SSS, CE missing" in plain.learners[0].reasons()["CL_score W1"]
    renormalised = audit_runs([run()], renormalise=True)
    assert renormalised.partial_scores
    assert not math.isnan(renormalised.learners[0].scores["W1"].mean)


def test_an_audit_is_equal_after_saving_and_loading(tmp_path):
    audit = audit_runs([run(cost=COST), run("si", R * 0.5), run("mas", R * 0.3)])
    audit.save(tmp_path / "audit.json")
    loaded = Audit.load(tmp_path / "audit.json")
    assert loaded.to_json() == audit.to_json()
    assert loaded.learners[0].reasons() == audit.learners[0].reasons()
    assert "average accuracy" in loaded.details()
    (tmp_path / "x.json").write_text('{"schema": 6}')
    with pytest.raises(InputError, match="schema 6"):
        Audit.load(tmp_path / "x.json")
    (tmp_path / "y.json").write_text('{"schema": 1}')
    with pytest.raises(InputError, match="malformed"):
        Audit.load(tmp_path / "y.json")


def test_invalid_runs_are_refused_by_name():
    with pytest.raises(
        InputError, match=r"ewc\.csv: accuracy matrix, step 1, task 1: expected a number between 0 and 1, got 90"
    ):
        audit_runs([run(table=R * 100)])
    with pytest.raises(InputError, match="cannot be averaged"):
        audit_runs([run(), Measurements("b.csv", "ewc", R[:2, :2], (0, 1))])
    with pytest.raises(InputError, match=r"its lr is 0\.2, that of ewc\.csv 0\.1"):
        audit_runs([run(conditions={"lr": 0.1}), run(conditions={"lr": 0.2})])
    with pytest.raises(InputError, match="costs: expected one row for each of 2 steps, got 3 rows"):
        audit_runs([Measurements("b.csv", "ewc", R[:2, :2], (0, 1), cost=COST)])
    with pytest.raises(InputError, match="no run"):
        audit_runs([])


def test_a_user_loop_is_audited_and_reported(tmp_path):
    recorder = perdure.Recorder(tmp_path / "mine", tasks=3)
    for row in R:
        recorder.after_task(accuracy=row)
    audit = perdure.audit(tmp_path / "mine")
    assert audit.learners[0].measures["average_accuracy"].mean == pytest.approx(2.2 / 3)
    page = audit.report(tmp_path / "report.html")
    assert "Is our continual learner reliable?" in page.read_text()


def test_unfinished_runs_are_excluded_or_marked(tmp_path):
    for seed, steps in ((0, 3), (1, 1), (2, 0)):
        recorder = perdure.Recorder(tmp_path / f"done/{seed}", tasks=3, learner="ewc", seed=seed)
        for row in R[:steps]:
            recorder.after_task(accuracy=row)
    half = perdure.Recorder(tmp_path / "half/0", tasks=3, learner="si")
    half.after_task(accuracy=R[0])
    audit = audit_records(tmp_path)
    assert [entry.title for entry in audit.learners] == ["ewc", "si (unfinished)"]
    assert len(audit.learners[0].runs) == 1
    assert sorted(audit.left_out.values()) == [
        "no task is finished yet",
        "unfinished, while other runs of the learner are finished",
    ]
    page = audit.report(tmp_path / "report.html").read_text()
    assert "si (unfinished)" in page
    assert "Records not included" in page
    assert "Not included:" in str(audit)
    with pytest.raises(InputError, match="nothing to audit"):
        audit_records(tmp_path / "done/2")


def test_equal_records_without_a_finished_task_are_not_called_copies(tmp_path):
    for name in ("a", "b", "c"):
        recorder = perdure.Recorder(tmp_path / name, tasks=3)
    for row in R:
        recorder.after_task(accuracy=row)
    shutil.copytree(tmp_path / "c", tmp_path / "d")
    assert perdure.audit(tmp_path).left_out == {
        str(tmp_path / "a"): "no task is finished yet",
        str(tmp_path / "b"): "no task is finished yet",
        str(tmp_path / "d"): f"a copy of {tmp_path / 'c'}",
    }


def test_learners_of_different_benchmarks_are_not_ranked_together():
    audit = audit_runs([run("a", benchmark="x"), run("b", benchmark="y")], weights="W3")
    assert audit.first_places == {}
    assert list(audit.learners[0].scores) == ["W3"]


def test_published_replay_forgets_less_than_naive(shared_data):
    folder = shared_data / "accuracy-matrices"
    files = [folder / "naive_seed42.csv", *sorted(folder.glob("replay2000_uniform_seed*.csv"))]
    audit = audit_runs([run for file in files for run in read_accuracy_matrices(file)])
    naive, replay = audit.learners
    assert replay.learner == "replay2000_uniform"
    assert len(replay.runs) == 3
    assert replay.measures["forgetting"].mean < naive.measures["forgetting"].mean
    assert naive.measures["REM"].mean == pytest.approx(
        1 - (9 * 0.544 + 8 * 0.48 + 7 * 0.539 + 6 * 0.537 + 5 * 0.468 + 4 * 0.699 + 3 * 0.637 + 2 * 0.69 + 0.745) / 45
    )
    assert "45 of 45" in naive.reasons()["FWT"]


def test_worst_case_accuracy_at_task_boundaries_is_marked_as_an_upper_bound(tmp_path):
    boundaries = audit_runs([run()])
    (entry,) = boundaries.learners
    assert entry.evaluated == "task boundaries"
    assert set(entry.notes) == {"min_accuracy", "worst_case_accuracy", "average_anytime_accuracy"}
    assert "anytime" not in " ".join(boundaries.remarks())
    assert "equals incremental accuracy" in " ".join(boundaries.remarks(variants=True))
    assert entry.notes["min_accuracy"].startswith("upper bound")
    assert boundaries.label("min_accuracy") == "min-ACC upper bound"
    assert "WC-ACC upper bound" in boundaries.details()
    assert "evaluated at task boundaries only" in boundaries.details()
    assert "lowest accuracy" not in boundaries.details()
    dense = Evaluations(np.array([[0.9, 0.2, 0.1], [0.0, 0.5, 0.2], *R[1:].tolist()]), (0, 1, 1, 2))
    within = audit_runs([run(evaluations=dense)])
    assert within.learners[0].evaluated == "within tasks"
    assert within.learners[0].notes == {}
    assert within.label("min_accuracy") == "min-ACC"
    assert "upper bound" not in within.details()
    # The true value is below the bound.
    assert within.learners[0].measures["min_accuracy"].mean < entry.measures["min_accuracy"].mean
    mixed = audit_runs([run(), run("si", evaluations=dense)])
    assert mixed.label("min_accuracy") == "min-ACC"
    assert any(remark.startswith("min-ACC, WC-ACC (ewc): upper bound") for remark in mixed.remarks())
    stored = boundaries.to_json()["learners"][0]
    assert stored["evaluated"] == "task boundaries"
    # Audits of earlier versions do not say when accuracies were evaluated.
    del stored["evaluated"], stored["notes"]
    older = Audit.from_json({**boundaries.to_json(), "learners": [stored]})
    assert older.label("min_accuracy") == "min-ACC upper bound"
    assert older.remarks() == boundaries.remarks()


def test_runs_of_which_only_some_were_evaluated_within_tasks_are_upper_bounds():
    dense = Evaluations(np.array([[0.9, 0.2, 0.1], [0.0, 0.5, 0.2], *R[1:].tolist()]), (0, 1, 1, 2))
    for runs in ([run(evaluations=dense), run()], [run(), run(evaluations=dense)]):
        (entry,) = audit_runs(runs).learners
        assert entry.evaluated == "task boundaries"
        assert entry.reasons()["windowed_forgetting"] == "not all runs were evaluated within tasks"


def test_the_epsilon_of_computational_efficiency_is_a_stored_setting(tmp_path):
    cost = Cost.from_rows([[10, 0, 0, 0, 199, 10]] * 3)
    default = audit_runs([run(cost=cost, lifetime_bits=200)])
    assert default.learners[0].measures["CE"].mean == pytest.approx(0.5)
    assert default.settings["ce_epsilon"] == 10
    assert not any("epsilon" in remark for remark in default.remarks())
    other = audit_runs([run(cost=cost, lifetime_bits=200)], ce_epsilon=5)
    assert other.learners[0].measures["CE"].mean == pytest.approx(0.25)
    assert other.learners[0].scores["W3"].mean < default.learners[0].scores["W3"].mean
    assert "CE, and CL_score with it, for epsilon = 5 instead of 10" in other.details()
    other.save(tmp_path / "audit.json")
    assert Audit.load(tmp_path / "audit.json").settings == other.settings
    for invalid in (0, -1, math.inf, math.nan):
        with pytest.raises(InputError, match="--ce-epsilon"):
            audit_runs([run()], ce_epsilon=invalid)


def test_variants_are_stored_and_intransigence_is_relative_to_cumulative_or_joint():
    def named(learner, seed, table=R, **more):
        return replace(run(learner, table, **more), run=f"{learner}_seed{seed}.csv")

    upper = [np.array([[0.9, 0.2, 0.1], [0.6, 0.9 + seed / 100, 0.3], [0.5, 0.7, 1.0]]) for seed in range(2)]
    cumulative = [named("cumulative", seed, upper[seed]) for seed in range(2)]
    joint = [replace(named("joint", 0, [[0.8, 0.9, 0.7]]), curriculum=(2,), is_reference=True)]
    audit = audit_runs([named("ewc", 0), named("ewc", 1), *cumulative, *joint])
    ewc, reference, joint_entry = audit.learners
    assert ewc.variant_values["intransigence"] == pytest.approx((0.1 / 3, 0.11 / 3))  # each seed with its own reference
    assert ewc.variants["gem_backward_transfer"].mean == metrics.backward_transfer(R, "gem")
    assert ewc.notes["intransigence"] == "relative to cumulative"
    assert reference.reasons(variants=True)["intransigence"] == "it is measured relative to cumulative"
    assert "reference" in joint_entry.reasons(variants=True)["intransigence"]
    assert audit.to_json()["learners"][0]["variants"]["intransigence"]["mean"] == pytest.approx(0.105 / 3)
    without_cumulative = audit_runs([named("ewc", 5), *joint]).learners[0]
    assert without_cumulative.variants["intransigence"].mean == pytest.approx((-0.1 + 0.1 - 0.3) / 3)
    assert "trained on all tasks at once" in without_cumulative.notes["intransigence"]
    alone = audit_runs([named("ewc", 0)])
    assert alone.learners[0].reasons(variants=True)["intransigence"] == (
        "needs a run of cumulative or joint on the same benchmark"
    )
    assert "intransigence" not in alone.learners[0].reasons()
    assert "intransigence" in [name for names in alone.missing(variants=True).values() for name in names["ewc"]]


def test_clamp_does_not_derive_the_number_of_examples_from_rounded_accuracies(tmp_path):
    """PyCIL logs two decimals of a percentage: they look like multiples of 1 / 10000."""
    from perdure.importers import read
    from perdure.importers.record_writing import write_records

    logs = Path(__file__).parents[1] / "data" / "frameworks" / "pycil" / "logs"
    runs = [run for run in read(logs).runs if run.learner in ("ewc", "finetune")]
    write_records(runs, tmp_path)
    for measurements in (runs[0].measurements, Record.open(next(tmp_path.rglob("record.json")).parent).measurements):
        assert not measurements.exact
    (properties,) = audit_records(tmp_path, clamp=True).clamp
    assert any("number of test examples is unknown" in note for note in properties.notes)
