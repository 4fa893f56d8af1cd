"""A file or folder that may hold results: its content is read once, within the limits of the reading layer."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from perdure.base.errors import InputError
from perdure.base.files import LARGEST_TEXT, read_bytes, read_json, read_text

MOST_FILES = 10_000
"""Files and folders that are looked at below one folder."""
NOT_JSON: Final = object()
"""The value of `Source.json` if the file is not JSON; None is a JSON value."""


class Source:
    """A file or folder. What is read is kept, so that detecting the format and reading the runs need one reading."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.exists():
            raise InputError(f"{self.path}: no such file.")

    def __repr__(self) -> str:
        return f"Source({str(self.path)!r})"

    @cached_property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return self.path.is_dir()

    @property
    def suffix(self) -> str:
        """The end of the file's name in lower case, such as ``.csv``; empty for a folder."""
        return "" if self.is_folder else self.path.suffix.lower()

    @cached_property
    def content(self) -> bytes:
        """The bytes of the file."""
        return read_bytes(self.path, LARGEST_TEXT)

    @cached_property
    def head(self) -> bytes:
        """The first bytes of the file; empty for a folder."""
        if self.is_folder:
            return b""
        with self.path.open("rb") as file:
            return file.read(65_536)

    @cached_property
    def text(self) -> str:
        """The text of the file; empty for a folder and for a file that is not text."""
        if self.is_folder or b"\0" in self.head:
            return ""
        try:
            return read_text(self.path)
        except InputError:
            return ""

    @property
    def first_line(self) -> str:
        """The first line of the text that is not blank."""
        return self.text.lstrip().partition("\n")[0].rstrip()

    @cached_property
    def json(self) -> Any:
        """The value in the file, or `NOT_JSON`."""
        if self.text.lstrip()[:1] not in {"{", "["}:
            return NOT_JSON
        try:
            return read_json(self.path)
        except InputError:
            return NOT_JSON

    @property
    def json_keys(self) -> frozenset[str]:
        """The keys of the object in the file; empty if the file holds no object."""
        return frozenset(self.json) if isinstance(self.json, dict) else frozenset()


def find_sources(folder: Path) -> Iterator[Path]:
    """Yield the entries of a folder, sorted: files first, then folders; hidden ones and links to folders are left out."""
    try:
        entries = sorted(folder.iterdir(), key=lambda entry: (entry.is_dir(), natural_key(entry.name)))
    except OSError as error:
        raise InputError(f"{folder}: cannot read the folder ({error.strerror}).") from None
    for entry in entries:
        if not entry.name.startswith(".") and not (entry.is_dir() and entry.is_symlink()):
            yield entry


def natural_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return a key that sorts numbers in names by value: ``checkpoint-500`` comes before ``checkpoint-1000``."""
    parts: list[tuple[int, int, str]] = []
    digits = ""
    for character in [*name, ""]:
        if character.isascii() and character.isdigit():
            digits += character
            continue
        if digits:
            parts.append((0, int(digits[:4000]), digits))
            digits = ""
        if character:
            parts.append((1, 0, character))
    return tuple(parts)


def digest_of_files(files: tuple[Path, ...]) -> str:
    """Return the SHA-256 of the files from which a run was read; it does not depend on the folder that holds them."""
    total = hashlib.sha256()
    for file in files:
        total.update(hashlib.sha256(read_bytes(file, LARGEST_TEXT)).digest())
    return total.hexdigest()
