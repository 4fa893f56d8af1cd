"""Reading of .npy and .npz files: plain numbers only, what a header declares is checked before memory is allocated."""

from __future__ import annotations

import io
import zipfile
import zlib
from math import prod
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.lib import format as npy_format

from perdure.base.errors import InputError, error_message
from perdure.base.files import LARGEST_TEXT, MOST_CELLS, read_bytes
from perdure.record.reader import FloatArray

NPY_MAGIC = b"\x93NUMPY"
ZIP_MAGIC = b"PK\x03\x04"
MOST_ARRAYS = 1_000
_LARGEST_HEADER = 10_000
_BROKEN = (
    *(ValueError, TypeError, SyntaxError, TokenError, EOFError, OSError, MemoryError, OverflowError, LookupError),
    *(RuntimeError, NotImplementedError, zipfile.BadZipFile, zlib.error),
)


def read_npy(path: Path) -> FloatArray:
    """Return the numbers in a .npy file as floats; arrays of objects (pickles) are refused."""
    return parse_npy(str(path), read_bytes(path, LARGEST_TEXT))


def parse_npy(where: str, content: bytes) -> FloatArray:
    """Return the numbers in the content of a .npy file; ``where`` names it in errors."""
    file = io.BytesIO(content)
    try:
        version = npy_format.read_magic(file)
        reader: Any = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}[version]
        shape, fortran_order, dtype = reader(file, max_header_size=_LARGEST_HEADER)
    except _BROKEN as error:
        raise InputError(f"{where}: not a .npy file of version 1 or 2 ({error_message(error)}).") from None
    if dtype.kind not in "fiub" or dtype.hasobject:
        raise InputError(
            f"{where}: expected numbers, got values of type {str(dtype)[:80]}. Pickled objects are not loaded."
        )
    size = prod(shape)
    if size > MOST_CELLS or len(shape) > 3:
        raise InputError(
            f"{where}: expected at most {MOST_CELLS} numbers in up to 3 dimensions, got shape {str(shape)[:80]}."
        )
    data = content[file.tell() :]
    if len(data) != size * dtype.itemsize:
        raise InputError(
            f"{where}: expected {size * dtype.itemsize} bytes of numbers, as the header says, got {len(data)}."
        )
    values = np.frombuffer(data, dtype=dtype, count=size).reshape(shape, order="F" if fortran_order else "C")
    with np.errstate(all="ignore"):
        return values.astype(np.float64)


def read_npz(path: Path) -> dict[str, FloatArray]:
    """Return the arrays in an .npz file by name."""
    content = read_bytes(path, LARGEST_TEXT)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            _check_members(members)
            unpacked = {
                member.filename.removesuffix(".npy"): _read_member(archive, member)
                for member in members
                if member.filename.endswith(".npy")
            }
    except _BROKEN as error:
        raise InputError(f"{path}: not an .npz file ({error_message(error)}).") from None
    if not unpacked:
        raise InputError(f"{path}: expected an .npz file with at least one array, got none.")
    return {name: parse_npy(f"{path}, array {name[:80]!r}", data) for name, data in unpacked.items()}


def _check_members(members: list[zipfile.ZipInfo]) -> None:
    if len(members) > MOST_ARRAYS or sum(member.file_size for member in members) > LARGEST_TEXT:
        raise ValueError(f"more than {MOST_ARRAYS} arrays or {LARGEST_TEXT} bytes when unpacked")


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    with archive.open(member) as file:
        return file.read(member.file_size + 1)
