"""What perdure trust finds travels: into the record, into the audit, its tables and figures, and into sentences."""

import csv
import io
import json
import math
from dataclasses import replace

import numpy as np
import pytest

from perdure.audits import Audit, Interval, TrustFindings, audit_runs, with_trust
from perdure.audits import audit as audit_records
from perdure.audits.findings import CHECKPOINTS, RETRAINING, keep_findings, read_findings
from perdure.audits.retraining.summaries import CheckpointSummary, RetrainingSummary
from perdure.base.errors import InputError
from perdure.metrics import Trend
from perdure.record import Recorder
from perdure.report import figures
from perdure.report.answers import answers
from perdure.report.trust.answers import bias_words, checkpoint_words, retraining_words, trend_words
from perdure.report.trust.tables import trust_tables
from tests.helpers.pages import HOSTILE, made_up_runs
from tests.helpers.trust_findings import (
    made_up_bias,
    made_up_checkpoints,
    made_up_findings,
    made_up_retraining,
    made_up_scores,
)


@pytest.fixture
def audit():
    return replace(audit_runs(made_up_runs(("si",), tasks=3)), trust=(made_up_findings("runs/si/0", "si"),))


def make_record(path):
    recorder = Recorder(path, tasks=2, learner="mine", seed=3)
    for _ in range(2):
        recorder.after_task(None, [0.9, 0.8])
    return path


def as_json(value):
    return json.loads(json.dumps(value.to_json(), allow_nan=False))


def test_summaries_come_back_from_json_as_they_were(audit):
    for part, kind in ((made_up_retraining(), RetrainingSummary), (made_up_checkpoints(), CheckpointSummary)):
        assert as_json(kind.from_json(as_json(part))) == as_json(part)
    back = TrustFindings.from_json(as_json(audit.trust[0]))
    assert as_json(back) == as_json(audit.trust[0])
    assert back.retraining is not None
    assert back.retraining.levels[0].scores["lrp"]["l2"] == made_up_retraining().levels[0].scores["lrp"]["l2"]
    assert back.checkpoints is not None
    assert (back.checkpoints.pairs["lrp"]["l2"][0].first, back.checkpoints.pairs["lrp"]["l2"][0].second) == (0, 1)
    assert as_json(audit.trust[0])["checkpoints"]["pairs"]["lrp"]["l2"][0]["first"] == 1


def test_an_audit_is_saved_with_its_findings_and_an_older_one_has_none(audit, tmp_path):
    audit.save(tmp_path / "audit.json")
    assert Audit.load(tmp_path / "audit.json").trust[0].to_json() == audit.trust[0].to_json()
    older = json.loads((tmp_path / "audit.json").read_text())
    del older["trust"]
    (tmp_path / "audit.json").write_text(json.dumps({**older, "schema": 2}))
    assert Audit.load(tmp_path / "audit.json").trust == ()


def test_findings_are_left_in_the_record_and_found_by_every_audit(tmp_path):
    record = make_record(tmp_path / "r")
    assert audit_records(record).trust == ()
    keep_findings(record, checkpoints=made_up_checkpoints())
    (found,) = audit_records(record).trust
    assert (found.run, found.learner, found.seed) == (str(record), "mine", 3)
    assert found.retraining is None
    # A later measurement of another part leaves the first as it is.
    keep_findings(record, retraining=made_up_retraining())
    made_up_bias().save(record / "trust/bias.json")
    (whole,) = audit_records(record).trust
    assert as_json(whole)["checkpoints"] == as_json(found)["checkpoints"]
    assert whole.bias is not None
    assert whole.bias.verdict is not None
    # An audit whose records are gone keeps what it knew.
    elsewhere = replace(audit_records(record), trust=())
    assert as_json(with_trust(elsewhere).trust[0]) == as_json(whole)
    known = audit_records(record)
    record.rename(tmp_path / "moved")
    assert with_trust(known).trust == known.trust


def test_a_report_shows_what_was_found_after_the_audit(perdure, tmp_path):
    record = make_record(tmp_path / "runs/r")
    perdure("audit", "runs")
    perdure("report", "runs", "-o", "page.html")
    assert "perdure trust RECORD --retrain" in (tmp_path / "page.html").read_text()
    keep_findings(record, made_up_retraining(), made_up_checkpoints())
    made_up_bias().save(record / "trust/bias.json")
    perdure("report", "runs", "-o", "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "Of 3 explainers 1 separate agreement from error" in page
    assert "expected_gradients is the least biased" in page
    assert "As noise on the weights grows, MeGe falls for 3 of 3 explainers" in page
    assert "Not measured. To have it" not in page


@pytest.mark.parametrize("file", [RETRAINING, CHECKPOINTS])
def test_a_damaged_or_newer_summary_is_named(tmp_path, file):
    record = make_record(tmp_path / "r")
    keep_findings(record, made_up_retraining(), made_up_checkpoints())
    value = json.loads((record / file).read_text())
    (record / file).write_text(json.dumps({**value, "schema": 99}))
    with pytest.raises(InputError, match="schema 99"):
        read_findings(str(record), "mine", "", 3)
    (record / file).write_text(json.dumps({"schema": 1}))
    with pytest.raises(InputError, match=f"{file.name}: a field is missing"):
        audit_records(record)


def test_the_tables_hold_every_score(audit, tmp_path):
    found = audit.trust[0]
    written = {path.name for path in audit.tables(tmp_path)}
    names = ("bias", "bias-shares", "retraining", "trends", "checkpoints", "steps")
    assert {f"trust-{name}.{ending}" for name in names for ending in ("csv", "tex", "md")} <= written

    def rows(name):
        return list(csv.DictReader(io.StringIO((tmp_path / f"{name}.csv").read_text())))

    retrained = rows("trust-retraining")
    assert len(retrained) == 5 * 5 * 2  # levels, methods, distances
    chosen = next(
        row for row in retrained if (row["explainer"], row["noise"], row["distance"]) == ("lrp", "30 %", "l2-unit")
    )
    scores = found.retraining.levels[3].scores["lrp"]["l2-unit"]
    assert float(chosen["MeGe ↑"]) == scores.mege.mean
    assert float(chosen["ReCo, rates ↑ low"]) == scores.reco_rate.low
    assert (chosen["S="], chosen["S≠"]) == (str(scores.same), str(scores.different))
    assert {row["noise"] for row in retrained} >= {"0 %", "30 %, top 1"}
    assert {row["explainer"] for row in retrained} >= {"constant (control)", "random (control)"}
    trends = rows("trust-trends")
    assert len(trends) == 5 * 2  # methods, distances; the made-up summary has a trend of one score
    assert (trends[0]["score"], float(trends[0]["rank correlation"]), float(trends[0]["p"])) == ("MeGe", -0.9, 0.001)
    bias = rows("trust-bias")
    assert float(bias[1]["behind the least biased"]) == found.bias.verdict.rivals[0].difference
    assert bias[2]["judged at"] == "layer conv, not ranked"
    assert len(rows("trust-bias-shares")) == 5 * len(found.bias.shares) * 2
    compared = rows("trust-checkpoints")[0]
    assert (
        float(compared["trained again: MeGe ↑"])
        == found.retraining.levels[0].scores["expected_gradients"]["l2"].mege.mean
    )
    assert rows("trust-steps")[0]["ReCo, rates ↑"] == ""
    # Biases are small: a table for a paper shows four digits of them.
    assert f"{found.bias.explainers[0].overall.mean:.4f} [" in (tmp_path / "trust-bias.tex").read_text()
    # The page shows one distance.
    (page,) = [table for table in trust_tables(audit, every=False) if table.name == "trust-retraining"]
    assert len(page.rows) == 5 * 5
    assert "distance" not in page.header


def test_the_figures_show_every_explainer_and_control(audit):
    drawn = figures(audit)
    noise, dots = drawn["trust-noise"], drawn["trust-checkpoints"]
    assert "trust-bias" in drawn
    assert len(noise.axes[0].lines) == 5
    first = audit.trust[0].retraining.levels[3].scores["lrp"]["l2-unit"]
    assert np.asarray(noise.axes[0].lines[1].get_ydata())[3] == first.mege.mean
    assert [text.get_text() for text in noise.axes[0].get_xticklabels()] == ["0", "5", "10", "30"]
    assert len(dots.axes[0].lines) == 5 * 4  # an interval and a dot, of checkpoints and of networks trained again
    flat = replace(made_up_retraining(), levels=made_up_retraining().levels[:1])
    still = replace(audit, trust=(replace(audit.trust[0], bias=None, retraining=flat),))
    assert not {"trust-bias", "trust-noise"} & set(figures(still))


def test_the_cards_answer_with_numbers_intervals_and_readings(audit):
    believed, survived = answers(audit, audit.learners[0])[3:]
    bias = audit.trust[0].bias
    assert believed.headline is not None
    assert believed.headline.value == f"{bias.verdict.bias.mean:.4f}"
    assert f"{bias.verdict.bias.low:.4f} to {bias.verdict.bias.high:.4f}, 20 samples" in believed.headline.margin
    assert believed.sentences[0] == bias.verdict.reading
    assert "a map without bias would score 0.0030" in believed.sentences[1]
    assert "constant" in believed.sentences[2]
    assert "random" in believed.sentences[2]
    assert survived.headline is not None
    assert survived.headline.value == "0.35"
    assert "Of 3 explainers 1 separate agreement from error" in survived.sentences[0]
    assert survived.sentences[0].endswith(": expected_gradients.")
    assert "MeGe 0.55, where it is 0.35 for noise and 0.94 for a map that says nothing" in survived.sentences[1]
    assert (
        "is 0.43 [0.41, 0.46], between networks trained again 0.55: the two intervals do not meet"
        in survived.sentences[2]
    )


def test_what_is_missing_says_what_to_run_and_chance_is_called_chance(audit):
    bare = replace(audit, trust=())
    assert [one.command for one in answers(bare, bare.learners[0])[3:]] == [
        "perdure trust RECORD",
        "perdure trust RECORD --retrain",
    ]
    summary = made_up_retraining(("grad",))
    level = summary.levels[0]

    def with_scores(scores):
        changed = replace(level, scores={**level.scores, "grad": {"l2-unit": scores}, "random": level.scores["random"]})
        return retraining_words(replace(summary, levels=(changed,)), "l2-unit")

    chance = with_scores(made_up_scores(0.5, 0.1, 0.2, 0.2))
    assert "(p 0.200), which these samples cannot tell from chance" in chance[0]
    assert "more than chance gives" in with_scores(made_up_scores(0.5, 0.4, 0.001, 0.001))[0]
    nothing = Interval(math.nan, math.nan, math.nan, 9, "none", "S!= is empty")
    unknown = replace(made_up_scores(0.5, 0.1, math.nan), reco_rate=nothing)
    assert "is not known: S!= is empty" in with_scores(unknown)[0]
    none = retraining_words(
        replace(summary, levels=(replace(level, scores={**level.scores, "lime": level.scores["random"]}),)), "l2"
    )
    assert "Maps of grad" in none[-1]


def test_the_trend_is_told_where_there_are_levels_enough():
    summary = made_up_retraining()
    flat, lacking = Trend(0.0, 0.5, 2, 4, 0), Trend(math.nan, math.nan, 2, 2, 0, "a trend needs at least three levels")

    def told(**trends):
        changed = {name: {"l2": {"mege": trends.get(name, lacking)}} for name in summary.methods}
        return trend_words(replace(summary, trends=changed), "l2")

    falls = Trend(-1.0, 0.001, 2, 4, 0)
    (sentence,) = told(lrp=falls, gradcam=flat, random=falls)
    assert "MeGe falls for 1 of 2 explainers" in sentence
    assert sentence.endswith(": lrp.")
    assert told(gradcam=flat)[0].endswith("falls for 0 of 1 explainers (Page's test over folds, p < 0.05, a guide).")
    assert told() == []


def test_checkpoints_without_retraining_are_told_alone(audit):
    alone = replace(audit.trust[0], retraining=None, bias=None)
    told = answers(replace(audit, trust=(alone,)), audit.learners[0])[4]
    assert told.headline is None
    assert told.sentences[0].startswith("Networks have not been trained again")
    assert told.sentences[1] == "Between its own checkpoints MeGe of expected_gradients is 0.43 [0.41, 0.46]."
    near = replace(
        audit.trust[0], checkpoints=replace(made_up_checkpoints(), scores=made_up_retraining().levels[0].scores)
    )
    assert "the intervals overlap" in checkpoint_words(near, made_up_retraining())[0]


def test_several_runs_are_told_one_by_one(audit):
    two = (audit.trust[0], replace(audit.trust[0], run="runs/si/1", seed=1))
    believed, survived = answers(replace(audit, trust=two), audit.learners[0])[3:]
    assert [one.split(":")[0] for one in believed.sentences] == ["Seed 0", "Seed 1"]
    assert believed.headline is None
    assert survived.sentences[-1] == "2 runs were measured; this is seed 0."


def test_a_comparison_without_a_ranking_says_so(audit):
    lost = replace(made_up_bias(), verdict=None, estimator="exact")
    told = answers(replace(audit, trust=(replace(audit.trust[0], bias=lost),)), audit.learners[0])[3]
    assert "no explainer could be ranked" in told.missing
    assert "Judged by exact Shapley values." in bias_words(lost)


def test_a_hostile_explainer_stays_text_in_latex_and_markdown(tmp_path):
    runs = made_up_runs((HOSTILE,), tasks=3)
    found = made_up_findings(f"runs/{HOSTILE}/0", HOSTILE, (HOSTILE,))
    replace(audit_runs(runs), trust=(found,)).tables(tmp_path)
    assert "<script" not in (tmp_path / "trust-bias.md").read_text()
    assert r"\textless{}/script\textgreater{}" in (tmp_path / "trust-retraining.tex").read_text()
