"""Functions in a user's files: loading, errors with line numbers, and pickling."""

import pickle
import subprocess
import sys

import pytest

from perdure.base.errors import InputError
from perdure.base.user_code import UserFunction, load_function, load_object

CODE = '''"""A user's file."""

NUMBER = 3


def double(value, *, plus=0):
    """Return twice the value."""
    return 2 * value + plus


def broken(value):
    if value > 1:
        raise KeyError("no such value\\nin two lines")
    return value


def nested():
    return broken(2)


def imported():
    import json

    return json.loads("nonsense")


def one_array():
    return 3


def tasks():
    return [(1, 2), (3, 4)]
'''


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(CODE)
    return path


def test_a_function_is_loaded_and_called_with_its_arguments(file):
    function = load_function(f"{file}:double")
    assert isinstance(function, UserFunction)
    assert function(4) == 8
    assert function(4, plus=1) == 9
    assert getattr(function, "__name__", "") == "double"
    assert function.__doc__ == "Return twice the value."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mine.py", r"mine\.py: no function is named; expected file\.py:function"),
        ("nowhere.py:double", r"there is no file nowhere\.py"),
        ("mine.py:triple", r"mine\.py has no function 'triple'"),
        ("mine.py:NUMBER", "'NUMBER' is a int; expected a function"),
        ("notes.txt:double", r"notes\.txt is not a Python file"),
    ],
)
def test_names_that_cannot_be_loaded_are_refused(file, monkeypatch, text, message):
    monkeypatch.chdir(file.parent)
    (file.parent / "notes.txt").write_text("double")
    with pytest.raises(InputError, match=message):
        load_function(text)


def line_of(text: str) -> int:
    """Return the line of the code that contains a text (1-based)."""
    return next(number for number, line in enumerate(CODE.splitlines(), start=1) if text in line)


def test_an_exception_becomes_one_line_with_the_line_number(file):
    with pytest.raises(InputError) as raised:
        load_function(f"{file}:broken")(2)
    line = line_of("raise KeyError")
    assert str(raised.value).startswith(f"mine.py:broken failed in line {line} (KeyError: ")
    assert "\n" not in str(raised.value)
    assert isinstance(raised.value.__cause__, KeyError)
    # The innermost line of the user's file is named, not that of the caller or of a library.
    with pytest.raises(InputError, match=f"nested failed in line {line} "):
        load_function(f"{file}:nested")()
    with pytest.raises(InputError, match=f"imported failed in line {line_of('json.loads')} "):
        load_function(f"{file}:imported")()


def test_a_call_with_wrong_arguments_has_no_line_number(file):
    with pytest.raises(InputError, match=r"^mine\.py:double failed \(TypeError: .*missing 1 required"):
        load_function(f"{file}:double")()


def test_an_input_error_of_the_function_is_not_wrapped(tmp_path):
    (tmp_path / "own.py").write_text(
        "from perdure.base.errors import InputError\ndef refuse():\n    raise InputError('no data')\n"
    )
    with pytest.raises(InputError, match=r"^no data$"):
        load_function(f"{tmp_path / 'own.py'}:refuse")()


def test_an_error_while_the_file_is_executed_names_the_line(tmp_path):
    (tmp_path / "own.py").write_text("x = 1\ny = x / 0\ndef make():\n    return y\n")
    with pytest.raises(InputError, match=r"own\.py:make failed in line 2 \(ZeroDivisionError: division by zero\)"):
        load_function(f"{tmp_path / 'own.py'}:make")
    (tmp_path / "own.py").write_text("def make(:\n")
    with pytest.raises(InputError, match=r"own\.py:make failed.* \(SyntaxError: "):
        load_function(f"{tmp_path / 'own.py'}:make")


def test_a_function_is_pickled_by_its_file_and_name(file, monkeypatch, tmp_path):
    monkeypatch.chdir(file.parent)
    data = pickle.dumps(load_function("mine.py:double"))
    assert b"mine.py:double" in data
    # Another process in another folder imports the file again.
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "data.pickle").write_bytes(data)
    code = "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb'))(21))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "data.pickle")],
        cwd=tmp_path / "elsewhere",
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "42\n"


def test_objects_are_loaded_as_they_are_and_functions_with_their_errors(file):
    assert load_object(f"{file}:NUMBER") == 3
    function = load_object(f"{file}:tasks")
    assert isinstance(function, UserFunction)
    assert function() == [(1, 2), (3, 4)]


def test_a_function_of_an_importable_module_is_loaded_from_the_working_directory(file, monkeypatch):
    package = file.parent / "own_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "models.py").write_text(CODE)
    monkeypatch.chdir(file.parent)
    monkeypatch.syspath_prepend(str(file.parent))
    assert load_function("own_package.models:double")(4) == 8
    with pytest.raises(InputError, match=r"there is no file own_package/nothing\.py and no module|no module"):
        load_function("no_such_package:double")


def test_a_file_can_import_its_neighbors_also_when_its_function_is_called(tmp_path):
    (tmp_path / "neighbor_at_import.py").write_text("VALUE = 3\n")
    (tmp_path / "neighbor_at_call.py").write_text("VALUE = 4\n")
    (tmp_path / "own.py").write_text(
        "import neighbor_at_import\n\n\ndef total():\n    import neighbor_at_call\n\n"
        "    return neighbor_at_import.VALUE + neighbor_at_call.VALUE\n"
    )
    assert load_function(f"{tmp_path / 'own.py'}:total")() == 7


def test_an_object_in_place_of_a_function_is_refused_by_its_type(tmp_path):
    (tmp_path / "own.py").write_text("data = [1, 2]\n")
    with pytest.raises(InputError, match="'data' is a list; expected a function that returns it"):
        load_function(f"{tmp_path / 'own.py'}:data")


def test_a_file_may_define_dataclasses_with_postponed_annotations(tmp_path):
    path = tmp_path / "postponed.py"
    path.write_text(
        "from __future__ import annotations\n\nfrom dataclasses import dataclass\n\n\n"
        "@dataclass\nclass Size:\n    hidden: int = 16\n\n\ndef size():\n    return Size().hidden\n"
    )
    assert load_function(f"{path}:size")() == 16
    assert "postponed" not in sys.modules
    path.write_text("def size():\n    return 17\n\n\nraise ValueError\n")
    with pytest.raises(InputError, match=r"failed in line 5 \(ValueError"):
        load_function(f"{path}:size")
    assert "postponed" not in sys.modules
