"""Functions in a user's own files, given as ``file.py:function``."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import update_wrapper
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from perdure.base.errors import InputError
from perdure.runs.loaded_run import load_run_weights, read_run_weights


class UserFunction:
    """A function in a user's file. It can be pickled: another process imports the file again."""

    def __init__(self, path: Path, name: str, function: Callable[..., Any]) -> None:
        self.path, self.name, self.function = path.resolve(), name, function
        update_wrapper(self, function, updated=())

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Call the function; an exception becomes one line that names the line in the file."""
        with _user_errors(self.path, f"{self.path.name}:{self.name}"):
            return self.function(*arguments, **keywords)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return load_function, (f"{self.path}:{self.name}",)


@contextmanager
def _user_errors(file: Path, label: str) -> Iterator[None]:
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
    """Return the function that ``file.py:function`` names. The file is executed."""
    file, colon, name = text.rpartition(":")
    path = Path(file)
    if not colon:
        raise InputError(f"{text}: no function is named; expected file.py:function")
    if not path.is_file():
        raise InputError(f"{text}: there is no file {file}; expected file.py:function")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{text}: {file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # the file may import its neighbors, also when the function is called
    with _user_errors(path.resolve(), text):
        spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if function is None:
        raise InputError(f"{text}: {file} has no function {name!r}")
    if not callable(function):
        raise InputError(f"{text}: {name!r} is a {type(function).__name__}; expected a function that returns it")
    return UserFunction(path, name, function)


def load_user_task_data(text: str) -> Sequence[Any]:
    """Call a user's function that returns (inputs, labels) for each task."""
    data = load_function(text)()
    if not isinstance(data, Sequence):
        raise InputError(
            f"--data {text}: expected a list of (inputs, labels), one pair per task, got a {type(data).__name__}"
        )
    return data


def build_user_network(
    make: Any, data: Sequence[Any], outputs: int | None, weights: Path | None, name: str
) -> nn.Module:
    """Call a user's function and load the network's weights from a file, if there is one.

    The function takes the input shape and the number of outputs, or no arguments.
    """
    shape = tuple(np.shape(data[0])[1:])
    count = outputs or int(np.max(np.asarray(data[1]))) + 1
    network = make(shape, count) if _accepts_two_arguments(make) else make()
    if not isinstance(network, nn.Module):
        raise InputError(f"--network {name}: expected a torch.nn.Module, got a {type(network).__name__}")
    if weights is None:
        return network
    source = "--outputs" if outputs else "the largest label + 1; pass --outputs if there are more"
    return load_run_weights(
        network, read_run_weights(weights), f"{weights}: the checkpoint, for a network of {count} outputs ({source}),"
    )


def _accepts_two_arguments(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        return False
    return True
