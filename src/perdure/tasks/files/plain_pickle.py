"""Pickles of plain values, such as the python layout of CIFAR, read without executing anything.

A pickle is a program that can call any function it names. Here each permitted name stands for an inert class of this
module; not even numpy's reconstruction functions are called. Any other name is rejected before it is looked up.
"""

from __future__ import annotations

import io
import pickle
from typing import Any, NoReturn

import numpy as np

from perdure.base.errors import InputError, error_message


class _Dtype:
    """Placeholder for numpy.dtype. It stores only the type code."""

    __slots__ = ("code",)

    def __init__(self, code: Any, *_flags: Any) -> None:
        self.code = _text(code)

    def __setstate__(self, state: object) -> None:
        """Ignore byte order and fields: single bytes have neither."""


class _Array:
    """Placeholder for numpy arrays. It stores shape, type and bytes."""

    __slots__ = ("code", "content", "fortran", "shape")

    def __init__(self, *parts: Any) -> None:
        self.shape: tuple[int, ...] = ()
        self.code, self.content, self.fortran = "", b"", False
        if len(parts) == 4:  # numpy's form for newer pickles: buffer, type, shape, order
            self.__setstate__((1, parts[2], parts[1], parts[3] == "F", bytes(parts[0])))

    def __setstate__(self, state: tuple[int, tuple[int, ...], _Dtype, bool, bytes]) -> None:
        _, self.shape, dtype, self.fortran, self.content = state
        self.code = dtype.code

    def array(self) -> np.ndarray[Any, Any]:
        """Return the array; only bytes and integers are permitted."""
        if self.code not in {"u1", "i4", "i8"}:
            raise pickle.UnpicklingError(f"array of type {self.code!r}")
        flat = np.frombuffer(self.content, dtype="<" + self.code)
        return flat.reshape(self.shape, order="F" if self.fortran else "C")


class _Bytes(bytes):
    """Placeholder for the call that Python 3 uses to write bytes into pickles of older protocols."""

    __slots__ = ()

    def __new__(cls, text: str = "", encoding: str = "latin1") -> _Bytes:
        return super().__new__(cls, text, "latin1" if encoding == "latin1" else "ascii")

    def __setstate__(self, state: object) -> NoReturn:
        raise pickle.UnpicklingError("bytes with a state")


_PERMITTED = {
    ("numpy", "dtype"): _Dtype,
    ("numpy", "ndarray"): _Array,
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy.core.numeric", "_frombuffer"): _Array,
    ("numpy._core.numeric", "_frombuffer"): _Array,
    ("_codecs", "encode"): _Bytes,
}


_BROKEN = (
    pickle.UnpicklingError,
    ArithmeticError,
    AttributeError,
    EOFError,
    ImportError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)


class _PlainUnpickler(pickle._Unpickler):
    """The unpickler written in Python: a few invalid bytes can make the C implementation exhaust the memory."""

    def find_class(self, module: str, name: str) -> type:
        if (module, name) not in _PERMITTED:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        return _PERMITTED[module, name]


def read_plain_pickle(file: str, content: bytes) -> dict[str, Any]:
    """Return a pickled dictionary whose values are text, numbers, lists and arrays of bytes or integers."""
    try:
        value = _PlainUnpickler(io.BytesIO(content), encoding="bytes").load()
        if not isinstance(value, dict):
            raise pickle.UnpicklingError(f"a {type(value).__name__}, not a dictionary")
        return {_text(key): _plain(part) for key, part in value.items()}
    except _BROKEN as error:
        raise InputError(
            f"{file}: not a pickle of plain values ({error_message(error)}). Only dictionaries, lists, text, numbers"
            " and arrays are read."
        ) from error


def _text(value: Any) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else str(value)


def _plain(value: Any) -> Any:
    """Replace placeholders by the values they stand for."""
    if isinstance(value, _Array):
        return value.array()
    if isinstance(value, bytes):
        return _text(value)
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise pickle.UnpicklingError(f"value of type {type(value).__name__.lstrip('_')}")
