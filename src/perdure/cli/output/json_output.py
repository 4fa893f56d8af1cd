"""JSON on the terminal."""

from __future__ import annotations

import json
from typing import Any

import typer


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))
