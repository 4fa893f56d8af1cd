"""Names of learners, tasks and files on a terminal: names are data, so nothing in them is interpreted."""

from __future__ import annotations

import re
import unicodedata

from rich.text import Text

_SEPARATOR = re.compile(r"(?<=[_\-/., ])")


def shown_name(name: str, width: int | None = None) -> Text:
    """Return a name for a table or a line: without markup, control characters escaped, broken after separators.

    Names longer than ``width`` are broken after ``_``, ``-``, ``/``, ``.``, a comma or a space, rather than within a word.
    """
    escaped = escape_control_characters(name)
    if width is None or len(escaped) <= width:
        return Text(escaped)
    lines = [""]
    for part in _SEPARATOR.split(escaped):
        if lines[-1] and len(lines[-1]) + len(part) > width:
            lines.append("")
        lines[-1] += part
    return Text("\n".join(lines))


def escape_control_characters(name: str) -> str:
    """Return text with control, format and unpaired surrogate characters escaped, as in a Python string."""
    return "".join(
        character.encode("unicode_escape").decode()
        if unicodedata.category(character) in {"Cc", "Cf", "Cs"}
        else character
        for character in name
    )
