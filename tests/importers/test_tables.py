"""Tables in the variants that people write give the same matrix, and nearly correct files get the specific remedy."""

import json

import numpy as np
import pytest

from perdure.base.errors import InputError
from perdure.importers import ImportedRun, read

TABLE = [[0.9, np.nan], [0.5, 0.8]]


def table_of(folder, name: str, content: str | bytes, **options) -> ImportedRun:
    file = folder / name
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        file.write_text(content)
    (run,) = read(file, **options).runs
    return run


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("wide.csv", "after_task,task_1,task_2\n1,.9,\n2,.5,.8\n"),
        ("bare.csv", "0.9,\n0.5,0.8\n"),
        ("pandas.csv", ",task_1,task_2\n0,0.9,\n1,0.5,0.8\n"),
        ("pandas_numbers.csv", ",0,1\n0,0.9,\n1,0.5,0.8\n"),
        ("unnamed.csv", "Unnamed: 0,task_1,task_2\n0,0.9,\n1,0.5,0.8\n"),
        ("index_without_header.csv", "0,0.9,\n1,0.5,0.8\n"),
        ("index_from_1.csv", "1,0.9,\n2,0.5,0.8\n"),
        ("from_zero.csv", "after_task,task_0,task_1\n0,.9,\n1,.5,.8\n"),
        ("row_names.csv", ",task 1,task 2\nafter task 1,.9,\nafter task 2,.5,.8\n"),
        ("trained_on.csv", "trained_on,a,b\na,.9,\nb,.5,.8\n"),
        ("average.csv", "after,t1,t2,mean\n1,.9,,.9\n2,.5,.8,.65\n"),
        ("percent.csv", "t1,t2\n90%,\n50 %,80%\n"),
        ("nan.csv", "t1,t2\n0.9,nan\n0.5,0.8\n"),
        ("na.csv", "t1,t2\n0.9,N/A\n0.5,0.8\n"),
        ("dash.csv", "t1,t2\n0.9,-\n0.5,0.8\n"),
        ("spaces.txt", "0.9 nan\n0.5 0.8\n"),
        ("savetxt.txt", "# accuracies\n9.0e-01 nan\n5.0e-01 8.0e-01\n"),
        ("tabs.tsv", "0.9\t\n0.5\t0.8\n"),
        ("triangle.txt", "0.9\n0.5 0.8\n"),
        ("triangle.csv", "0.9\n0.5,0.8\n"),
        ("triangle_with_index.csv", "1,0.9\n2,0.5,0.8\n"),
        ("triangle_with_header.csv", "t1,t2\n0.9\n0.5,0.8\n"),
        ("triangle.json", "[[0.9], [0.5, 0.8]]"),
        ("object.json", '{"accuracy": [[0.9], [0.5, 0.8]]}'),
        ("matrix.json", "[[0.9, null], [0.5, 0.8]]"),
        ("long.csv", "after,task,accuracy\n1,1,.9\n2,1,.5\n2,2,.8\n"),
        ("long_from_zero.csv", "after,task,accuracy\n0,0,.9\n1,0,.5\n1,1,.8\n"),
        ("long_tasks_from_zero.csv", "after,task,accuracy\n1,0,.9\n2,0,.5\n2,1,.8\n"),
        ("long_pandas.csv", ",after,task,accuracy\n0,1,1,.9\n1,2,1,.5\n2,2,2,.8\n"),
        ("long_percent.csv", "after,task,accuracy\n1,1,90%\n2,1,50%\n2,2,80%\n"),
    ],
)
def test_all_variants_give_the_same_matrix(tmp_path, name, text):
    run = table_of(tmp_path, name, text)
    np.testing.assert_allclose(run.table, TABLE, rtol=1e-15)
    assert run.curriculum == (0, 1)
    assert run.initial is None


def test_numpy_files(tmp_path):
    np.save(tmp_path / "m.npy", np.array(TABLE, dtype=np.float32))
    (run,) = read(tmp_path / "m.npy").runs
    np.testing.assert_allclose(run.table, TABLE, atol=1e-7)
    np.save(tmp_path / "c.npy", np.asfortranarray(np.array([TABLE, TABLE])))
    runs = read(tmp_path / "c.npy").runs
    assert [run.key for run in runs] == ["run 1", "run 2"]
    np.testing.assert_array_equal(runs[1].table, TABLE)
    np.save(tmp_path / "i.npy", np.array([[0.1, 0.2], *TABLE]))
    (run,) = read(tmp_path / "i.npy").runs
    assert run.initial is not None
    assert run.initial.tolist() == [0.1, 0.2]
    np.save(tmp_path / "p.npy", np.array([[90, 10], [50, 80]]))
    assert read(tmp_path / "p.npy", percent=True).runs[0].table.tolist() == [[0.9, 0.1], [0.5, 0.8]]
    with pytest.raises(InputError, match=r"step 1, task 1: expected a number between 0 and 1, got 90. Pass --percent"):
        read(tmp_path / "p.npy")
    np.save(tmp_path / "o.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(
        InputError, match=r"expected numbers, got values of type object\. Pickled objects are not loaded"
    ):
        read(tmp_path / "o.npy")


def test_named_tasks_are_kept_and_numbered_ones_are_not_names(tmp_path):
    assert table_of(tmp_path, "a.csv", ",cats,dogs\n0,.9,\n1,.5,.8\n").task_names == ("cats", "dogs")
    assert table_of(tmp_path, "b.csv", "task_1,task_2\n.9,\n.5,.8\n").task_names == ()
    long = table_of(tmp_path, "c.csv", "after,trained,task,accuracy\n2,dogs,cats,.5\n1,cats,cats,.9\n2,dogs,dogs,.8\n")
    assert long.task_names == ("cats", "dogs")
    np.testing.assert_array_equal(long.table, TABLE)


def test_rows_before_training(tmp_path):
    for name, text in (
        ("a.csv", "after,a,b\n0,.1,.2\n1,.9,.3\n2,.5,.8\n"),
        ("b.csv", ",a,b\n0,.1,.2\n1,.9,.3\n2,.5,.8\n"),
        ("c.csv", ".1,.2\n.9,.3\n.5,.8\n"),
        ("d.csv", "after,task,accuracy\n0,0,.1\n0,1,.2\n1,0,.9\n1,1,.3\n2,0,.5\n2,1,.8\n"),
    ):
        run = table_of(tmp_path, name, text)
        assert run.table.tolist() == [[0.9, 0.3], [0.5, 0.8]], name
        assert run.initial is not None
        assert run.initial.tolist() == [0.1, 0.2]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "a.csv",
            ".9,.1,.5\n.5,.8,.6\n",
            "If the first column is an index, name it after_task; if the last one is an average",
        ),
        ("a.csv", ".9,.5\n,.8\n", "the matrix looks transposed: only cells above the diagonal are filled"),
        ("a.csv", "97.5,\n50,80\n", r"row 1, column 1: expected a number between 0 and 1, got 97\.5\. Pass --percent"),
        ("a.csv", ".9,.1\n.5\n", r"row 2: expected 2 cells .* different lengths only in a lower triangle"),
        ("a.csv", "after,t1,t2\n1,.9,\n3,.5,.8\n", "column after: expected the steps 1, 2, 3, ..., got 1, 3"),
        ("a.csv", "after,t1,t2\none,.9,\ntwo,.5,.8\n", "row 2, column after: expected a number, got 'one'"),
        ("a.csv", "t1,t2\n.9,x\n.5,.8\n", "row 2, column t2: expected a number, got 'x'"),
        ("a.csv", "t1,t2\n", "expected at least one row below the header"),
        ("a.csv", "after,task,accuracy\n1,1,.9\n1,1,.8\n", "row 3: second value for task 1 after step 1"),
        ("a.json", "[[0.9, 0.1], [0.5]]", "row 2: expected 2 cells as in the first row, got 1"),
        ("a.json", "{", "line 1: not JSON"),
        ("a.json", '{"accuracies": [[1]]}', "expected a matrix or an object with the key 'accuracy'"),
        (
            "a.csv",
            "t1,t2\n90%,\n50%,.8\n",
            "row 3, column 2: expected a percentage such as 98%, as in other cells, got '.8'",
        ),
        ("a.csv", "t1,t2\n.9,\n.5,.8,.7\n", "row 3: expected 2 cells as in the first row, got 3"),
        ("a.csv", "-3,\n50,80\n", "row 1, column 1: expected a number between 0 and 1, got -3"),
    ],
)
def test_nearly_correct_files_get_the_specific_remedy(tmp_path, name, text, message):
    with pytest.raises(InputError, match=message) as caught:
        table_of(tmp_path, name, text)
    assert str(tmp_path / name) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_percentages(tmp_path):
    assert table_of(tmp_path, "a.csv", "90,10\n50,80\n", percent=True).table.tolist() == [[0.9, 0.1], [0.5, 0.8]]
    with pytest.raises(InputError, match=r"no value exceeds 1\. Leave out --percent"):
        table_of(tmp_path, "b.csv", ".9,.1\n.5,.8\n", percent=True)
    assert table_of(tmp_path, "c.json", "[[90, 10], [50, 80]]", percent=True).table[0, 0] == 0.9


def test_losses(tmp_path):
    run = table_of(tmp_path, "a.csv", "after_task,news,code\n1,12.5,40\n2,15,8\n", losses=True)
    assert run.table.tolist() == [[12.5, 40.0], [15.0, 8.0]]
    assert run.measure == "loss"
    long = table_of(tmp_path, "b.csv", "after,task,loss\n1,1,2.5\n2,1,3.5\n2,2,1.5\n", losses=True)
    np.testing.assert_array_equal(long.table, [[2.5, np.nan], [3.5, 1.5]])
    assert table_of(tmp_path, "c.json", "[[-5.5]]", losses=True).table.tolist() == [[-5.5]]


def test_what_the_file_holds_beside_accuracies(tmp_path):
    value = {
        "accuracy": TABLE[1:],
        "curriculum": [2],
        "initial": [0.1, 0.1],
        "cost": {"parameters": [10]},
        "learner": "x",
    }
    run = table_of(tmp_path, "a.json", json.dumps(value))
    assert run.curriculum == (1,)
    assert run.cost is not None
    assert run.learner == "x"
    assert run.missing == ("evaluations within tasks",)
    runs = read(tmp_path / "a.json").runs
    assert runs[0].measurements.cost is not None


def test_several_runs_in_one_file(tmp_path):
    (tmp_path / "all.csv").write_text("learner,run,after,task,accuracy\newc,0,1,1,.9\newc,seed1,1,1,.8\nsi,0,1,1,.7\n")
    runs = read(tmp_path / "all.csv").runs
    assert [(run.learner, run.seed, run.table[0, 0]) for run in runs] == [
        ("ewc", 0, 0.9),
        ("ewc", 1, 0.8),
        ("si", 0, 0.7),
    ]
    assert len({run.name for run in runs}) == 3
