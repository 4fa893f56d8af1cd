"""Pickles of plain values, such as the python layout of CIFAR, read without executing anything.

A pickle is a program that can call any function it names. Here each permitted name stands for an inert class of this
module; not even numpy's reconstruction functions are called. Any other name is rejected before it is looked up.
"""

from __future__ import annotations

import io
import pickle
import struct
import sys
from collections.abc import Callable
from typing import Any, ClassVar, NoReturn

import numpy as np

from perdure.base.errors import InputError, error_message

MOST_VALUES = 1_000_000
"""Values in a pickle, counted each time a list refers to them: a few nested lists can stand for any number of values."""
DEEPEST_NESTING = 8


class _Dtype:
    """Placeholder for numpy.dtype. It stores only the type code."""

    __slots__ = ("code",)

    def __init__(self, code: Any = "", *_flags: Any) -> None:
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
            self.__setstate__((1, parts[2], parts[1], parts[3] in ("F", b"F"), parts[0]))

    def __setstate__(self, state: tuple[int, tuple[int, ...], _Dtype, bool, bytes]) -> None:
        _, shape, dtype, fortran, content = state
        if not isinstance(shape, tuple) or not all(isinstance(size, int) and size >= 0 for size in shape):
            raise pickle.UnpicklingError("array without a shape")
        if not isinstance(dtype, _Dtype) or not isinstance(content, bytes | bytearray):
            raise pickle.UnpicklingError("array without a type or without bytes")
        self.shape, self.code, self.fortran, self.content = shape, dtype.code, bool(fortran), bytes(content)

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
        if not isinstance(text, str):
            raise pickle.UnpicklingError("bytes that are not written as text")
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
    struct.error,
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


_PythonUnpickler: Any = pickle._Unpickler


class _PlainUnpickler(_PythonUnpickler):  # type: ignore[misc]
    """The unpickler written in Python: a few invalid bytes can make the C implementation exhaust the memory.

    Sets and keys other than text and integers are refused, because the hash of a nested tuple takes exponential time.
    """

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        code: load
        for code, load in _PythonUnpickler.dispatch.items()
        if bytes([code]) not in (b"\x8f", b"\x90", b"\x91", b"\x97", b"\x98")  # sets, external buffers
    }

    def find_class(self, module: str, name: str) -> type:
        if (module, name) not in _PERMITTED:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        return _PERMITTED[module, name]

    def load_bytearray8(self) -> None:
        """Read the content before its memory is allocated, unlike the base class."""
        (size,) = struct.unpack("<Q", self.read(8))
        self.append(bytes(self.read(min(size, sys.maxsize))))

    dispatch[b"\x96"[0]] = load_bytearray8

    def load_setitem(self) -> None:
        _check_keys(self.stack[-2:-1])
        super().load_setitem()

    dispatch[b"s"[0]] = load_setitem

    def load_setitems(self) -> None:
        _check_keys(self.stack[::2])
        super().load_setitems()

    dispatch[b"u"[0]] = load_setitems

    def load_dict(self) -> None:
        _check_keys(self.stack[::2])
        super().load_dict()

    dispatch[b"d"[0]] = load_dict


def _check_keys(keys: list[Any]) -> None:
    for key in keys:
        if not isinstance(key, str | bytes | int):
            raise pickle.UnpicklingError(f"key of type {type(key).__name__.lstrip('_')}")


def read_plain_pickle(file: str, content: bytes) -> dict[str, Any]:
    """Return a pickled dictionary whose values are text, numbers, lists and arrays of bytes or integers."""
    try:
        value = _PlainUnpickler(io.BytesIO(content), encoding="bytes").load()
        if not isinstance(value, dict):
            raise pickle.UnpicklingError(f"a {type(value).__name__}, not a dictionary")
        plain = _Plain()
        return {_text(key): plain(part) for key, part in value.items()}
    except _BROKEN as error:
        raise InputError(
            f"{file}: not a pickle of plain values ({error_message(error)}). Only dictionaries, lists, text, numbers"
            " and arrays are read."
        ) from error


def _text(value: Any) -> str:
    if not isinstance(value, str | bytes | int):
        raise pickle.UnpicklingError(f"name of type {type(value).__name__.lstrip('_')}")
    return value.decode("latin1") if isinstance(value, bytes) else str(value)


class _Plain:
    """Replaces placeholders by the values they stand for, and counts the values."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, value: Any, depth: int = 0) -> Any:
        self.count += 1
        if self.count > MOST_VALUES or depth > DEEPEST_NESTING:
            raise pickle.UnpicklingError(f"more than {MOST_VALUES} values or {DEEPEST_NESTING} levels of lists")
        if isinstance(value, _Array):
            return value.array()
        if isinstance(value, bytes):
            return _text(value)
        if isinstance(value, list | tuple):
            return [self(part, depth + 1) for part in value]
        if value is None or isinstance(value, bool | int | float | str):
            return value
        raise pickle.UnpicklingError(f"value of type {type(value).__name__.lstrip('_')}")
