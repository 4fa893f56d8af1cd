"""Bounded reading of gzip, zip, tar and npz files: what a file declares is checked before memory is allocated.

An archive may expand to `EXPANSION` times its size, and to `FREE_EXPANSION` bytes in any case, so that a small file cannot fill
the memory or keep the reader busy.
"""

from __future__ import annotations

import gzip
import io
import os
import stat
import struct
import sys
import tarfile
import zipfile
import zlib
from contextlib import contextmanager
from math import prod
from pathlib import Path, PurePosixPath
from tokenize import TokenError
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from perdure.base.errors import InputError, error_message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

EXPANSION = 100
FREE_EXPANSION = 64 * 2**20
MOST_MEMBERS = 250_000
LARGEST_DIRECTORY = 32 * 2**20
"""Bytes of the list of members at the end of a zip file."""
LARGEST_MEMBER = 256 * 2**20
"""Bytes of a member of a zip or tar file, which is read as a whole."""
LARGEST_ARRAY = 4 * 2**30
"""Bytes of an array in an npz or idx file."""
LONGEST_MEMBER_NAME = 4096
_LARGEST_TAR_HEADER = 2**20  # bytes of an extended header, which holds a long name
_LARGEST_NPY_HEADER = 10_000
_BLOCK = 2**20
_PLAIN_KINDS = "biufUS"

BROKEN = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    NotImplementedError,
    OSError,
    RecursionError,
    RuntimeError,
    SyntaxError,
    TokenError,
    TypeError,
    ValueError,
    struct.error,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What the readers of Python and numpy raise for damaged files."""


@contextmanager
def damage_named(prefix: str) -> Iterator[None]:
    """Raise `InputError`, ``<prefix> (<reason>).``, for whatever a reader raises for a damaged file."""
    try:
        yield
    except InputError:
        raise
    except BROKEN as error:
        raise InputError(f"{prefix} ({error_message(error)}).") from error


def largest_expansion(size: int) -> int:
    """Return how many bytes a compressed file of this size may expand to."""
    return FREE_EXPANSION + EXPANSION * size


def check_size(where: str, size: int, largest: int) -> None:
    """Check a declared size in bytes."""
    if not 0 <= size <= largest:
        raise InputError(f"{where}: expected at most {largest} bytes, got {size}.")


class BoundedFile(io.RawIOBase):
    """A file for `tarfile` that refuses large single reads, and reading beyond a number of bytes in total."""

    def __init__(self, file: IO[bytes], path: Path, largest: int) -> None:
        self._file = file
        self._path = path
        self._largest = largest
        self.largest_read = _LARGEST_TAR_HEADER

    def read(self, size: int | None = -1, /) -> bytes:
        """Return up to ``size`` bytes."""
        size = -1 if size is None else size
        if not 0 <= size <= self.largest_read:
            raise InputError(
                f"{self._path}: expected parts of at most {self.largest_read} bytes at byte {self.tell()}, got {size}."
            )
        return self._file.read(size)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move to a position, which must be within the limit."""
        if whence != os.SEEK_SET:
            raise io.UnsupportedOperation
        check_size(str(self._path), offset, self._largest)
        return self._file.seek(offset)

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._file.tell()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()


def open_tar(path: Path) -> tuple[tarfile.TarFile, BoundedFile]:
    """Open a tar file, plain or compressed by gzip, and return it with the file that bounds its reads."""
    with path.open("rb") as file:
        compressed = file.read(2) == b"\x1f\x8b"
    size = path.stat().st_size
    # Not closed here: members are read later.
    content: Any = gzip.open(path) if compressed else path.open("rb")  # noqa: SIM115
    bounded = BoundedFile(content, path, largest_expansion(size) if compressed else size)
    try:
        return tarfile.open(fileobj=bounded, mode="r:"), bounded
    except BaseException:
        bounded.close()
        raise


def tar_members(archive: tarfile.TarFile, path: Path) -> Iterator[tarfile.TarInfo]:
    """Yield the regular files of a tar file; folders are skipped, anything else is refused."""
    end = -1
    for number, member in enumerate(archive, start=1):
        where = f"{path}, member {member.name[:80]!r}"
        if number > MOST_MEMBERS:
            raise InputError(f"{path}: expected at most {MOST_MEMBERS} members.")
        if member.offset_data <= end:
            raise InputError(f"{where}: it overlaps the member before it.")
        end = member.offset_data + (member.size if member.isfile() else 0)
        if member.isdir():
            continue
        if not member.isfile() or member.issparse():
            raise InputError(f"{where}: expected a regular file or a folder, got a link, a device or a sparse file.")
        _check_member_name(where, member.name)
        check_size(where, member.size, LARGEST_MEMBER)
        yield member


def read_tar_member(archive: tarfile.TarFile, file: BoundedFile, member: tarfile.TarInfo) -> bytes:
    """Return the content of a regular file in a tar file."""
    content = archive.extractfile(member)
    file.largest_read = LARGEST_MEMBER
    try:
        data = content.read() if content else b""
    finally:
        file.largest_read = _LARGEST_TAR_HEADER
    if len(data) != member.size:
        raise EOFError(f"expected {member.size} bytes, got {len(data)}")
    return data


def open_zip(path: Path, largest_member: int = LARGEST_MEMBER) -> zipfile.ZipFile:
    """Open a zip file whose members are plain files and folders that expand within the limits."""
    with path.open("rb") as file:
        end = zipfile._EndRecData(file)  # type: ignore[attr-defined]
    if not end:
        raise zipfile.BadZipFile("not a complete zip file")
    if int(end[5]) > LARGEST_DIRECTORY or int(end[4]) > MOST_MEMBERS:
        raise InputError(
            f"{path}: expected at most {MOST_MEMBERS} members and a directory of {LARGEST_DIRECTORY} bytes, got"
            f" {int(end[4])} members and {int(end[5])} bytes."
        )
    archive = zipfile.ZipFile(path)
    try:
        _check_zip_members(archive.infolist(), path, largest_member)
    except InputError:
        archive.close()
        raise
    return archive


def _check_zip_members(members: list[zipfile.ZipInfo], path: Path, largest_member: int) -> None:
    if len(members) > MOST_MEMBERS:
        raise InputError(f"{path}: expected at most {MOST_MEMBERS} members, got {len(members)}.")
    names: set[str] = set()
    for member in members:
        where = f"{path}, member {member.filename[:80]!r}"
        _check_member_name(where, member.filename)
        if member.filename in names:
            raise InputError(f"{where}: this name occurs twice in the archive.")
        names.add(member.filename)
        if member.flag_bits & 0x1:
            raise InputError(f"{where}: the member is encrypted. Expected an archive without a password.")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise InputError(f"{where}: expected the compression method deflate or none.")
        if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise InputError(f"{where}: expected a regular file or a folder, got a link or a device.")
        check_size(where, member.file_size, largest_member)
    total, largest = sum(member.file_size for member in members), largest_expansion(path.stat().st_size)
    if total > largest:
        raise InputError(
            f"{path}: expected the members to expand to at most {largest} bytes ({EXPANSION} times the file), got {total}."
        )


def _check_member_name(where: str, name: str) -> None:
    parts = PurePosixPath(name.replace("\\", "/"))
    if len(name) > LONGEST_MEMBER_NAME or parts.is_absolute() or ".." in parts.parts or "\0" in name:
        raise InputError(
            f"{where}: expected a relative name without '..', of at most {LONGEST_MEMBER_NAME} characters."
        )
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InputError(f"{where}: expected a name in UTF-8.") from None


def read_npz_arrays(path: Path, names: Iterable[str] | None = None) -> tuple[dict[str, NDArray[Any]], list[str]]:
    """Return the named arrays of an npz file (None: all) and the names of all its arrays.

    Only arrays of numbers, booleans and text are read. Shape and type of every array are compared with its size before
    anything is decompressed; pickled objects are refused.
    """
    with damage_named(f"{path}: not an npz file of plain arrays"), open_zip(path, LARGEST_ARRAY) as archive:
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        wanted = [name for name in members if names is None or name in set(names)]
        for name in wanted:
            with archive.open(members[name]) as file:
                _check_npy_header(name, file, members[name].file_size)
        check_size(str(path), sum(members[name].file_size for name in wanted), LARGEST_ARRAY)
        arrays = {}
        for name in wanted:
            with archive.open(members[name]) as file:
                arrays[name] = _read_npy(file)
        return arrays, list(members)


def _read_npy(file: IO[bytes]) -> NDArray[Any]:
    array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False, max_header_size=_LARGEST_NPY_HEADER)
    if array.dtype.kind == "U" and array.nbytes:
        codes = np.ascontiguousarray(array).reshape(-1).view(np.dtype("u4").newbyteorder(array.dtype.byteorder))
        if codes.max() > sys.maxunicode:  # Python raises SystemError for such text
            raise ValueError("text with characters that do not exist")
    return array


def _check_npy_header(name: str, file: IO[bytes], size: int) -> None:
    """Check the header of an array, whose file has ``size`` bytes; raise ValueError if it does not fit."""
    readers: dict[tuple[int, int], Callable[..., tuple[tuple[int, ...], bool, np.dtype[Any]]]] = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    version = np.lib.format.read_magic(file)
    if version not in readers:
        raise ValueError(f"array {name[:80]!r}: expected version 1.0 or 2.0 of the npy format, got {version}")
    shape, _, dtype = readers[version](file, max_header_size=_LARGEST_NPY_HEADER)
    if dtype.kind not in _PLAIN_KINDS:
        raise ValueError(f"array {name[:80]!r}: expected numbers or text, got type {str(dtype)[:80]}")
    if len(shape) > 32 or not all(0 <= length <= LARGEST_ARRAY for length in shape):
        raise ValueError(f"array {name[:80]!r}: expected at most 32 dimensions, each up to {LARGEST_ARRAY}")
    declared, held = prod(shape) * dtype.itemsize, size - file.tell()
    if declared != held:
        raise ValueError(f"array {name[:80]!r}: its shape needs {declared} bytes, but it has {held}")


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Read an idx file of bytes, plain or gzipped.

    It holds two zero bytes, type code 8, the number of dimensions, the dimensions and the values.
    """
    size = path.stat().st_size
    compressed = path.suffix == ".gz"
    with (
        damage_named(f"{path}: not a complete {'gzip' if compressed else 'idx'} file"),
        gzip.open(path) if compressed else path.open("rb") as file,
    ):
        start = file.read(4)
        if len(start) < 4 or start[:3] != b"\0\0\x08":
            raise InputError(
                f"{path}: not an idx file of bytes. Expected it to start with '000008..', got {start.hex()!r}."
            )
        if not 1 <= start[3] <= 4:
            raise InputError(f"{path}: expected 1 to 4 dimensions, got {start[3]}.")
        sizes = file.read(4 * start[3])
        if len(sizes) != 4 * start[3]:
            raise EOFError(f"expected {start[3]} dimensions")
        shape = struct.unpack(f">{start[3]}I", sizes)
        held = min(largest_expansion(size), LARGEST_ARRAY) if compressed else size - 4 - 4 * start[3]
        content = bytearray()
        if prod(shape) <= held:
            while len(content) <= prod(shape) and (block := file.read(_BLOCK)):
                content += block
            held = len(content)
    if held != prod(shape):
        at_most = "at most " if compressed and not content else ""
        raise InputError(
            f"{path}: expected {prod(shape)} bytes after the header, got {at_most}{held}. The file is truncated or damaged."
        )
    return np.frombuffer(bytes(content), dtype=np.uint8).reshape(shape)
