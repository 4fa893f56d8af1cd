"""The examples of six kinds of models: each audits with SHAPC and writes a report in at most ten lines, which the docs show."""

import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

import perdure

ROOT = Path(__file__).parents[1]
START = "    # What perdure needs starts here.\n"
EXAMPLES = {
    "functional_cnn": "image",
    "vit": "image",
    "text_transformer": "text",
    "time_series": "series",
    "tabular": "table",
    "sklearn_sgd": "table",
}


def audit_lines(name: str) -> str:
    return (ROOT / f"examples/{name}.py").read_text().split(START)[1]


@pytest.mark.parametrize(("name", "kind"), EXAMPLES.items())
def test_an_example_audits_a_model_with_shapc_and_writes_a_report(tmp_path, monkeypatch, capsys, name, kind):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    variables = runpy.run_path(str(ROOT / f"examples/{name}.py"), run_name="__main__")
    audit = variables["audit"]
    assert isinstance(audit, perdure.Audit)
    (entry,) = audit.learners
    final = entry.table[-1]
    assert entry.table.diagonal().min() > 0.75  # every task is learned
    assert final[:-1].mean() < entry.table.diagonal()[:-1].mean()  # and then forgotten in part
    (result,) = audit.shapc
    assert 0 < result.mean.mean < 1
    assert result.calibrated.low < result.calibrated.mean < result.calibrated.high
    assert result.calibrated.mean < 1
    page = next(tmp_path.glob("report-*.html")).read_text()
    found = re.search(r'<script type="application/json" id="viewer-data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    viewer = json.loads(found.group(1))
    assert {example["kind"] for example in viewer["examples"]} == {kind}
    assert_answer(capsys.readouterr().out, entry, result)


def assert_answer(printed: str, entry: perdure.audits.LearnerAudit, result: perdure.audits.ShapcResult) -> None:
    """The printed audit states the final accuracy, and whether the reasons are the same with the calibrated score."""
    accuracy = f"{100 * entry.table[-1].mean():.0f} %"
    sentence, table = printed.split("\n\n")[:2]
    assert f"{entry.learner.capitalize()} reaches {accuracy} accuracy" in sentence
    header, row = table.splitlines()
    assert header.split() == ["#", "learner", "Performance", "Reasons"]
    assert row.split()[:5] == ["1", entry.learner, "?", *accuracy.split()]  # one run and no number of test examples
    reasons = row.split("%", 1)[1].strip()
    if entry.table[-1].mean() < 0.5 * entry.table.diagonal().mean():
        assert reasons == "–"  # most is forgotten, so there are no reasons to compare
    else:
        shown = re.fullmatch(r". ([\d.]+) % \[([\d.]+), ([\d.]+)\]", reasons)
        assert shown is not None, reasons
        score = (result.calibrated.mean, result.calibrated.low, result.calibrated.high)
        expected = [100 * min(1.0, max(0.0, value)) for value in score]
        assert [float(number) for number in shown.groups()] == pytest.approx(expected, abs=0.51)
        assert "its reasons" in " ".join(sentence.split())
    assert "numbers only" not in printed  # the networks are there: the other questions can be measured


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_audit_takes_at_most_ten_lines_and_the_docs_show_them(name):
    lines = audit_lines(name)
    assert len([line for line in lines.splitlines() if line.strip()]) <= 10
    shown = "\n".join(line[4:] for line in lines.splitlines())
    assert shown in (ROOT / "docs/own-models.md").read_text()


def test_texts_are_explained_by_their_words(tmp_path, monkeypatch):
    """The words that carry the sentiment matter more than the words that say what a sentence is about."""
    monkeypatch.chdir(tmp_path)
    variables = runpy.run_path(str(ROOT / "examples/text_transformer.py"), run_name="__main__")
    network, (inputs, labels), words = variables["net"].eval(), variables["tests"][-1], variables["WORDS"]
    model = perdure.adapt(network, perdure.explain.Tokens(mask=1, vocabulary=words))
    maps = perdure.explain.attribute(model, inputs, labels, "shapley", samples=30)["input_ids"].abs()
    sentiment = {
        "fast",
        "smoothly",
        "bright",
        "sharp",
        "lasts",
        "solid",
        "reliable",
        "crashes",
        "freezes",
        "dim",
        "blurry",
    }
    sentiment |= {"dies", "noon", "cheap", "flimsy", "failing", "keeps", "never", "works", "feels"}
    is_sentiment = torch.tensor([[words[token] in sentiment for token in row] for row in inputs["input_ids"].tolist()])
    is_word = inputs["input_ids"] > 0
    assert maps[is_sentiment].mean() > 1.5 * maps[is_word & ~is_sentiment].mean()


def complete_blocks() -> list[str]:
    """Return the code blocks of the page that are complete programs."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/own-models.md").read_text(), re.DOTALL)
    return [block for block in blocks if block.startswith("import ")]


@pytest.mark.parametrize("number", range(2))
def test_the_complete_code_blocks_of_the_page_run(tmp_path, monkeypatch, number):
    monkeypatch.chdir(tmp_path)
    assert len(complete_blocks()) == 2
    variables: dict[str, Any] = {}
    exec(compile(complete_blocks()[number], f"block-{number}.py", "exec"), variables)
    if number == 0:
        assert variables["maps"]["image"].shape == (3, 8, 8)
        assert not variables["maps"]["device"].any()
        assert len(variables["pair"]) == 3
    else:
        (result,) = variables["audit"].shapc
        assert result.mean.mean < 0.9  # another variable decides
        assert result.outcomes["still correct"].reason


def test_the_example_of_two_versions_finds_the_broken_column(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    variables = runpy.run_path(str(ROOT / "examples/two_versions.py"), run_name="__main__")
    comparison = variables["comparison"]
    assert isinstance(comparison, perdure.Comparison)
    assert comparison.verdict == "changed"
    assert comparison.accuracy.low < 0 < comparison.accuracy.high
    broken = comparison.reasons.importance[0]
    assert broken.feature == "proline"
    assert broken.high < 0
    assert broken.retraining is not None
    assert broken.retraining.p < 0.05
    assert "proline" in (tmp_path / "changes.html").read_text()
    assert capsys.readouterr().out.startswith("changed: The importance of features")
    shown = "\n".join(line[4:] for line in audit_lines("two_versions").splitlines())
    assert shown in (ROOT / "docs/compare.md").read_text()
