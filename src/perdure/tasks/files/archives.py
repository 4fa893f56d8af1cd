"""One interface to the files in a folder, a zip file or a tar file; nothing is unpacked."""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from abc import ABC, abstractmethod
from pathlib import Path
from threading import Lock

from perdure.base.errors import InputError, error_message

_BROKEN = (zipfile.BadZipFile, tarfile.TarError, EOFError, OSError, zlib.error)


class Files(ABC):
    """Read-only files with their names, which use forward slashes. Several threads may read at the same time."""

    def __init__(self, path: Path, names: list[str]) -> None:
        self.path = path
        self.names = names

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        try:
            return self._read(name)
        except (KeyError, *_BROKEN) as error:
            raise InputError(f"{self.path}: cannot read {name} ({error_message(error)}).") from error

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
        entries = (entry for entry in path.rglob("*") if entry.is_file())
        super().__init__(path, sorted(entry.relative_to(path).as_posix() for entry in entries))

    def _read(self, name: str) -> bytes:
        return (self.path / name).read_bytes()


class _Zip(Files):
    def __init__(self, path: Path) -> None:
        self._archive = zipfile.ZipFile(path)
        super().__init__(path, [name for name in self._archive.namelist() if not name.endswith("/")])

    def _read(self, name: str) -> bytes:
        return self._archive.read(name)


class _Tar(Files):
    """A tar file. Its index is built once; then each member is read with one seek, which is slow if the file is compressed."""

    def __init__(self, path: Path) -> None:
        self._archive = tarfile.open(path)  # noqa: SIM115  (stays open: members are read later)
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
        raise InputError(f"{path}: not a readable folder, zip file or tar file ({error_message(error)}).") from error


def read_members(path: Path, names: set[str]) -> dict[str, bytes]:
    """Return the contents of the named files, by name without folders, from a folder or a tar file read in one pass."""
    if path.is_dir():
        return {name: (path / name).read_bytes() for name in sorted(names) if (path / name).is_file()}
    contents = {}
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                name = Path(member.name).name
                file = archive.extractfile(member) if name in names else None
                if file:
                    contents[name] = file.read()
    except _BROKEN as error:
        raise InputError(f"{path}: not a complete tar file ({error_message(error)}).") from error
    return contents
