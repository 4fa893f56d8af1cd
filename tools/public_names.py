"""Print the names and command-line options that docs/releases.md calls stable, or write them to tools/public_names.txt.

    python tools/public_names.py [--write]

A test fails if a listed name does not exist any more. New names are added to the list when a version is released; a name is
taken from it only after the deprecation that docs/releases.md describes.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

NAMES = Path(__file__).with_name("public_names.txt")
STABLE = (
    "perdure",
    "perdure.audits",
    "perdure.comparisons",
    "perdure.explain",
    "perdure.exporters",
    "perdure.importers",
    "perdure.learners",
    "perdure.metrics",
    "perdure.nets",
    "perdure.policies",
    "perdure.record",
    "perdure.tasks",
)


def python_names() -> Iterator[str]:
    """Yield every name of the stable modules."""
    for module in STABLE:
        for name in sorted(importlib.import_module(module).__all__):
            yield f"{module}.{name}"


def command_options() -> Iterator[str]:
    """Yield every command, and every command with each of its options."""
    import typer  # noqa: PLC0415

    from perdure.cli import app  # noqa: PLC0415

    def walk(command: Any, words: list[str]) -> Iterator[str]:
        if commands := getattr(command, "commands", {}):
            for name, inner in sorted(commands.items()):
                yield from walk(inner, [*words, name])
            return
        yield " ".join(words)
        options = {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
        yield from (" ".join([*words, option]) for option in sorted(options))

    yield from walk(typer.main.get_command(app), ["perdure"])


def main(arguments: Sequence[str]) -> int:
    """Print or write the names."""
    text = "".join(f"{name}\n" for name in [*python_names(), *command_options()])
    if list(arguments) == ["--write"]:
        NAMES.write_text(text, "utf-8")
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
