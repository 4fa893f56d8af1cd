"""Folders, zip and tar files, read alike and without unpacking."""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from abc import ABC, abstractmethod
from pathlib import Path
from threading import Lock

from perdure.base.errors import InputError
from perdure.tasks.files.wording import reason

_BROKEN = (zipfile.BadZipFile, tarfile.TarError, EOFError, OSError, zlib.error)


class Files(ABC):
    """Named files: names with forward slashes, and bytes. Reading is safe from several threads."""

    def __init__(self, path: Path, names: list[str]) -> None:
        self.path = path
        self.names = names

    def read(self, name: str) -> bytes:
        """Return a file's content."""
        try:
            return self._read(name)
        except (KeyError, *_BROKEN) as error:
            raise InputError(f"{self.path}: cannot read {name} in it ({reason(error)})") from error

    def under(self, prefix: str) -> list[str]:
        """Return the names that start with the prefix."""
        return [name for name in self.names if name.startswith(prefix)]

    def find(self, ending: str) -> str | None:
        """Return the shortest path whose last parts are ``ending``."""
        found = [name for name in self.names if name == ending or name.endswith("/" + ending)]
        return min(found, key=len, default=None)

    @abstractmethod
    def _read(self, name: str) -> bytes: ...


class _Folder(Files):
    def __init__(self, path: Path) -> None:
        found = (entry for entry in path.rglob("*") if entry.is_file())
        super().__init__(path, sorted(entry.relative_to(path).as_posix() for entry in found))

    def _read(self, name: str) -> bytes:
        return (self.path / name).read_bytes()


class _Zip(Files):
    def __init__(self, path: Path) -> None:
        self._archive = zipfile.ZipFile(path)
        super().__init__(path, [name for name in self._archive.namelist() if not name.endswith("/")])

    def _read(self, name: str) -> bytes:
        return self._archive.read(name)


class _Tar(Files):
    """A tar file: its index is made once, then any member is one seek away (slow if it is compressed)."""

    def __init__(self, path: Path) -> None:
        self._archive = tarfile.open(path)  # noqa: SIM115  (stays open as long as its members may be asked for)
        self._members = {member.name: member for member in self._archive if member.isfile()}
        self._lock = Lock()
        super().__init__(path, list(self._members))

    def _read(self, name: str) -> bytes:
        with self._lock:
            content = self._archive.extractfile(self._members[name])
            return content.read() if content else b""


def open_files(path: Path) -> Files:
    """Open a folder, a zip or a tar file for reading."""
    try:
        if path.is_dir():
            return _Folder(path)
        return _Zip(path) if zipfile.is_zipfile(path) else _Tar(path)
    except _BROKEN as error:
        raise InputError(f"{path}: not a folder, zip or tar file that can be read ({reason(error)})") from error


def read_through(path: Path, wanted: set[str]) -> dict[str, bytes]:
    """Return the wanted files, by their last name, from a folder or one pass through a compressed tar."""
    if path.is_dir():
        return {name: (path / name).read_bytes() for name in sorted(wanted) if (path / name).is_file()}
    found = {}
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                name = Path(member.name).name
                content = archive.extractfile(member) if name in wanted else None
                if content:
                    found[name] = content.read()
    except _BROKEN as error:
        raise InputError(f"{path}: not a tar file that can be read to its end ({reason(error)})") from error
    return found
