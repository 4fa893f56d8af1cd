"""The registry of exporters, and the function that calls one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from perdure.audits import Audit
from perdure.base.errors import InputError
from perdure.base.registry import Registry

Function = Callable[[Audit, str], Sequence[str | Path]]


@dataclass(frozen=True)
class Exporter:
    """A format: its name, the function that writes it, and the name of its file if the output is one file."""

    name: str
    function: Function
    file: str | None = None


EXPORTERS: Registry[Exporter] = Registry("exporter", group="perdure.exporters", package="perdure.exporters.formats")


def exporter(name: str, *, file: str | None = None) -> Callable[[Function], Function]:
    r"""Register a function that writes an audit to a path or address and returns what it wrote.

    ``file``: the name of the file if the output is a single one; it is used if a user names a folder. The first line of the
    docstring is the description in lists. The function writes with `perdure.base.files.write_atomically`, so that a reader
    sees either the old or the new file, and writing twice changes nothing.

    Examples
    --------
    >>> from pathlib import Path
    >>> from perdure import exporters
    >>> @exporters.exporter("ranking", file="ranking.txt")
    ... def write_ranking(audit, out):
    ...     "The names of the learners."
    ...     names = [entry.learner for entry in audit.learners]
    ...     Path(out).write_text("\n".join(names))
    ...     return [Path(out)]
    >>> exporters.EXPORTERS.summaries()["ranking"]
    'The names of the learners.'
    """

    def register(function: Function) -> Function:
        summary = (function.__doc__ or "").strip().splitlines()
        EXPORTERS.add(name, Exporter(name, function, file), summary[0] if summary else "")
        return function

    return register


def export(audit: Audit, to: str, out: str | Path) -> list[str]:
    """Write an audit in a format (``EXPORTERS.names()``) and return the paths or addresses that were written.

    Examples
    --------
    >>> import perdure
    >>> from perdure import exporters
    >>> audit = perdure.Audit.load("demo/audit.json")  # of ``make demo``
    >>> "latex" in exporters.EXPORTERS.names()
    True
    >>> (path,) = exporters.export(audit, "csv", "tables")
    >>> with open(path) as file:
    ...     print(file.readline()[:33])
    learner,benchmark,kind,name,label
    """
    chosen = EXPORTERS.get(to)
    target = str(out)
    if chosen.file is not None and Path(target).is_dir():
        target = str(Path(target) / chosen.file)
    return [str(written) for written in chosen.function(audit, target)]


@contextmanager
def optional_package(package: str, extra: str) -> Iterator[None]:
    """Turn a missing package into an `InputError` that says how to install it; import the package inside this context."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise InputError(f'{package} is needed here ({error}): pip install "perdure[{extra}]"') from None
