"""Runs of a study as rows of a file: resuming, engines, and the command that writes a page from them."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from perdure import reproduce
from perdure.audits import audit
from perdure.engine import Shard, ShardEngine, StatusFolder, StudyResult
from perdure.engine.local import LocalEngine
from perdure.engine.study import IncompleteStudyError
from perdure.learners import Training
from perdure.reproduce.learners import run_rows
from perdure.reproduce.learners.run_rows import audit_of_rows, complete_study_rows, study_rows_file
from perdure.reproduce.learners.study import Study
from perdure.reproduce.learners.study_units import train_learner_study_units
from perdure.reproduce.result_rows import ResultRows

SMALL = Study(
    name="small",
    title="Small digits",
    benchmark="split-digits",
    scenario="class",
    learners=("naive", "rehearsal"),
    per_class=12,
    network="small-conv",
    width=4,
    training=Training(epochs=1, batch_size=8, lr=0.05),
    trials=1,
    seeds=2,
    settings={"rehearsal": {"buffer": 20}},
)
PROVENANCE = ("measured", "commit", "modified", "software")


def complete(tmp_path, study=SMALL, engine=None, examine=None, together=False):
    rows = ResultRows(study_rows_file(tmp_path / "rows", study))
    return complete_study_rows(
        study, None, tmp_path / "out", rows, engine or LocalEngine(1), examine, together=together
    )


def without_origin(rows):
    return [{name: value for name, value in row.items() if name not in PROVENANCE} for row in rows]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Return the rows of the small study and the folder that they are in."""
    folder = tmp_path_factory.mktemp("rows")
    return complete(folder), folder


def test_the_audit_of_rows_is_that_of_the_records(finished):
    rows, folder = finished
    assert [(row["learner"], row["seed"]) for row in rows] == [
        ("naive", 0),
        ("naive", 1),
        ("rehearsal", 0),
        ("rehearsal", 1),
    ]
    expected = {entry.learner: entry for entry in audit(folder / "out/small").learners}
    ours = {entry.learner: entry for entry in audit_of_rows(rows).learners}
    assert list(ours) == ["naive", "rehearsal"]
    for name, entry in ours.items():
        assert np.array_equal(entry.table, expected[name].table)
        for measure, value in entry.measures.items():
            assert str(value) == str(expected[name].measures[measure]), measure
        assert {key: str(value) for key, value in entry.scores.items()} == {
            key: str(value) for key, value in expected[name].scores.items()
        }
    assert rows[2]["settings"]["buffer"] == 20
    assert "lr" in rows[2]["settings"]
    assert str(folder) not in json.dumps(rows)


def test_a_later_call_on_another_machine_continues_from_the_rows(finished, tmp_path, monkeypatch):
    rows, folder = finished
    file = study_rows_file(tmp_path / "rows", SMALL)
    file.parent.mkdir()
    file.write_text("".join(json.dumps(row) + "\n" for row in rows if row["learner"] == "naive"))
    trained = []
    train = train_learner_study_units

    def counting(study, *rest):
        trained.extend(study.learners)
        train(study, *rest)

    monkeypatch.setattr(run_rows, "train_learner_study_units", counting)
    assert without_origin(complete(tmp_path)) == without_origin(rows)
    assert set(trained) == {"rehearsal"}
    trained.clear()
    shutil.rmtree(tmp_path / "out")
    assert without_origin(complete(tmp_path)) == without_origin(rows)
    assert not trained
    assert not (tmp_path / "out").exists()
    # More seeds train only the new ones; another protocol trains everything again.
    third = complete(tmp_path, replace(SMALL, seeds=3, learners=("naive",)))
    assert [row["seed"] for row in third] == [0, 1, 2]
    assert without_origin(third[:2]) == without_origin(rows[:2])
    other = complete(tmp_path, replace(SMALL, per_class=10, learners=("naive",), seeds=1))
    assert other[0]["protocol"] != rows[0]["protocol"]
    assert folder != tmp_path


def test_all_learners_can_be_trained_before_the_first_is_examined(finished, tmp_path):
    rows, _ = finished
    events = []

    def examine(study, learner, folders, data_dir, engine):
        trained = sorted(path.parent.name for path in (tmp_path / "out/small").glob("*/features-1.json"))
        events.append((study.learners, learner, trained, data_dir))
        return [{"seen": folder.name} for folder in folders]

    both = complete(tmp_path, examine=examine, together=True)
    assert events == [((name,), name, ["naive", "rehearsal"], None) for name in ("naive", "rehearsal")]
    assert [row["seen"] for row in both] == ["seed-0", "seed-1"] * 2
    assert [{**row, "seen": None} for row in without_origin(both)] == [
        {**row, "seen": None} for row in without_origin(rows)
    ]


def test_a_learner_that_fails_is_missing_and_the_other_has_rows(tmp_path):
    def examine(study, learner, folders, data_dir, engine):
        if learner == "naive":
            raise IncompleteStudyError(StudyResult(()))
        return [{} for _ in folders]

    with pytest.raises(IncompleteStudyError):
        complete(tmp_path, examine=examine)
    stored = ResultRows(study_rows_file(tmp_path / "rows", SMALL)).rows
    assert [row["learner"] for row in stored] == ["rehearsal", "rehearsal"]


def test_shards_train_their_learners_and_the_command_without_shards_writes_the_rows(finished, tmp_path):
    rows, _ = finished
    first, second = (
        ShardEngine(LocalEngine(1, StatusFolder.of(tmp_path / "out")), Shard(index, 2)) for index in range(2)
    )
    with pytest.raises(IncompleteStudyError) as error:
        complete(tmp_path, engine=first, together=True)
    assert {outcome.unit.group for outcome in error.value.result.elsewhere} == {"rehearsal"}
    assert without_origin(complete(tmp_path, engine=second, together=True)) == without_origin(rows)
    assert without_origin(complete(tmp_path)) == without_origin(rows)


@pytest.fixture
def target(monkeypatch):
    """A target with one small study, whose page lists the rows."""
    pages = []

    def write_page(finished, page, data_dir):
        pages.append([(entry.study.name, len(entry.rows)) for entry in finished])
        Path(page).parent.mkdir(parents=True, exist_ok=True)
        Path(page).write_text(f"{pages[-1]} {data_dir}\n")

    small = replace(SMALL, trials=0, learners=("naive",))
    chosen = run_rows.RowsTarget(
        studies={"small": small, "other": replace(small, name="other", seeds=1)},
        default=("small",),
        write_page=write_page,
        page=Path("page.md"),
        paper_scale=lambda study: replace(study, name=f"{study.name}-paper", per_class=14),
    )
    monkeypatch.setitem(reproduce.TARGETS, "more-than-forgetting", chosen)
    return pages


def test_the_command_writes_the_page_and_continues_from_rows(perdure, tmp_path, target, monkeypatch):
    command = ("reproduce", "more-than-forgetting")
    assert perdure(*command, "--page", "pages/page.md").stdout.strip() == "pages/page.md"
    assert target == [[("small", 2)]]
    file = tmp_path / "runs/reproduce/rows/more-than-forgetting/small.jsonl"
    assert len(file.read_text().splitlines()) == 2
    shutil.copytree(file.parent.parent, tmp_path / "published")
    shutil.rmtree(tmp_path / "runs")
    monkeypatch.setattr(run_rows, "train_learner_study_units", lambda *_: pytest.fail("trained again"))
    perdure(*command, "--rows", "published")
    assert target[1] == [("small", 2)]
    monkeypatch.undo()


def test_studies_and_scales_are_chosen(perdure, tmp_path, target):
    command = ("reproduce", "more-than-forgetting", "--only", "other")
    perdure(*command)
    perdure(*command, "--scale", "paper", "--rows", "rows")
    assert target == [[("other", 1)], [("other-paper", 1)]]
    assert (tmp_path / "rows/more-than-forgetting/other-paper.jsonl").exists()
    assert "did you mean 'other'" in perdure(*command[:3], "othr", code=2).stderr
    assert "expected small or paper, got 'big'" in perdure(*command, "--scale", "big", code=2).stderr
    assert (
        "five-questions has only one scale" in perdure("reproduce", "five-questions", "--scale", "paper", code=2).stderr
    )
    assert "--rows: clamp has no file" in perdure("reproduce", "clamp", "--rows", "rows", code=2).stderr
