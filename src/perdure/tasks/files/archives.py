"""One interface to the files in a folder, a zip file or a tar file; nothing is unpacked."""

from __future__ import annotations

import zipfile
from abc import ABC, abstractmethod
from itertools import islice
from pathlib import Path
from threading import Lock

from perdure.base.errors import InputError
from perdure.base.files import read_bytes, shorten_text
from perdure.tasks.files.bounded import (
    LARGEST_MEMBER,
    MOST_MEMBERS,
    damage_named,
    open_tar,
    open_zip,
    read_tar_member,
    tar_members,
)


class Files(ABC):
    """Read-only files with their names, which use forward slashes. Several threads may read at the same time."""

    def __init__(self, path: Path, names: list[str]) -> None:
        self.path = path
        self.names = names

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        with damage_named(f"{self.path}: cannot read {shorten_text(name)}"):
            return self._read(name)

    def text(self, name: str) -> str:
        """Return the text of a file in UTF-8."""
        try:
            return self.read(name).decode()
        except UnicodeDecodeError:
            raise InputError(f"{self.path}: expected {shorten_text(name)} to be a text file in UTF-8.") from None

    def under(self, prefix: str) -> list[str]:
        """Return the names that start with the prefix."""
        return [name for name in self.names if name.startswith(prefix)]

    def find(self, ending: str) -> str | None:
        """Return the shortest name that equals ``ending`` or ends with ``/`` and ``ending``; None if there is none."""
        matches = [name for name in self.names if name == ending or name.endswith("/" + ending)]
        return min(matches, key=len, default=None)

    @abstractmethod
    def _read(self, name: str) -> bytes: ...


class _Folder(Files):
    def __init__(self, path: Path) -> None:
        entries = [entry for entry in islice(path.rglob("*"), 10 * MOST_MEMBERS + 1) if entry.is_file()]
        if len(entries) > 10 * MOST_MEMBERS:
            raise InputError(f"{path}: expected at most {10 * MOST_MEMBERS} files.")
        super().__init__(path, sorted(entry.relative_to(path).as_posix() for entry in entries))

    def _read(self, name: str) -> bytes:
        return read_bytes(self.path / name, LARGEST_MEMBER)


class _Zip(Files):
    def __init__(self, path: Path) -> None:
        self._archive = open_zip(path)
        super().__init__(path, [name for name in self._archive.namelist() if not name.endswith("/")])

    def _read(self, name: str) -> bytes:
        return self._archive.read(name)


class _Tar(Files):
    """A tar file. Its index is built once; then each member is read with one seek, which is slow if the file is compressed."""

    def __init__(self, path: Path) -> None:
        self._archive, self._file = open_tar(path)
        self._members = {member.name: member for member in tar_members(self._archive, path)}
        self._lock = Lock()
        super().__init__(path, list(self._members))

    def _read(self, name: str) -> bytes:
        with self._lock:
            return read_tar_member(self._archive, self._file, self._members[name])


def open_files(path: Path) -> Files:
    """Open a folder, a zip file or a tar file, plain or compressed by gzip, for reading."""
    with damage_named(f"{path}: not a readable folder, zip file or tar file"):
        if path.is_dir():
            return _Folder(path)
        return _Zip(path) if zipfile.is_zipfile(path) else _Tar(path)


def read_members(path: Path, names: set[str]) -> dict[str, bytes]:
    """Return the contents of the named files, by name without folders, from a folder or a tar file read in one pass."""
    if path.is_dir():
        files = [path / name for name in sorted(names)]
        return {file.name: read_bytes(file, LARGEST_MEMBER) for file in files if file.is_file()}
    contents = {}
    with damage_named(f"{path}: not a complete tar file"):
        archive, file = open_tar(path)
        with archive:
            for member in tar_members(archive, path):
                name = Path(member.name).name
                if name in names:
                    contents[name] = read_tar_member(archive, file, member)
    return contents
