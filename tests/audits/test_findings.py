"""Findings of perdure trust: stored in the record, read by audits, and shown in tables, figures and sentences."""

import csv
import io
import json
import math
from dataclasses import replace

import numpy as np
import pytest

from perdure.audits import Audit, Interval, TrustFindings, add_trust_to_audit, audit_runs, serialization
from perdure.audits import audit as audit_records
from perdure.audits.results import CHECKPOINTS, RETRAINING, read_findings, save_findings
from perdure.audits.retraining.summaries import CheckpointSummary, RetrainingSummary
from perdure.base.errors import InputError
from perdure.exporters.trust_tables import trust_tables
from perdure.metrics import Trend
from perdure.record import Recorder
from perdure.report import exported_figures
from perdure.report.answers import answers
from perdure.report.trust.answers import bias_answer, checkpoints_answer, describe_trends, retraining_answer
from tests.helpers.pages import HOSTILE, synthetic_runs
from tests.helpers.trust_findings import (
    synthetic_bias,
    synthetic_checkpoints,
    synthetic_findings,
    synthetic_retraining,
    synthetic_scores,
)


@pytest.fixture
def audit():
    return replace(audit_runs(synthetic_runs(("si",), tasks=3)), trust=(synthetic_findings("runs/si/0", "si"),))


def make_record(path):
    recorder = Recorder(path, tasks=2, learner="mine", seed=3)
    for _ in range(2):
        recorder.after_task(None, [0.9, 0.8])
    return path


def as_json(value):
    """Return a result as JSON holds it."""
    return json.loads(json.dumps(serialization.to_json(value), allow_nan=False))


def test_summaries_are_equal_after_writing_and_reading_json(audit):
    for part, kind in ((synthetic_retraining(), RetrainingSummary), (synthetic_checkpoints(), CheckpointSummary)):
        assert as_json(serialization.from_json(as_json(part), kind)) == as_json(part)
    back = serialization.from_json(as_json(audit.trust[0]), TrustFindings)
    assert as_json(back) == as_json(audit.trust[0])
    assert back.retraining is not None
    assert back.retraining.levels[0].scores["lrp"]["l2"] == synthetic_retraining().levels[0].scores["lrp"]["l2"]
    assert back.checkpoints is not None
    assert (back.checkpoints.pairs["lrp"]["l2"][0].first, back.checkpoints.pairs["lrp"]["l2"][0].second) == (0, 1)
    assert as_json(audit.trust[0])["checkpoints"]["pairs"]["lrp"]["l2"][0]["first"] == 1


def test_an_audit_is_saved_with_its_findings_and_an_audit_of_an_older_schema_has_none(audit, tmp_path):
    audit.save(tmp_path / "audit.json")
    assert as_json(Audit.load(tmp_path / "audit.json").trust[0]) == as_json(audit.trust[0])
    older = json.loads((tmp_path / "audit.json").read_text())
    del older["trust"]
    (tmp_path / "audit.json").write_text(json.dumps({**older, "schema": 2}))
    assert Audit.load(tmp_path / "audit.json").trust == ()


def test_findings_are_stored_in_the_record_and_read_by_every_audit(tmp_path):
    record = make_record(tmp_path / "r")
    assert audit_records(record).trust == ()
    save_findings(record, checkpoints=synthetic_checkpoints())
    (findings,) = audit_records(record).trust
    assert (findings.run, findings.learner, findings.seed) == (str(record), "mine", 3)
    assert findings.retraining is None
    # Storing another part leaves the first one unchanged.
    save_findings(record, retraining=synthetic_retraining())
    synthetic_bias().save(record / "trust/bias.json")
    (complete,) = audit_records(record).trust
    assert as_json(complete)["checkpoints"] == as_json(findings)["checkpoints"]
    assert complete.bias is not None
    assert complete.bias.verdict is not None
    # An audit whose records were moved keeps the findings it has.
    without = replace(audit_records(record), trust=())
    assert as_json(add_trust_to_audit(without).trust[0]) == as_json(complete)
    known = audit_records(record)
    record.rename(tmp_path / "moved")
    assert add_trust_to_audit(known).trust == known.trust


def test_a_report_shows_findings_that_are_newer_than_the_audit(perdure, tmp_path):
    record = make_record(tmp_path / "runs/r")
    perdure("audit", "runs")
    perdure("report", "runs", "-o", "page.html")
    assert "run <code>perdure trust retraining RUN" in (tmp_path / "page.html").read_text()
    save_findings(record, synthetic_retraining(), synthetic_checkpoints())
    synthetic_bias().save(record / "trust/bias.json")
    perdure("report", "runs", "-o", "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "1 of 3 explainers distinguish errors from agreement" in page
    assert "expected_gradients has the lowest bias" in page
    assert "With increasing noise on the weights, MeGe decreases for 3 of 3 explainers" in page
    assert "run <code>perdure trust" not in page.lower()


@pytest.mark.parametrize("file", [RETRAINING, CHECKPOINTS])
def test_a_damaged_or_newer_summary_is_refused_by_name(tmp_path, file):
    record = make_record(tmp_path / "r")
    save_findings(record, synthetic_retraining(), synthetic_checkpoints())
    value = json.loads((record / file).read_text())
    (record / file).write_text(json.dumps({**value, "seed": 8}))
    with pytest.raises(InputError, match=rf"{file.name}: the file was changed or damaged"):
        read_findings(str(record), "mine", "", 3)
    (record / file).parent.joinpath("digests.json").unlink()
    (record / file).write_text(json.dumps({**value, "schema": 99}))
    with pytest.raises(InputError, match="schema 99"):
        read_findings(str(record), "mine", "", 3)
    (record / file).write_text(json.dumps({"schema": 1}))
    with pytest.raises(InputError, match=f"{file.name}: a field is missing"):
        audit_records(record)


def test_the_tables_contain_every_score(audit, tmp_path):
    findings = audit.trust[0]
    written = {path.name for path in audit.tables(tmp_path)}
    names = ("bias", "bias-shares", "retraining", "trends", "checkpoints", "steps")
    assert {f"trust-{name}.{ending}" for name in names for ending in ("csv", "tex", "md")} <= written

    def rows(name):
        return list(csv.DictReader(io.StringIO((tmp_path / f"{name}.csv").read_text())))

    retraining_rows = rows("trust-retraining")
    assert len(retraining_rows) == 5 * 5 * 2  # levels, methods, distances
    selected = next(
        row
        for row in retraining_rows
        if (row["explainer"], row["noise"], row["distance"]) == ("lrp", "30 %", "l2-unit")
    )
    scores = findings.retraining.levels[3].scores["lrp"]["l2-unit"]
    assert float(selected["MeGe ↑"]) == scores.mege.mean
    assert float(selected["ReCo, rates ↑ low"]) == scores.reco_rate.low
    assert (selected["S="], selected["S≠"]) == (str(scores.same), str(scores.different))
    assert {row["noise"] for row in retraining_rows} >= {"0 %", "30 %, top 1"}
    assert {row["explainer"] for row in retraining_rows} >= {"constant (control)", "random (control)"}
    trends = rows("trust-trends")
    assert len(trends) == 5 * 2  # methods, distances; the synthetic summary has a trend of one score
    assert (trends[0]["score"], float(trends[0]["rank correlation"]), float(trends[0]["p"])) == ("MeGe", -0.9, 0.001)
    bias = rows("trust-bias")
    assert float(bias[1]["above the least biased"]) == findings.bias.verdict.rivals[0].difference
    assert bias[2]["measured at"] == "layer conv, not ranked"
    assert len(rows("trust-bias-shares")) == 5 * len(findings.bias.shares) * 2
    compared = rows("trust-checkpoints")[0]
    assert (
        float(compared["retrained: MeGe ↑"])
        == findings.retraining.levels[0].scores["expected_gradients"]["l2"].mege.mean
    )
    assert rows("trust-steps")[0]["ReCo, rates ↑"] == ""
    # Biases are small, so tables for a paper have four digits.
    assert f"{findings.bias.explainers[0].overall.mean:.4f} [" in (tmp_path / "trust-bias.tex").read_text()
    # The page shows one distance.
    (shown,) = [table for table in trust_tables(audit, every=False) if table.name == "trust-retraining"]
    assert len(shown.rows) == 5 * 5
    assert "distance" not in shown.header


def test_the_figures_show_every_explainer_and_control(audit):
    by_name = exported_figures(audit)
    noise, dots = by_name["trust-noise"], by_name["trust-checkpoints"]
    assert "trust-bias" in by_name
    assert len(noise.axes[0].lines) == 5
    first = audit.trust[0].retraining.levels[3].scores["lrp"]["l2-unit"]
    assert np.asarray(noise.axes[0].lines[1].get_ydata())[3] == first.mege.mean
    assert [text.get_text() for text in noise.axes[0].get_xticklabels()] == ["0", "5", "10", "30"]
    assert len(dots.axes[0].lines) == 5 * 4  # an interval and a dot, for checkpoints and for retrained networks
    no_noise = replace(synthetic_retraining(), levels=synthetic_retraining().levels[:1])
    partial = replace(audit, trust=(replace(audit.trust[0], bias=None, retraining=no_noise),))
    assert not {"trust-bias", "trust-noise"} & set(exported_figures(partial))


def test_the_answers_have_numbers_intervals_and_sentences(audit):
    trust, retraining = answers(audit, audit.learners[0])[3:]
    bias = audit.trust[0].bias
    assert trust.headline is not None
    assert trust.headline.value == f"{bias.verdict.bias.mean:.4f}"
    assert f"{bias.verdict.bias.low:.4f} to {bias.verdict.bias.high:.4f}, 20 examples" in trust.headline.margin
    assert trust.sentences[0] == bias.verdict.reading
    assert "an unbiased map would score 0.0030" in trust.sentences[1]
    assert "constant" in trust.sentences[2]
    assert "random" in trust.sentences[2]
    assert retraining.headline is not None
    assert retraining.headline.value == "0.35"
    assert "1 of 3 explainers distinguish errors from agreement" in retraining.sentences[0]
    assert retraining.sentences[0].endswith(": expected_gradients.")
    assert "MeGe 0.55 (compare 0.35 for random maps and 0.94 for a constant map)" in retraining.sentences[1]
    assert (
        "is 0.43 [0.41, 0.46]; between retrained networks it is 0.55 (the two intervals do not overlap)"
        in retraining.sentences[2]
    )


def test_missing_findings_name_the_command_and_chance_level_is_reported(audit):
    without = replace(audit, trust=())
    assert [answer.command for answer in answers(without, without.learners[0])[3:]] == [
        "perdure trust bias RUN",
        "perdure trust retraining RUN",
    ]
    summary = synthetic_retraining(("grad",))
    level = summary.levels[0]

    def with_scores(scores):
        changed = replace(level, scores={**level.scores, "grad": {"l2-unit": scores}, "random": level.scores["random"]})
        return retraining_answer(replace(summary, levels=(changed,)), "l2-unit")

    chance = with_scores(synthetic_scores(0.5, 0.1, 0.2, 0.2))
    assert "(p 0.200), not significantly better than chance" in chance[0]
    assert ", better than chance" in with_scores(synthetic_scores(0.5, 0.4, 0.001, 0.001))[0]
    missing = Interval(math.nan, math.nan, math.nan, 9, "none", "S!= is empty")
    unknown = replace(synthetic_scores(0.5, 0.1, math.nan), reco_rate=missing)
    assert "is not available: S!= is empty" in with_scores(unknown)[0]
    none = retraining_answer(
        replace(summary, levels=(replace(level, scores={**level.scores, "lime": level.scores["random"]}),)), "l2"
    )
    assert "maps of grad" in none[-1]


def test_the_trend_is_described_if_there_are_enough_noise_levels():
    summary = synthetic_retraining()
    flat, unknown = Trend(0.0, 0.5, 2, 4, 0), Trend(math.nan, math.nan, 2, 2, 0, "a trend needs at least three levels")

    def described(**trends):
        changed = {name: {"l2": {"mege": trends.get(name, unknown)}} for name in summary.methods}
        return describe_trends(replace(summary, trends=changed), "l2")

    falling = Trend(-1.0, 0.001, 2, 4, 0)
    (sentence,) = described(lrp=falling, gradcam=flat, random=falling)
    assert "MeGe decreases for 1 of 2 explainers" in sentence
    assert sentence.endswith(": lrp.")
    assert described(gradcam=flat)[0].endswith(
        "decreases for 0 of 1 explainers (Page's trend test over folds, p < 0.05, exploratory)."
    )
    assert described() == []


def test_checkpoints_are_described_without_retraining(audit):
    checkpoints_only = replace(audit.trust[0], retraining=None, bias=None)
    answer = answers(replace(audit, trust=(checkpoints_only,)), audit.learners[0])[4]
    assert answer.headline is None
    assert answer.sentences[0].startswith("No networks were retrained")
    assert answer.sentences[1] == "Between the run's checkpoints, MeGe of expected_gradients is 0.43 [0.41, 0.46]."
    similar = replace(
        audit.trust[0], checkpoints=replace(synthetic_checkpoints(), scores=synthetic_retraining().levels[0].scores)
    )
    assert "the intervals overlap" in checkpoints_answer(similar, synthetic_retraining())[0]


def test_several_runs_are_described_one_by_one(audit):
    two = (audit.trust[0], replace(audit.trust[0], run="runs/si/1", seed=1))
    trust, retraining = answers(replace(audit, trust=two), audit.learners[0])[3:]
    assert [sentence.split(":")[0] for sentence in trust.sentences] == ["Seed 0", "Seed 1"]
    assert trust.headline is None
    assert retraining.sentences[-1] == "2 runs were measured; these numbers are of seed 0."


def test_a_comparison_without_a_ranking_is_reported(audit):
    unranked = replace(synthetic_bias(), verdict=None, estimator="exact")
    answer = answers(replace(audit, trust=(replace(audit.trust[0], bias=unranked),)), audit.learners[0])[3]
    assert "no explainer could be ranked" in answer.missing
    assert "The reference is exact Shapley values." in bias_answer(unranked)


def test_markup_in_an_explainer_name_is_escaped_in_latex_and_markdown(tmp_path):
    runs = synthetic_runs((HOSTILE,), tasks=3)
    findings = synthetic_findings(f"runs/{HOSTILE}/0", HOSTILE, (HOSTILE,))
    replace(audit_runs(runs), trust=(findings,)).tables(tmp_path)
    assert "<script" not in (tmp_path / "trust-bias.md").read_text()
    latex = (tmp_path / "trust-retraining.tex").read_text().replace(r"\allowbreak{}", "")  # long names can be broken
    assert r"\textless{}/script\textgreater{}" in latex
