"""Reading of option values that several commands share."""

from __future__ import annotations

import importlib.util
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import update_wrapper
from pathlib import Path
from typing import Any

from perdure.base.errors import InputError


def weightings(texts: list[str]) -> dict[str, str | Mapping[str, float]]:
    """Return named weight vectors: ``W1``, or ``A=.5,REM=.5`` as a vector of its own."""
    from perdure.metrics import weight_vector

    chosen: dict[str, str | Mapping[str, float]] = {}
    for text in texts or ["W1", "W2", "W3"]:
        if "=" not in text:
            weight_vector(text)
            chosen[text] = text
            continue
        vector = {}
        for part in text.split(","):
            name, _, weight = part.partition("=")
            try:
                vector[name.strip()] = float(weight)
            except ValueError:
                raise InputError(f"--weights {text}: expected name=number, found {part!r}") from None
        weight_vector(vector)
        chosen[text] = vector
    return chosen


WEIGHTS_HELP = (
    "W1, W2, W2-printed, W3, or criteria with weights that sum to 1: A=.5,REM=.5. May be given several times."
)


def numbers(text: str | None, option: str) -> list[int] | None:
    """Return the whole numbers of a comma-separated option, or None when it was not given."""
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{option} {text}: expected whole numbers separated by commas, as in 1,2,3") from None


def assignments(texts: list[str], option: str) -> dict[str, str]:
    """Return name=value options as a mapping."""
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(f"{option} {text}: expected name=value")
        pairs[name.strip()] = value.strip()
    return pairs


def inside(out: Path | None, name: str) -> Path | None:
    """Return where a file goes: the path itself, or the file of that name in it when it is a folder."""
    return out / name if out is not None and out.is_dir() else out


class OwnFunction:
    """A function of a user's file; another process that is handed it runs the file again."""

    def __init__(self, path: Path, name: str, function: Callable[..., Any]) -> None:
        self.place, self.name, self.function = path.resolve(), name, function
        update_wrapper(self, function, updated=())

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the function; what it raises becomes one line that names the place in the file."""
        with _of_the_user(self.place, f"{self.place.name}:{self.name}"):
            return self.function(*arguments, **named)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return own_function, (f"{self.place}:{self.name}",)


@contextmanager
def _of_the_user(file: Path, what: str) -> Iterator[None]:
    """Turn any exception of a user's code into one line with its place in the file."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == file]
        where = f" in line {lines[-1]}" if lines else ""
        reason = (str(error).splitlines() or [""])[0]
        raise InputError(f"{what} failed{where} ({type(error).__name__}: {reason})") from error


def own_function(text: str) -> OwnFunction:
    """Return the function that ``file.py:name`` points at; the file is run, so it must be your own."""
    place, colon, name = text.rpartition(":")
    path = Path(place)
    if not colon:
        raise InputError(f"{text}: no function is named; expected file.py:function")
    if not path.is_file():
        raise InputError(f"{text}: there is no file {place}; expected file.py:function")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{text}: {place} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    with _of_the_user(path.resolve(), text):
        spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        raise InputError(f"{text}: {place} has no function {name!r}")
    return OwnFunction(path, name, function)


def check_device(device: str) -> None:
    """Refuse a device that this machine or this build of torch does not have."""
    import torch

    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"--device {device}: it cannot be used here ({reason})") from None
