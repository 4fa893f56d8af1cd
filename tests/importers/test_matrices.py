"""Accuracy matrices from files: all layouts give the same numbers, and errors name the file, row and column."""

import json

import numpy as np
import pytest

from perdure.base.errors import InputError
from perdure.importers import read_accuracy_matrices, read_matrix_costs

MATRIX = [[0.9, None], [0.5, 0.8]]


def write(folder, name, text):
    (folder / name).write_text(text)
    return folder / name


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("wide.csv", "after_task,task_1,task_2\n1,.9,\n2,.5,.8\n"),
        ("bare.csv", "0.9,\n0.5,0.8\n"),
        ("headed.csv", "cats,dogs\n0.9,\n0.5,0.8\n"),
        ("bom.csv", "\ufeffafter,task_1,task_2\r\n1,.9,\r\n2,.5,.8\r\n"),
        ("semicolons.csv", "after;task_1;task_2\n1;.9;\n2;0.5;.8\n"),
        ("decimal-commas.csv", "0,9;\n0,5;,8\n"),
        ("tabs.tsv", "task_1\ttask_2\n.9\t\n.5\t.8\n"),
        ("long.csv", "after,task,accuracy\n1,1,.9\n2,1,.5\n2,2,.8\n"),
        ("matrix.json", json.dumps(MATRIX)),
        ("object.json", json.dumps({"accuracy": MATRIX})),
        ("runs.json", json.dumps({"runs": [{"accuracy": MATRIX}]})),
        ("cube.json", json.dumps([MATRIX])),
    ],
)
def test_all_layouts_give_the_same_matrix(tmp_path, name, text):
    (run,) = read_accuracy_matrices(write(tmp_path, name, text))
    np.testing.assert_array_equal(run.table, [[0.9, np.nan], [0.5, 0.8]])
    assert run.curriculum == (0, 1)


def test_row_zero_is_before_training(tmp_path):
    (run,) = read_accuracy_matrices(write(tmp_path, "w.csv", "after,a,b\n0,.1,.2\n1,.9,.3\n2,.5,.8\n"))
    assert run.initial is not None
    assert run.initial.tolist() == [0.1, 0.2]
    assert run.table.tolist() == [[0.9, 0.3], [0.5, 0.8]]
    (run,) = read_accuracy_matrices(
        write(tmp_path, "l.csv", "after,task,accuracy\n0,1,.1\n0,2,.2\n1,1,.9\n2,1,.5\n2,2,.8\n")
    )
    assert run.initial is not None


def test_long_tables_hold_learners_runs_and_curricula(tmp_path):
    rows = ["learner,run,after,trained,task,accuracy"]
    for learner in ("ewc", "si"):
        for run in (1, 2):
            rows += [f"{learner},{run},{s},{t},{k},0.{run}" for s, t in ((1, 1), (2, 2), (3, 1)) for k in (1, 2)]
    runs = read_accuracy_matrices(write(tmp_path, "x.csv", "\n".join(rows)))
    assert [run.learner for run in runs] == ["ewc", "ewc", "si", "si"]
    assert all(run.curriculum == (0, 1, 0) for run in runs)
    assert runs[1].table.tolist() == [[0.2, 0.2]] * 3


def test_the_accuracy_file_of_a_record_is_a_long_table(tmp_path):
    text = "after,trained,task,accuracy\n0,,1,.5\n0,,2,.5\n1,1,1,.9\n2,2,1,.5\n2,2,2,.8\n"
    (run,) = read_accuracy_matrices(write(tmp_path, "accuracy.csv", text))
    assert run.curriculum == (0, 1)
    assert run.initial is not None


def test_percentages_need_the_option(tmp_path):
    file = write(tmp_path, "p.csv", "90,10\n50,80\n")
    (run,) = read_accuracy_matrices(file, percent=True)
    assert run.table.tolist() == [[0.9, 0.1], [0.5, 0.8]]
    with pytest.raises(InputError, match="row 1, column 1: expected a number between 0 and 100, got 900"):
        read_accuracy_matrices(write(tmp_path, "q.csv", "900,10\n50,80\n"), percent=True)


@pytest.mark.parametrize(
    ("stem", "learner"),
    [
        ("ewc_seed3", "ewc"),
        ("ewc-seed-3", "ewc"),
        ("der.s12", "der"),
        ("replay2000_run1", "replay2000"),
        ("gem", "gem"),
    ],
)
def test_the_seed_is_not_part_of_the_learner_name(tmp_path, stem, learner):
    (run,) = read_accuracy_matrices(write(tmp_path, f"{stem}.csv", "0.9\n"))
    assert run.learner == learner


def test_a_file_named_after_a_seed_or_its_content_belongs_to_its_folder(tmp_path):
    for name in ("ewc/seed0.csv", "gem/seed-0/accuracy.csv", "runs/si/seed-1/accuracy.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (run,) = read_accuracy_matrices(write(tmp_path, name, "0.9\n"))
        assert run.learner == name.split("/")[-2 if "seed0" in name else -3]


def test_numbers_up_to_1_are_not_percentages(tmp_path):
    with pytest.raises(InputError, match=r"no value exceeds 1\. Leave out --percent"):
        read_accuracy_matrices(write(tmp_path, "a.csv", ".9,.1\n.5,.8\n"), percent=True)


def test_costs_are_read_from_a_second_file_or_from_json(tmp_path):
    cost = read_matrix_costs(write(tmp_path, "c.csv", "after,parameters,operations,passes\n1,10,100,5\n2,10,,5\n"))
    assert cost.parameters.tolist() == [10, 10]
    assert np.isnan(cost.operations[1])
    assert cost.kept.tolist() == [0, 0]
    assert np.isnan(cost.memory_bits).all()
    value = {"accuracy": MATRIX, "cost": {"parameters": [10, 20]}, "lifetime_bits": 99, "learner": "x", "run": "r"}
    (run,) = read_accuracy_matrices(write(tmp_path, "c.json", json.dumps(value)))
    assert run.cost is not None
    assert run.cost.parameters.tolist() == [10, 20]
    assert (run.learner, run.run, run.lifetime_bits) == ("x", "r", 99)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "", "the file is empty"),
        ("a.csv", "after,t1,t2\n1,.9\n", "row 2: expected 3 cells as in the first row, got 2"),
        ("a.csv", "after,t1,t2\n1,.9,\n2,.x,.8\n", "row 3, column t1: expected a number, got '.x'"),
        ("a.csv", "after,t1,t2\n1,.9,\n3,.5,.8\n", "column after: expected the steps 1, 2, 3, ..., got 1, 3"),
        (
            "accuracy.csv",
            "after_task,task_1,task_2\n1,.9,\n2,.5,97.5\n",
            r"row 3, column task_2: expected a number between 0 and 1, got 97\.5\. Pass --percent if these are percentages\.",
        ),
        (
            "a.csv",
            "after,task,accuracy\n1,1,-.5\n",
            r"row 2, column accuracy: expected a number between 0 and 1, got -0\.5\.$",
        ),
        ("a.json", "[[0.5, 0.1], [0.1, 200]]", r"key accuracy, row 2, column 2: expected a number .* got 200\.$"),
        (
            "a.json",
            '{"accuracy": [[0.5]], "initial": [20]}',
            "key initial, row 1, column 1: expected a number between 0",
        ),
        ("a.csv", "after,t1,t2\none,.9,\n", "row 2, column after: expected a number, got 'one'"),
        ("a.csv", "after,t1,t2\n", "expected at least one row below the header"),
        ("a.csv", ".9,.1,.2\n.5,.8,.2\n", "expected as many rows as tasks, got 2 rows and 3 tasks"),
        ("a.csv", "after,task,accuracy\n1,1,.9\n1,1,.8\n", "row 3: second value for task 1 after step 1"),
        ("a.csv", "after,task,accuracy\n1,0,.9\n", "column task: expected an integer of at least 1, got '0'"),
        ("a.csv", "task,accuracy\n1,.9\n", "expected the columns"),
        ("a.csv", "after,task,accuracy\n", "expected at least one row below the header"),
        ("a.json", "{", "line 1: not JSON"),
        ("a.json", "{}", "expected a matrix"),
        ("a.json", "[[1, 2], [3]]", "row 2: expected 2 cells as in the first row, got 1"),
        ("a.json", '[[0.5, "x"], [0.1, 0.2]]', "row 1, column 2: expected a number or null, got 'x'"),
        ("a.json", '{"accuracy": [[0.5]], "curriculum": [3]}', "step 1: expected a task from 1 to 1, got 3"),
        ("a.json", '{"accuracy": [[0.5]], "curriculum": [1, 1]}', "got 1 rows and a curriculum of 2 steps"),
        ("a.json", '{"accuracy": [[0.5]], "cost": {"money": [1]}}', "key cost: expected an object with keys among"),
    ],
)
def test_errors_name_file_row_and_column(tmp_path, name, text, message):
    with pytest.raises(InputError, match=message) as caught:
        read_accuracy_matrices(write(tmp_path, name, text))
    assert str(tmp_path / name) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_directories_binary_and_missing_files_are_rejected(tmp_path):
    with pytest.raises(InputError, match="perdure audit"):
        read_accuracy_matrices(tmp_path)
    with pytest.raises(InputError, match="no such file"):
        read_accuracy_matrices(tmp_path / "x.csv")
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(InputError, match="expected a text file in UTF-8"):
        read_accuracy_matrices(tmp_path / "b.csv")
    with pytest.raises(InputError, match="'after'"):
        read_matrix_costs(write(tmp_path, "c.csv", "parameters\n1\n"))
    with pytest.raises(InputError, match="expected the steps 1, 2, 3"):
        read_matrix_costs(write(tmp_path, "d.csv", "after,parameters\n2,1\n"))


def test_the_published_matrices_are_read(shared_data):
    for file in sorted((shared_data / "accuracy-matrices").glob("*.csv")):
        (run,) = read_accuracy_matrices(file)
        assert run.table.shape == (10, 10)
        assert np.isnan(run.table[np.triu_indices(10, 1)]).all()
        assert not np.isnan(run.table[np.tril_indices(10)]).any()
