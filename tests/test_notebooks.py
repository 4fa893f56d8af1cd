"""The notebooks of the documentation run, and what their texts say is what comes out."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from tools.notebook_pages import Notebook, page, read_cells, run_notebook

from perdure.policies import CheckResult

FOLDER = Path(__file__).parents[1] / "docs/notebooks"


def run(name: str, folder: Path) -> Notebook:
    """Return a notebook that was run, and check the page that is made of it."""
    notebook = run_notebook(FOLDER / f"{name}.ipynb")
    text = page(notebook, folder)
    pictures = [cell for cell in notebook.cells if isinstance(cell.value, Figure)]
    assert len(list(folder.glob("*.png"))) == len(pictures) >= 1
    assert all(cell.printed.rstrip() in text for cell in notebook.cells)
    assert f'{{ download="{name}.ipynb" }}' in text
    return notebook


@pytest.mark.extra
def test_which_method(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    notebook = run("which-method", tmp_path)
    audit = notebook.variables["audit"]
    (table,) = [cell for cell in notebook.cells if cell.value is audit]
    assert "<table>" in table.value._repr_html_()
    summary = audit.summary()
    ranks = {audit.learners[entry.index].learner: entry.rank for entry in summary.learners}
    assert ranks == {"rehearsal": 1, "cumulative": 1, "naive": 3, "ewc": 3}
    assert [audit.learners[entry.index].learner for entry in summary.learners[:2]] == ["rehearsal", "cumulative"]
    assert summary.sentence.startswith("Rehearsal is the most reliable of 4 learners")
    forgetting = {entry.learner: entry.measures["forgetting"].mean for entry in audit.learners}
    assert min(forgetting["naive"], forgetting["ewc"]) > 0.5 > 0.3 > forgetting["rehearsal"] > forgetting["cumulative"]
    accuracy = {
        (pair.first, pair.second): pair for pair in audit.accuracy_differences if pair.metric == "average_accuracy"
    }
    assert accuracy["cumulative", "rehearsal"].difference.mean > 0
    assert accuracy["cumulative", "rehearsal"].p > 0.05
    assert accuracy["naive", "rehearsal"].p < 0.05
    scores = {name: np.mean(runs) for name, runs in notebook.variables["scores"].items()}
    assert scores["rehearsal"] > scores["cumulative"] + 0.1
    retention = dict(zip(audit.clamp[0].algorithms, audit.clamp[0].estimates["retention"], strict=True))
    assert min(retention["rehearsal"], retention["cumulative"]) > 0.6 > 0.3 > max(retention["naive"], retention["ewc"])
    assert "every task was trained once" in " ".join(str(audit).split())
    assert (tmp_path / "report.html").stat().st_size > 100_000


@pytest.mark.extra
def test_replace_the_old_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    notebook = run("replace-the-old-model", tmp_path)
    comparison = notebook.variables["comparison"]
    assert comparison.verdict == "changed"
    assert comparison.accuracy.low < 0 < comparison.accuracy.high
    accuracy = comparison.tests["accuracy"]
    assert accuracy.low < accuracy.observed < accuracy.high
    changes = {change.feature: change for change in comparison.reasons.importance}
    assert changes["sensor A"].high < -0.2
    assert changes["sensor B"].low > 0.2
    assert all(abs(change.mean) < 0.05 for name, change in changes.items() if "sensor" not in name)
    flips = comparison.flips
    assert len(notebook.variables["different"]) / len(comparison.reasons.same_answer) > 0.5
    assert (len(flips.negative) + len(flips.positive)) / comparison.examples < 0.1
    decision = notebook.variables["decision"]
    assert isinstance(decision, CheckResult)
    verdicts = {rule.rule.metric: rule.verdict for rule in decision.rules}
    assert verdicts == {"average_accuracy": "pass", "negative_flip_rate": "pass", "reasons": "fail"}
    sensor_fails = next(cell.printed for cell in notebook.cells if "without_b" in cell.text)
    old, new = (float(part.split()[1]) for part in sensor_fails.split(","))
    assert old > 0.9
    assert new < 0.6
    assert notebook.cells[-2].printed.strip() == "unchanged pass"


def test_notebooks_are_committed_without_outputs():
    paths = list(FOLDER.glob("*.ipynb"))
    assert len(paths) == 2
    for path in paths:
        cells = read_cells(path)  # raises if a cell has outputs
        assert cells[0].text.startswith("# ")
        assert path.stat().st_size < 20_000


def test_the_error_of_a_cell_names_the_cell(tmp_path):
    path = tmp_path / "broken.ipynb"
    cells = [{"cell_type": "code", "source": [source], "outputs": []} for source in ("a = 1", "a / 0")]
    path.write_text(json.dumps({"cells": cells}))
    with pytest.raises(ZeroDivisionError) as error:
        run_notebook(path)
    assert error.value.__notes__ == ["in cell 2 of broken.ipynb"]


def test_a_notebook_with_outputs_is_refused(tmp_path):
    path = tmp_path / "run.ipynb"
    path.write_text(json.dumps({"cells": [{"cell_type": "code", "source": [], "outputs": [{}]}]}))
    with pytest.raises(ValueError, match="cell 1: has outputs"):
        read_cells(path)
