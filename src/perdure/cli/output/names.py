"""Names of learners, tasks and files on a terminal: names are data, so nothing in them is interpreted."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from perdure.base.errors import escape_control_characters

__all__ = ["echo", "escape_control_characters", "line_writer", "shown_name", "table_row"]

_SEPARATOR = re.compile(r"(?<=[_\-/., ])")


def shown_name(name: str, width: int | None = None) -> Text:
    """Return a name for a table or a line: without markup, control characters escaped, broken after separators.

    Names longer than ``width`` are broken after ``_``, ``-``, ``/``, ``.``, a comma or a space, and within a word only if the
    word is longer than a line.
    """
    escaped = name if name.isprintable() else escape_control_characters(name)
    if width is None or len(escaped) <= width:
        return Text(escaped)
    lines = [""]
    for word in _SEPARATOR.split(escaped):
        for part in (word[start : start + width] for start in range(0, len(word), width)):
            if lines[-1] and len(lines[-1]) + len(part) > width:
                lines.append("")
            lines[-1] += part
    return Text("\n".join(lines))


def table_row(table: Table, cells: Iterable[str | Text], width: int | None = None) -> None:
    """Add a row to a table; its texts are data."""
    table.add_row(*(shown_name(cell, width) if isinstance(cell, str) else cell for cell in cells))


def line_writer(console: Console, soft_wrap: bool = False) -> Callable[..., None]:
    """Return a function that prints one line, in which names are data; it takes the line and optionally a style."""

    def write(line: str, style: str | None = None) -> None:
        options: dict[str, Any] = {} if style is None else {"style": style}
        console.print(shown_name(line), highlight=False, soft_wrap=soft_wrap, **options)

    return write


def echo(line: object, err: bool = False) -> None:
    """Print one line to standard output or standard error; names in it are data."""
    typer.echo(escape_control_characters(str(line)), err=err)
