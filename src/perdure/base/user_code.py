"""Functions and objects in a user's own code, given as ``file.py:name`` or ``package.module:name``."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, update_wrapper
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from perdure.base.errors import InputError


class UserFunction:
    """A function in a user's file. It can be pickled: another process imports the file again."""

    def __init__(self, path: Path, name: str, function: Callable[..., Any]) -> None:
        self.path, self.name, self.function = path.resolve(), name, function
        update_wrapper(self, function, updated=())

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Call the function; an exception becomes one line that names the line in the file."""
        with user_errors(self.path, f"{self.path.name}:{self.name}"):
            return self.function(*arguments, **keywords)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return load_function, (f"{self.path}:{self.name}",)


@contextmanager
def user_errors(file: Path, label: str) -> Iterator[None]:
    """Turn an exception in a user's code into an `InputError` of one line."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == file]
        where = f" in line {lines[-1]}" if lines else ""
        message = (str(error).splitlines() or [""])[0]
        raise InputError(f"{label} failed{where} ({type(error).__name__}: {message})") from error


def load_function(text: str) -> UserFunction:
    """Return the function that ``file.py:function`` or ``package.module:function`` names. The file is executed."""
    path, name, function = _loaded(text)
    if not callable(function):
        raise InputError(f"{text}: {name!r} is a {type(function).__name__}; expected a function that returns it")
    return UserFunction(path, name, function)


def load_object(text: str) -> Any:
    """Return what ``file.py:name`` or ``package.module:name`` names; a function as `UserFunction`. The file is executed."""
    path, name, value = _loaded(text)
    is_function = isinstance(value, type | FunctionType | MethodType | BuiltinFunctionType | partial)
    return UserFunction(path, name, value) if is_function else value


def import_plugin(text: str) -> ModuleType:
    """Import ``file.py`` or ``package.module``, which registers learners, explainers or other entries. The file is executed.

    A file is imported under its name without the extension, so that other files can import the same module.
    """
    path = Path(text)
    if not text.endswith(".py"):
        return _imported(text, text, "file.py or a module")
    if not path.is_file():
        raise InputError(f"there is no file {text}")
    _add_to_path(str(path.resolve().parent))
    with user_errors(path.resolve(), text):
        module = importlib.import_module(path.stem)
    if Path(module.__file__ or "").resolve() != path.resolve():
        raise InputError(f"{text}: another module is called {path.stem}; rename the file")
    return module


def _loaded(text: str) -> tuple[Path, str, Any]:
    file, colon, name = text.rpartition(":")
    if not colon:
        raise InputError(f"{text}: no function is named; expected file.py:function")
    is_module = not file.endswith(".py") and all(part.isidentifier() for part in file.split("."))
    module = _imported(text, file) if is_module and not Path(file).exists() else _executed(text, file)
    value = getattr(module, name, None)
    if value is None:
        raise InputError(f"{text}: {file} has no function {name!r}")
    return Path(module.__file__ or file), name, value


def _imported(text: str, name: str, expected: str = "file.py:function") -> ModuleType:
    """Import a module; the working directory counts as a folder of modules."""
    _add_to_path(str(Path.cwd()))
    try:
        with user_errors(Path(name), text):
            return importlib.import_module(name)
    except InputError as error:
        if isinstance(error.__cause__, ModuleNotFoundError) and str(error.__cause__.name) in (
            name,
            name.split(".", maxsplit=1)[0],
        ):
            raise InputError(f"{text}: there is no file {name}.py and no module {name}; expected {expected}") from None
        raise


def _executed(text: str, file: str) -> ModuleType:
    """Execute a Python file as a module."""
    path = Path(file)
    if not path.is_file():
        raise InputError(f"{text}: there is no file {file}; expected file.py:function")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{text}: {file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    _add_to_path(str(path.resolve().parent))  # the file may import its neighbors, also when the function is called
    # Dataclasses with annotations as strings look their module up by name while the file is executed.
    is_registered = sys.modules.setdefault(path.stem, module) is module
    try:
        with user_errors(path.resolve(), text):
            spec.loader.exec_module(module)
    finally:
        if is_registered:
            sys.modules.pop(path.stem, None)
    return module


def _add_to_path(folder: str) -> None:
    if folder not in sys.path:
        sys.path.insert(0, folder)
