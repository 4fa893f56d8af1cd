"""Files of finished results: resuming, unfinished lines, and the provenance of results from several days."""

from __future__ import annotations

import json
from datetime import date

import pytest

from perdure.base.errors import InputError
from perdure.reproduce.provenance import current_provenance, read_provenance
from perdure.reproduce.result_rows import ResultRows, rows_provenance


def test_rows_are_found_by_their_key_in_a_later_call(tmp_path):
    file = tmp_path / "data" / "study.jsonl"
    rows = ResultRows(file)
    rows.add({"learner": "naive", "seed": 0, "accuracy": 0.2})
    rows.add({"learner": "naive", "seed": 1, "accuracy": 0.3})
    again = ResultRows(file)
    found = again.find(learner="naive", seed=1)
    assert found is not None
    assert found["accuracy"] == 0.3
    assert again.find(learner="naive", seed=2) is None
    assert [row["seed"] for row in again.select(learner="naive")] == [0, 1]
    now = current_provenance()
    assert (found["commit"], found["software"]) == (now.commit, now.software)


def test_removed_rows_are_not_found_by_a_later_call(tmp_path):
    file = tmp_path / "study.jsonl"
    rows = ResultRows(file)
    for seed in range(3):
        rows.add({"learner": "naive", "seed": seed})
    rows.remove(learner="naive", seed=1)
    rows.remove(learner="ewc")
    rows.add({"learner": "ewc", "seed": 0})
    for each in (rows, ResultRows(file)):
        assert [(row["learner"], row["seed"]) for row in each.rows] == [("naive", 0), ("naive", 2), ("ewc", 0)]


def test_a_line_cut_off_by_a_crash_is_dropped_and_computed_again(tmp_path):
    file = tmp_path / "study.jsonl"
    ResultRows(file).add({"seed": 0})
    complete = file.read_text()
    file.write_text(complete + '{"seed": 1, "acc')
    rows = ResultRows(file)
    assert rows.find(seed=1) is None
    rows.add({"seed": 1})
    assert [json.loads(line)["seed"] for line in file.read_text().splitlines()] == [0, 1]


def test_a_damaged_line_is_reported_with_its_number(tmp_path):
    file = tmp_path / "study.jsonl"
    file.write_text('{"seed": 0}\nseed 1\n{"seed": 2}\n')
    with pytest.raises(InputError, match="line 2: not JSON"):
        ResultRows(file)


def test_the_provenance_of_rows_has_all_dates_and_the_commit_of_the_earliest():
    rows = [
        {"measured": "2026-11-21", "commit": "b" * 10, "modified": False, "software": "Python 3.11.7, torch 2.14"},
        {"measured": "2026-11-19", "commit": "a" * 10, "modified": True, "software": "Python 3.11.7, torch 2.13"},
    ]
    stated = rows_provenance(rows, "seeds 0, 1")
    assert (stated.first, stated.last) == (date(2026, 11, 19), date(2026, 11, 21))
    assert (stated.commit, stated.modified) == ("a" * 10, True)
    assert stated.software == "Python 3.11.7, torch 2.13, torch 2.14"
    assert read_provenance(str(stated)) == [stated]
    with pytest.raises(InputError, match="no results"):
        rows_provenance([])
