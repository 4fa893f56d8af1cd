"""The answer of an audit: ranking, verdicts on the five questions, and the sentence."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import perdure
from perdure.audits import Audit, RunProvenance, audit_runs
from perdure.audits import audit as audit_records
from perdure.audits.audit import add_shapc_to_audit
from perdure.audits.shapc.results import LearnerDifference
from perdure.audits.summary import QUESTIONS, summarize
from perdure.audits.summary.explanations import freedom_from_bias, similarity_after_retraining
from perdure.audits.summary.summarize import ranks, runs_and_examples
from perdure.audits.summary.text import NUMBERS_ONLY, runs_word, summary_table, summary_text, wrapped
from perdure.base.errors import InputError
from perdure.metrics import Interval, binomial_interval
from perdure.metrics.intervals import Difference
from perdure.record import Measurements
from tests.helpers.pages import HOSTILE, synthetic_audit, synthetic_runs, synthetic_shapc
from tests.helpers.trust_findings import synthetic_findings


def between(low, high):
    return Interval((low + high) / 2, low, high, 3, "t")


def point(value):
    return Interval(value, math.nan, math.nan, 1, "none")


def run(learner, seed, final, learned=0.95, examples=()):
    """A run over three tasks: each is learned to ``learned`` and falls to ``final``."""
    table = np.full((3, 3), np.nan)
    for step in range(3):
        table[step, : step + 1] = final
        table[step, step] = learned
    table[-1, -1] = final if final > 0.5 else learned
    return Measurements(f"runs/{learner}/{seed}", learner, table, (0, 1, 2), test_examples=examples)


def three_seeds(learner, final, spread=0.004, **options):
    return [run(learner, seed, max(0.0, final + spread * (seed - 1)), **options) for seed in range(3)]


def test_learners_whose_intervals_overlap_with_the_best_share_its_rank():
    values = [between(0.1, 0.2), between(0.88, 0.95), between(0.8, 0.9), between(0.7, 0.85), between(0.6, 0.69)]
    assert ranks(values, True) == [5, 1, 1, 3, 4]
    assert ranks([between(0.0, 0.1), between(0.05, 0.2), between(0.3, 0.4)], False) == [1, 1, 3]
    assert ranks([point(0.5), point(0.6), point(math.nan)], True) == [2, 1, 3]
    assert ranks([], True) == []


def test_the_sentence_names_the_best_learner_and_those_that_should_not_be_released():
    runs = [*three_seeds("naive", 0.0), *three_seeds("rehearsal", 0.9), *three_seeds("ewc", 0.0)]
    summary = audit_runs(runs).summary()
    assert summary.sentence == (
        "Rehearsal is the best of 3 learners: 90 % accuracy. Naive and ewc should not be released: they forget everything."
    )
    assert [learner.rank for learner in summary.learners] == [1, 2, 2]
    assert [learner["performance"].rating for learner in summary.learners] == ["good", "bad", "bad"]


def test_the_sentence_of_learners_that_cannot_be_told_apart():
    runs = [*three_seeds("first", 0.90, 0.03), *three_seeds("second", 0.91, 0.03)]
    assert audit_runs(runs).summary().sentence == (
        "Second and first are the most accurate of 2 learners and cannot be told apart (91 %, 90 %)."
    )


def test_no_learner_is_reliable_if_the_best_is_bad():
    runs = [*three_seeds("naive", 0.0), *three_seeds("ewc", 0.1)]
    sentence = audit_runs(runs).summary().sentence
    assert sentence.startswith("None of the 2 learners is reliable: the best, ")
    assert "should not be released" in sentence


def test_a_single_run_has_an_interval_over_test_examples_if_their_number_is_known():
    with_examples = audit_runs([run("ewc", 0, 0.9, examples=(100, 100, 100))]).summary().learners[0]["performance"]
    assert with_examples.rating == "good"
    part = binomial_interval(90, 100)
    assert with_examples.value is not None
    below = math.sqrt(3 * (part.mean - part.low) ** 2) / 3
    assert with_examples.value.low == pytest.approx(0.9 - below)
    assert with_examples.basis == "300 test examples of one run"
    without = audit_runs([run("ewc", 0, 0.9)]).summary()
    assert without.learners[0]["performance"].rating == "undecided"
    assert "one run" in without.learners[0]["performance"].reason


def test_the_interval_over_test_examples_covers_the_accuracy():
    rng = np.random.default_rng(0)
    truth, covered = np.array([0.95, 0.7, 0.5]), []
    for _ in range(400):
        table = np.tile(rng.binomial(60, truth) / 60, (3, 1))
        entry = audit_runs([Measurements("r", "x", table, (0, 1, 2), test_examples=(60, 60, 60))]).learners[0]
        from perdure.audits.summary.summarize import accuracy_over_examples

        value = accuracy_over_examples(entry)
        covered.append(value.low <= truth.mean() <= value.high)
    assert np.mean(covered) >= 0.94


def test_single_runs_are_ranked_by_value_and_the_sentence_says_so():
    summary = audit_runs([run("a", 0, 0.6), run("b", 0, 0.9)]).summary()
    assert [learner.learner for learner in summary.learners] == ["b", "a"]
    assert [learner.rank for learner in summary.learners] == [1, 2]
    assert "without intervals the ranking can change" in summary.sentence


def test_a_policy_changes_ranking_and_verdicts():
    runs = [*three_seeds("a", 0.9), *three_seeds("b", 0.7)]
    audit = audit_runs(runs)
    strict = audit.summary({"verdicts": {"performance": {"good": 0.99, "bad": 0.95}}})
    assert [learner["performance"].rating for learner in strict.learners] == ["bad", "bad"]
    kept = audit.summary(
        {"rank_by": "forgetting", "verdicts": {"performance": {"metric": "forgetting", "good": 0.1, "bad": 0.2}}}
    )
    assert [learner.learner for learner in kept.learners] == ["a", "b"]
    assert [learner["performance"].metric for learner in kept.learners] == ["forgetting", "forgetting"]
    assert [learner["performance"].rating for learner in kept.learners] == ["good", "bad"]
    first, second = (kept.learners[index]["performance"].positions for index in range(2))
    assert first is not None
    assert second is not None
    assert first[0] <= first[1] <= first[2]
    assert first[1] > second[1]  # further right is better, also if lower values are better
    with pytest.raises(InputError, match="rank_by: this audit has no average_loss"):
        audit.summary({"rank_by": "average_loss"})


def test_a_learner_that_has_forgotten_most_has_no_score_on_reasons():
    audit = synthetic_audit(("rehearsal", "naive"))
    by_name = {learner.learner: learner for learner in audit.verdicts}
    assert by_name["naive"]["reasons"].rating == "undefined"
    assert "no reasons left to keep" in by_name["naive"]["reasons"].reason
    assert by_name["rehearsal"]["reasons"].note == f"at {100 * by_name['rehearsal'].accuracy:.0f} % accuracy"
    row = next(line for line in summary_text(summarize(audit)).splitlines() if " naive " in line)
    assert f"{100 * audit.learners[1].measures['shapc_calibrated'].mean:.0f} %" not in row.split("[")[-1]


def test_ties_are_ordered_by_reasons_only_if_both_are_decided():
    audit = audit_runs([*three_seeds("a", 0.9, 0.03), *three_seeds("b", 0.91, 0.03)])
    assert [learner.learner for learner in audit.verdicts] == ["b", "a"]
    trusted = replace(audit, trust=(synthetic_findings("runs/a/0", "a"),))
    assert trusted.verdicts[1]["trust"].rating != "not measured"
    assert [learner.learner for learner in trusted.verdicts] == ["b", "a"]  # b was not measured, which is not worse


def test_references_have_no_rank_and_come_last():
    summary = synthetic_audit(("rehearsal", "naive")).summary()
    assert summary.learners[-1].learner == "joint"
    assert summary.learners[-1].rank is None
    assert not any("joint" in what for what, _ in summary.uncertain)


def test_freedom_from_bias_is_relative_to_a_random_map():
    result = synthetic_findings("runs/a/0", "a").bias
    assert result is not None
    value = freedom_from_bias(result, "expected_gradients")
    bias, random = (result[name].per_example.mean(axis=(1, 2)) for name in ("expected_gradients", "random"))
    assert value.mean == pytest.approx(1 - bias.mean() / random.mean())
    assert value.low < value.mean < value.high
    assert freedom_from_bias(result, "random").mean == pytest.approx(0)


def test_the_interval_of_the_freedom_from_bias_covers():
    rng = np.random.default_rng(1)
    result = synthetic_findings("runs/a/0", "a").bias
    assert result is not None
    covered = []
    for _ in range(400):
        control = rng.gamma(20, 0.005, size=(20, 1, 1))
        bias = 0.3 * control * rng.gamma(25, 1 / 25, size=(20, 1, 1))
        explainers = [
            replace(entry, per_example=control if entry.method == "random" else bias) for entry in result.explainers
        ]
        value = freedom_from_bias(replace(result, explainers=tuple(explainers)), "expected_gradients")
        covered.append(value.low <= 0.7 <= value.high)
    assert 0.91 <= np.mean(covered) <= 0.985


def test_similarity_after_retraining_is_0_for_random_maps():
    summary = synthetic_findings("runs/a/0", "a").retraining
    assert summary is not None
    distance = "l2-unit" if "l2-unit" in summary.distances else summary.distances[0]
    scores = summary.levels[0].scores
    value = similarity_after_retraining(summary, "expected_gradients")
    mege, random = scores["expected_gradients"][distance].mege, scores["random"][distance].mege
    assert value.mean == pytest.approx((mege.mean - random.mean) / (1 - random.mean))
    assert value.low <= value.mean <= value.high
    assert similarity_after_retraining(summary, "random").mean == pytest.approx(0)


@pytest.mark.parametrize("count", [1, 2, 4, 13, 50])
def test_the_text_fits_80_columns(count):
    names = tuple(f"learner-with-a-long-name-{index}" for index in range(count))
    audit = synthetic_audit(names) if count <= 2 else audit_runs(synthetic_runs(names))
    text = str(audit)
    assert max(map(len, text.splitlines())) <= 80
    lines = summary_table(audit.summary()).lines()
    assert len(lines) == count + 2  # one table: a header, the learners and the reference
    assert all(question.short in lines[0] for question in QUESTIONS[: 3 if count <= 2 else 1])


def test_hostile_names_stay_on_their_line():
    text = str(synthetic_audit((HOSTILE, "a\nb\x1b[31m", "x" * 300)))
    assert "\x1b" not in text
    assert "a\\nb" in text
    assert max(map(len, text.splitlines())) <= 80 + len(HOSTILE)


def test_the_summary_is_in_the_json_and_ignored_when_it_is_read(tmp_path):
    audit = synthetic_audit(("rehearsal", "naive"))
    audit.save(tmp_path / "audit.json")
    stored = json.loads((tmp_path / "audit.json").read_text())
    assert stored["summary"]["learners"][0]["learner"] == "rehearsal"
    assert stored["summary"]["learners"][0]["performance"]["verdict"] == "good"
    loaded = Audit.load(tmp_path / "audit.json")
    assert loaded.summary().sentence == audit.summary().sentence
    assert loaded.to_json() == audit.to_json()


def test_losses_are_ranked_by_their_average_and_not_judged():
    table = np.array([[1.0, 2.0], [1.5, 0.5]])
    runs = [
        Measurements(f"r{i}", name, table * scale, (0, 1), measure="loss")
        for i, (name, scale) in enumerate((("a", 2.0), ("b", 1.0)))
    ]
    summary = audit_runs(runs).summary()
    assert [learner.learner for learner in summary.learners] == ["b", "a"]
    assert summary.learners[0]["performance"].rating == "undecided"
    assert summary.learners[0]["performance"].positions is None
    assert "B has the best value of 2 learners (an average loss of 1)" in summary.sentence
    assert [learner.to_json()["ranked_by"] for learner in summary.learners] == ["average_loss"] * 2


def test_the_texts_on_losses_name_them_and_their_direction_and_do_not_recommend_clamp():
    table = np.array([[1.0, 2.0], [1.5, 0.5]])
    runs = [
        Measurements(f"{name}_seed{seed}", name, table + 0.01 * seed, (0, 1), measure="loss")
        for name in ("a", "b")
        for seed in range(3)
    ]
    audit = audit_runs(runs)
    summary = audit.summary()
    assert summary.sentence == "A and b are the best of 2 learners and cannot be told apart (average loss: 1.01, 1.01)."
    text = " ".join(str(audit).split())
    assert "# learner Performance 1 a ? 1.01 [0.9852, 1.035] 1 b" in text  # a column for each question with a number
    assert "Performance: average loss, lower is better." in text
    assert "%" not in text
    assert "--clamp" not in text
    notebook = audit._repr_html_()
    assert "<th>average loss ↓</th><th>forgetting (loss) ↓</th>" in notebook
    assert "average accuracy" not in notebook


def test_a_policy_sets_thresholds_of_losses():
    table = np.array([[1.0, 2.0], [1.5, 0.5]])
    runs = [
        Measurements(f"{name}_seed{seed}", name, table * scale + 0.01 * seed, (0, 1), measure="loss")
        for name, scale in (("a", 1.0), ("b", 5.0))
        for seed in range(3)
    ]
    performance = {"metric": "average_loss", "good": 2.0, "bad": 4.0}
    summary = audit_runs(runs).summary({"verdicts": {"performance": performance}})
    assert [learner["performance"].rating for learner in summary.learners] == ["good", "bad"]
    assert summary.sentence == (
        "A is the best of 2 learners: an average loss of 1.01. B should not be released: it misses the threshold of average "
        "loss."
    )


def test_accuracies_next_to_losses_are_named_apart():
    table = np.array([[1.0, 0.2], [0.6, 0.9]])
    runs = [
        Measurements("a_seed0", "a", table, (0, 1), benchmark="one"),
        Measurements("b_seed0", "b", table, (0, 1), benchmark="two", measure="loss"),
    ]
    summary = audit_runs(runs).summary()
    assert [learner.ranked_by for learner in summary.learners] == ["average_accuracy", "average_loss"]
    text = " ".join(summary_text(summary).split())
    assert "Performance of b: average loss, lower is better." in text
    assert "On one: A reaches 75 % accuracy. On two: B reaches an average loss of 0.75." in text


def test_a_column_without_a_number_is_not_printed():
    """References have no verdict on reasons and causes, which is no reason for columns that nothing was measured for."""
    lines = summary_table(audit_runs(synthetic_runs(("rehearsal",))).summary()).lines()
    assert lines[0].split() == ["#", "learner", "Performance"]
    assert any("(reference)" in line for line in lines)


def test_each_benchmark_is_ranked_separately():
    runs = [
        replace(entry, benchmark=name, run=f"{name}/{entry.run}")
        for name, final in (("one", 0.9), ("two", 0.7))
        for entry in [*three_seeds("a", final), *three_seeds("b", final - 0.15)]
    ]
    summary = audit_runs(runs).summary()
    assert [(learner.benchmark, learner.rank) for learner in summary.learners] == [
        ("one", 1),
        ("one", 2),
        ("two", 1),
        ("two", 2),
    ]
    assert "On one: A is the best of 2 learners" in summary.sentence
    assert "On two: A is the best of 2 learners: 70 % accuracy, which is weak." in summary.sentence
    assert "one:" in summary_text(summary)


def contrasted_audit(p=None):
    """Two learners of the same accuracy, one with the same reasons as before and one with others."""
    runs = [*three_seeds("kept", 0.9, 0.03), *three_seeds("changed", 0.91, 0.03)]
    results = [
        replace(synthetic_shapc(run, index), calibrated=Interval(level + 0.01 * (index % 3), 0, 1, 6, "t"))
        for index, (run, level) in enumerate(zip(runs, [0.66] * 3 + [0.38] * 3, strict=True))
    ]
    audit = add_shapc_to_audit(audit_runs(runs), results)
    if p is None:
        return audit
    difference = Difference(0.27, 0.14, 0.41, 0.013, 3, 32)
    pairs = [("kept", "changed", p), ("kept", "other", 0.5), ("changed", "other", 0.5)]
    return replace(
        audit,
        differences=tuple(
            LearnerDifference(first, second, "", difference, corrected, measure)
            for measure in ("shapc_mean", "shapc_calibrated")
            for first, second, corrected in pairs
        ),
    )


def test_a_contrast_of_reasons_that_is_not_significant_is_uncertain():
    summary = contrasted_audit(0.079).summary()
    assert "most of its reasons are unchanged" in summary.sentence
    assert "Changed is as accurate (91 %), but most of its reasons have changed." in summary.sentence
    expected = (
        "Reasons of kept and changed: their verdicts differ, but the difference of their scores is not significant "
        "(p = 0.079, corrected for 3 pairs of learners)."
    )
    assert summary.caveats == (expected,)
    assert summary.to_json()["caveats"] == [expected]
    assert f"Uncertain: {expected}" in " ".join(summary_text(summary).split())
    assert contrasted_audit(0.01).summary().caveats == ()
    assert contrasted_audit().summary().caveats == (
        "Reasons of kept and changed: their verdicts differ, but the difference of their scores was not tested.",
    )


def test_learners_that_the_sentence_does_not_contrast_have_no_such_caveat():
    audit = audit_runs([*three_seeds("kept", 0.9, 0.03), *three_seeds("changed", 0.91, 0.03)])
    assert audit.summary().caveats == ()


def test_a_fit_to_single_visits_cannot_separate_forgetting_from_interference():
    audit = synthetic_audit(("rehearsal", "naive"))
    (line,) = audit.summary().caveats
    assert line.startswith("Causes: every task was trained once, so only the assumptions of the fitted model separate")
    fit = audit.clamp[0]
    again = replace(fit, curves=tuple(replace(block, curriculum=(0, 1, 0, 1)) for block in fit.curves))
    assert replace(audit, clamp=(again,)).summary().caveats == ()


def test_a_shared_rank_of_learners_without_an_interval_says_why():
    runs = [*three_seeds("replay", 0.9, 0.03), run("lwf", 0, 0.89), run("si", 0, 0.7), run("naive", 0, 0.6)]
    assert audit_runs(runs).summary().shared_ranks == (
        "Rank 1 is shared by replay and lwf: lwf has one run and no interval; its value lies within the interval of replay.",
        (
            "Lwf, si and naive have one run each and no interval, so they are ranked by value, and their order can change with "
            "more runs."
        ),
    )
    runs = [*three_seeds("replay", 0.9, 0.03), run("lwf", 0, 0.91)]
    assert audit_runs(runs).summary().shared_ranks == (
        "Rank 1 is shared by lwf and replay: lwf has one run and no interval; its value lies within the interval of replay.",
    )
    equal = audit_runs([run("a", 0, 0.9), run("b", 0, 0.9)]).summary().shared_ranks
    assert equal[0] == "Rank 1 is shared by a and b: their values are equal."


def test_a_shared_rank_with_intervals_names_the_best_of_three():
    runs = [*three_seeds("a", 0.9, 0.03), *three_seeds("b", 0.91, 0.03)]
    assert audit_runs(runs).summary().shared_ranks == ("Rank 1 is shared by b and a: their intervals overlap.",)
    third = audit_runs([*runs, *three_seeds("c", 0.89, 0.03)]).summary().shared_ranks
    assert third == ("Rank 1 is shared by b, a and c: the other intervals overlap with that of b.",)
    single = audit_runs([*runs, run("d", 0, 0.88)]).summary().shared_ranks
    assert single == (
        (
            "Rank 1 is shared by b, a and d: the interval of a overlaps with that of b; d has one run and no interval; its "
            "value lies within the interval of b."
        ),
    )


def test_numbers_on_explanations_state_the_run_and_the_examples():
    assert runs_and_examples([0], 20) == "one run (seed 0), 20 examples"
    assert runs_and_examples([0, 2], 40) == "2 runs (seeds 0, 2), 40 examples"
    assert runs_and_examples([None], 1) == "one run, 1 example"
    audit = replace(synthetic_audit(("a", "b"), seeds=3), trust=(synthetic_findings("runs/a/0", "a"),))
    verdicts = audit.verdicts[0]
    assert verdicts.runs == 3
    assert verdicts["trust"].basis == "one run (seed 0), 20 examples"
    assert verdicts["retraining"].basis == "one run (seed 0), 60 examples"
    assert verdicts["reasons"].basis == "3 runs"


def test_commands_have_the_paths_of_the_runs(tmp_path):
    audit = synthetic_audit(("a", "b"))
    assert audit.verdicts[0]["trust"].command == "perdure trust bias RUN"  # these runs are not records
    for name in ("one", "two"):
        (tmp_path / f"{name}.csv").write_text(".9,.2\n.8,.9\n")
    given = audit_records([tmp_path / "one.csv", tmp_path / "two.csv"])
    points = dict(given.summary().not_measured)
    command = f"perdure audit {tmp_path}/one.csv {tmp_path}/two.csv --clamp"
    assert points["Causes: Algorithm or tasks: what explains the curves?"] == command
    (needed,) = [point for point in points if NUMBERS_ONLY in point]
    assert needed.startswith("Reasons, Trust and Retraining: the networks are needed")
    assert "perdure.Recorder" in needed
    network = {"name": "small-conv"}
    provenance = [
        RunProvenance(f"my runs/{name}/seed-{seed}", name, "", seed, None, {}, network, {}, {}, {}, {"1": "0" * 64})
        for name in "ab"
        for seed in range(2)
    ]
    entries = [
        replace(entry, runs=tuple(f"my runs/{entry.learner}/seed-{seed}" for seed in range(2)))
        for entry in audit.learners
    ]
    recorded = replace(audit, learners=tuple(entries), provenance=tuple(provenance), shapc=())
    assert recorded.verdicts[0]["reasons"].command == "perdure audit 'my runs' --shapc"
    assert recorded.verdicts[1]["trust"].command == "perdure trust bias 'my runs/b/seed-0'"
    assert (
        "Trust (for a and b, one command for each): Can the explanations be trusted?",
        "perdure trust bias 'my runs/a/seed-0'",
    ) in recorded.summary().not_measured
    other = replace(provenance[0], run="elsewhere/a")
    assert runs_word(replace(recorded, provenance=(*provenance, other))) == "RUNS"  # no folder contains both


def test_the_text_says_which_intervals_do_not_fit():
    summary = contrasted_audit().summary()
    table = summary_table(summary, 40)
    assert table.without_intervals == ("Reasons",)
    text = " ".join(summary_text(summary, 40).split())
    assert "Intervals of Reasons do not fit: summary() and the report have them." in text
    assert summary_table(summary, 120).without_intervals == ()
    assert "do not fit" not in summary_text(summary, 120)


def test_a_number_and_its_percent_sign_stay_on_one_line():
    assert wrapped("learners (90 %, 90 %)", 13) == ["learners", "(90 %, 90 %)"]
    assert wrapped("learners (90 %, 90 %)", 12) == ["learners", "(90 %, 90 %)"]


def test_commands_for_a_record_of_an_own_loop_say_that_they_need_its_network(tmp_path):
    def recorded(folder, **references):
        recorder = perdure.Recorder(folder, tasks=2, learner="mine", **references)
        for _ in range(2):
            recorder.after_task(torch.nn.Linear(4, 2), accuracy=[0.9, 0.5])
        (learner,) = perdure.audit(folder).summary().learners
        return learner

    learner = recorded(tmp_path / "plain")
    needed = " --network FILE.py:FUNCTION --data FILE.py:NAME"
    assert learner["reasons"].command == f"perdure audit {tmp_path / 'plain'} --shapc{needed}"
    assert learner["trust"].command == f"perdure trust bias {tmp_path / 'plain'}{needed}"
    assert learner["causes"].command == f"perdure audit {tmp_path / 'plain'} --clamp"
    (tmp_path / "own.py").write_text("def make():\n    pass\n")
    learner = recorded(tmp_path / "named", network=f"{tmp_path / 'own.py'}:make")
    assert learner["reasons"].command == f"perdure audit {tmp_path / 'named'} --shapc"
