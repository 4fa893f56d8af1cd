"""The experiment of more-than-forgetting: transcribed numbers, the page, and data with the layout of CIFAR-100."""

import re
from dataclasses import replace

import numpy as np
import pytest

from perdure import metrics, tasks
from perdure.engine.local import LocalEngine
from perdure.learners import Training
from perdure.reproduce.learners.run_rows import FinishedStudy, audit_of_rows, complete_study_rows, study_rows_file
from perdure.reproduce.more_than_forgetting import page
from perdure.reproduce.more_than_forgetting.studies import STRATEGIES, STUDIES, paper_scale
from perdure.reproduce.result_rows import ResultRows


def rows_of(study, folder, data_dir=None):
    rows = ResultRows(study_rows_file(folder / "rows", study))
    return complete_study_rows(study, data_dir, folder / "out", rows, LocalEngine(1))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Return the rows of the five strategies on a few digits."""
    study = replace(
        STUDIES["cifar10"],
        benchmark="split-digits",
        per_class=15,
        network="small-conv",
        width=4,
        training=Training(epochs=1, batch_size=8, lr=0.05),
        trials=0,
        seeds=2,
    )
    return FinishedStudy(study, rows_of(study, tmp_path_factory.mktemp("study")))


def test_the_printed_scores_follow_from_the_printed_criteria():
    for name, criteria in page.PAPER.items():
        values = dict(zip(metrics.CRITERIA, criteria, strict=True))
        for weights, printed in zip(page.WEIGHTINGS, page.PAPER_SCORES[name], strict=True):
            assert metrics.cl_score(values, weights) == pytest.approx(printed, abs=1.01e-4), (name, weights)


def test_the_page_shows_our_criteria_and_those_of_the_paper(finished, tmp_path):
    file = tmp_path / "results" / "page.md"
    page.write_more_than_forgetting_page([finished], file)
    text = file.read_text()
    entries = {entry.learner: entry for entry in audit_of_rows(finished.rows).learners}
    assert tuple(entries) == STRATEGIES
    for name, entry in entries.items():
        ours, paper = re.findall(rf"^\| `{name}` \|.*\n\| \*paper\* \|.*$", text, re.MULTILINE)[0].split("\n")
        numbers = [cell.split("±")[0].strip() for cell in ours.split("|")[2:-1]]
        expected = [entry.measures[key].mean for key in ("average_accuracy", *metrics.CRITERIA)]
        assert numbers == [f"{value:.3f}" for value in expected]
        assert [float(cell.strip(" *")) for cell in paper.split("|")[3:-1]] == list(page.PAPER[name])
        scores = re.findall(rf"^\| `{name}` \|.*$", text, re.MULTILINE)[1].split("|")[2:5]
        assert [cell.split("±")[0].strip() for cell in scores] == [
            f"{entry.scores[w].mean:.3f}" for w in page.WEIGHTINGS
        ]
    for weights in page.WEIGHTINGS:
        best = max(entries, key=lambda name: entries[name].scores[weights].mean)
        assert f"Under {weights}, `{best}` has the highest CL_score" in text
    agreeing = sum(
        (entries[a].scores["W1"].mean > entries[b].scores["W1"].mean)
        == (page.PAPER_SCORES[a][0] > page.PAPER_SCORES[b][0])
        for i, a in enumerate(STRATEGIES)
        for b in STRATEGIES[i + 1 :]
    )
    assert f"in {agreeing} (W1)" in text
    printed = metrics.score_criteria_correlation(
        {name: dict(zip(metrics.CRITERIA, values, strict=True)) for name, values in page.PAPER.items()}
    )
    first, second = (printed.criteria.index(name) for name in ("A", "REM"))
    assert f"/ {printed.matrix[first, second]:+.2f}" in next(
        line for line in text.splitlines() if line.startswith("| A |")
    )
    for picture in re.findall(r"\]\((\S+\.png)\)", text):
        assert (file.parent / picture).stat().st_size > 10_000


def test_sections_of_other_studies_are_kept_and_unfinished_learners_are_left_out(finished, tmp_path):
    file = tmp_path / "page.md"
    page.write_more_than_forgetting_page([finished], file)
    first = file.read_text().partition("## ")[2]
    other = replace(finished.study, name="cifar100", title="CIFAR-100, ten tasks")
    some = [row for row in finished.rows if row["learner"] in ("naive", "ewc")]
    page.write_more_than_forgetting_page([FinishedStudy(other, some)], file)
    text = file.read_text()
    assert first.strip() in text
    section = text.partition("## CIFAR-100, ten tasks")[2]
    assert "surfaces" not in section
    assert "`lwf` |" not in section


def test_cumulative_is_the_reference_of_the_surfaces(finished):
    from perdure.base.errors import InputError
    from perdure.figures import accuracy_differences_to

    audit = audit_of_rows(finished.rows)
    figure = accuracy_differences_to(audit)
    images = [np.asarray(panel.images[0].get_array()) for panel in figure.axes if panel.images]
    tables = {entry.learner: entry.table for entry in audit.learners}
    assert np.allclose(images[0], tables["cumulative"])
    others = [name for name in tables if name != "cumulative"]
    for image, name in zip(images[1:], others, strict=True):
        assert np.allclose(image, tables[name] - tables["cumulative"])
    with pytest.raises(InputError, match="'joint' is not in the audit"):
        accuracy_differences_to(audit, "joint")


def test_the_experiment_of_the_paper_runs_on_files_with_the_layout_of_cifar100(tmp_path):
    folder = tmp_path / "cifar-100-binary"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name, each in (("train", 3), ("test", 1)):
        fine = np.tile(np.arange(100, dtype=np.uint8), each)
        pixels = rng.integers(0, 256, (len(fine), 3072), dtype=np.uint8)
        (folder / f"{name}.bin").write_bytes(
            np.concatenate([(fine // 5)[:, None], fine[:, None], pixels], axis=1).tobytes()
        )
    study = STUDIES["cifar100"]
    assert (study.tasks, study.network, study.scenario) == (10, "zenke-conv", "task")
    assert study.training.epochs > 10
    small = replace(
        study, per_class=2, training=replace(study.training, epochs=1), trials=0, seeds=1, learners=("naive", "lwf")
    )
    rows = rows_of(small, tmp_path, tmp_path)
    assert [np.shape(row["measurements"]["table"]) for row in rows] == [(10, 10), (10, 10)]
    complete = tasks.load("split-cifar100", scenario="task", tasks=10, data_dir=tmp_path)
    assert [len(task.classes) for task in complete.tasks] == [10] * 10
    assert paper_scale(study).per_class is None
    assert paper_scale(study).training.epochs == 20
