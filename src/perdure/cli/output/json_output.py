"""JSON on the terminal."""

from __future__ import annotations

import json
import re
from typing import Any

import typer

from perdure.base.errors import escape_control_characters

_BEYOND_ASCII = re.compile(r"[^\n -~]")


def print_json(value: Any) -> None:
    """Print a value as JSON; control characters in names are escaped, also those that JSON would allow."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    typer.echo(_BEYOND_ASCII.sub(_escape_in_json, text))


def _escape_in_json(match: re.Match[str]) -> str:
    character = match[0]
    if escape_control_characters(character) == character:
        return character
    return f"\\u{ord(character):04x}" if ord(character) < 0x10000 else json.dumps(character)[1:-1]
