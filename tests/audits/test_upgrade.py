"""Files of version 0.1: audits, findings of perdure trust and records stay readable.

The files in tests/data were written by version 0.1 and shortened to two learners, one seed and a few examples.
"""

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest

from perdure.audits import Audit, ShapcResult, audit, serialization
from perdure.audits.bias.results import BiasResult
from perdure.audits.results import TrustFindings, read_findings
from perdure.record import Record

DATA = Path(__file__).parents[1] / "data"
AUDIT = DATA / "audit-0.1.json"
TRUST = DATA / "trust-0.1"
RECORD = DATA / "record-0.1"


def read(file: Path):
    """Return the JSON of a file."""
    return json.loads(file.read_text())


def as_json(value: object):
    """Return a result as a JSON file holds it."""
    return json.loads(json.dumps(serialization.to_json(value), allow_nan=False))


def without_nan(values):
    """Return nested lists of numbers with null in place of NaN, as in JSON."""
    return [None if math.isnan(value) else value for value in np.ravel(values)]


def flat(values):
    """Return nested lists as one list."""
    return [item for value in values for item in flat(value)] if isinstance(values, list) else [values]


@pytest.fixture(scope="module")
def loaded() -> Audit:
    return Audit.load(AUDIT)


@pytest.fixture(scope="module")
def raw():
    return read(AUDIT)


def test_the_file_has_the_schema_of_version_0_1(raw):
    assert raw["schema"] == 3
    assert {"stability", "latent", "trust"} <= set(raw)
    assert AUDIT.stat().st_size < 64_000


def test_learners_of_an_old_audit(loaded, raw):
    assert [entry.learner for entry in loaded.learners] == ["naive", "rehearsal"]
    for entry, old in zip(loaded.learners, raw["learners"], strict=True):
        assert entry.table.tolist() == old["table"]
        assert list(entry.measures) == list(old["measures"])
        for name, value in old["measures"].items():
            if name == "shapc_calibrated":  # its zero was another one
                assert math.isnan(entry.measures[name].mean)
                assert "run perdure audit --shapc again" in str(entry.measures[name].reason)
            else:
                assert (entry.measures[name].mean, entry.measures[name].n) == (value["mean"], value["n"])
        assert entry.cl_stability["W1"].mean == old["stability"]["W1"]["mean"]
        assert entry.scores["W2"].low == old["scores"]["W2"]["low"]
        assert entry.curriculum == tuple(step - 1 for step in old["curriculum"])
        assert entry.run_values["A"] == tuple(old["run_values"]["A"])
    assert loaded.first_places == raw["first_places"]
    assert loaded.provenance[1].checkpoints == raw["provenance"][1]["checkpoints"]


def test_shapc_of_an_old_audit(loaded, raw):
    assert len(loaded.shapc) == len(raw["stability"]) == 2
    for result, old in zip(loaded.shapc, raw["stability"], strict=True):
        assert isinstance(result, ShapcResult)
        assert math.isnan(result.calibrated.mean)
        assert np.isnan(result.matrices["calibrated"]).all()
        assert (result.mean.mean, result.var.low, result.ratio.high) == (
            old["mean"]["mean"],
            old["var"]["low"],
            old["calibrated"]["high"],
        )
        assert sorted(result.table) == [int(step) - 1 for step in sorted(old["table"])]
        for step, rows in result.table.items():
            assert without_nan(rows) == flat(old["table"][str(step + 1)])
            assert (result.examples[step] + 1).tolist() == old["samples"][str(step + 1)]
        assert without_nan(result.matrices["independent"]) == flat(old["matrices"]["independent"])
        assert result.sensitivity[0.1][1].mean == old["sensitivity"]["0.1"][1]["mean"]
        assert result.outcomes["forgotten"].n == old["outcomes"]["forgotten"]["n"]
        assert result.settings == old["settings"]
    (difference,) = loaded.differences
    (old_difference,) = raw["differences"]
    assert (difference.difference.mean, difference.p) == (old_difference["difference"]["mean"], old_difference["p"])
    assert as_json(difference.difference) == old_difference["difference"]


def test_clamp_of_an_old_audit(loaded, raw):
    (fit,), (old,) = loaded.clamp, raw["latent"]
    assert fit.estimates["retention"].tolist() == old["estimates"]["retention"]
    assert without_nan(fit.estimates["transfer"]) == flat(old["estimates"]["transfer"])
    assert without_nan(fit.intervals["efficiency"]) == flat(old["intervals"]["efficiency"])
    assert fit.supported["difficulty"].tolist() == old["supported"]["difficulty"]
    assert without_nan(fit.curves[0].measured) == flat(old["curves"][0]["measured"])
    assert fit.curves[0].curriculum == tuple(task - 1 for task in old["curves"][0]["curriculum"])
    assert list(fit.notes) == old["words"]


def check_findings(findings: TrustFindings, bias, retraining, checkpoints) -> None:
    """Compare findings with the JSON of version 0.1."""
    assert findings.bias is not None
    assert findings.retraining is not None
    assert findings.checkpoints is not None
    assert findings.bias.examples == bias["samples"] == 3
    assert findings.bias.settings["samples"] == bias["settings"]["budget"]
    assert findings.bias.settings["predicted"] == bias["settings"]["decided"]
    for entry, old in zip(findings.bias.explainers, bias["explainers"], strict=True):
        assert (entry.method, entry.layer, entry.control, entry.ranked) == (
            old["method"],
            old["layer"],
            old["control"],
            old["ranked"],
        )
        assert entry.overall.mean == old["overall"]["mean"]
        assert without_nan(entry.per_example) == flat(old["samples"])
        assert without_nan(entry.floor) == flat(old["floor"])
        assert entry.cells[1][0].high == old["cells"][1][0]["high"]
    assert findings.bias.verdict is not None
    assert findings.bias.verdict.rivals[0].p == bias["verdict"]["rivals"][0]["p"]
    assert len(findings.retraining.levels) == len(retraining["levels"]) == 2
    for level, old in zip(findings.retraining.levels, retraining["levels"], strict=True):
        scores, old_scores = level.scores["grad"]["l2"], old["scores"]["grad"]["l2"]
        assert (level.share, level.accuracy) == (old["share"], tuple(old["accuracy"]))
        assert (scores.mege.mean, scores.p_value, scores.examples) == (
            old_scores["mege"]["mean"],
            old_scores["p_value"],
            old_scores["samples"],
        )
    old_trend = retraining["trends"]["grad"]["cosine"]["mege"]
    assert as_json(findings.retraining.trends["grad"]["cosine"]["mege"]) == old_trend
    pair, old_pair = findings.checkpoints.pairs["grad"]["l2"][0], checkpoints["pairs"]["grad"]["l2"][0]
    assert (pair.first + 1, pair.second + 1, pair.mege, pair.shapc) == (
        old_pair["first"],
        old_pair["second"],
        old_pair["mege"],
        old_pair["shapc"],
    )
    assert findings.checkpoints.shapc["grad"] == checkpoints["shapc"]["grad"]


def test_findings_in_an_old_audit(loaded, raw):
    (findings,), (old,) = loaded.trust, raw["trust"]
    assert (findings.run, findings.learner, findings.seed) == (old["run"], old["learner"], old["seed"])
    check_findings(findings, old["bias"], old["retraining"], old["checkpoints"])


def test_findings_in_an_old_record(tmp_path):
    shutil.copytree(RECORD, tmp_path / "record")
    shutil.copytree(TRUST, tmp_path / "record" / "trust")
    old = [read(TRUST / f"{name}.json") for name in ("bias", "retraining", "checkpoints")]
    check_findings(read_findings(str(tmp_path / "record"), "rehearsal", "", 0), *old)
    (findings,) = audit(tmp_path / "record").trust
    check_findings(findings, *old)


def test_an_old_bias_result_is_equal_after_saving_in_the_new_schema(tmp_path):
    result = BiasResult.load(TRUST / "bias.json")
    result.save(tmp_path / "bias.json")
    assert read(tmp_path / "bias.json")["schema"] == 3
    assert BiasResult.load(tmp_path / "bias.json").to_json() == result.to_json()


def test_an_old_audit_is_equal_after_saving_in_the_new_schema(loaded, tmp_path):
    loaded.save(tmp_path / "audit.json")
    saved = read(tmp_path / "audit.json")
    assert saved["schema"] == 5
    assert {"shapc", "clamp"} <= set(saved)
    assert not {"stability", "latent"} & set(saved)
    again = Audit.load(tmp_path / "audit.json")
    assert again.to_json() == loaded.to_json()
    assert again.differences == loaded.differences
    assert again.learners[0].measures == loaded.learners[0].measures
    assert "SHAPC" in loaded.report(tmp_path / "report.html").read_text()


def test_a_record_of_version_0_1_opens_and_is_audited():
    record = Record.open(RECORD)
    assert record.complete
    assert record.manifest.software["perdure"] == "0.1.0"
    assert record.manifest.curriculum == (0, 1, 2, 3, 4)
    rows = [line.split(",") for line in (RECORD / "accuracy.csv").read_text().splitlines()[1:]]
    expected = {(int(after) - 1, int(task) - 1): float(accuracy) for after, _, task, accuracy in rows if after != "0"}
    assert {index: float(value) for index, value in np.ndenumerate(record.table)} == expected
    (learner,) = audit(RECORD).learners
    assert learner.measures["average_accuracy"].mean == pytest.approx(np.mean([expected[4, task] for task in range(5)]))
