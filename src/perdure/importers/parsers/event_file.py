"""TensorBoard's event files: records of TFRecord with protocol buffers, of which only scalar summaries are read.

A record is a length (8 bytes), a checksum of it, the data and a checksum of the data (CRC-32C, masked). The data is a
message Event: field 2 is the step, field 5 a Summary, whose field 1 are values with tag (1), simple_value (2) or a tensor (8).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path

from perdure.base.errors import InputError
from perdure.base.files import LONGEST_NAME, MOST_VALUES

_LARGEST_SCALAR = 4_096  # bytes of a record whose checksum is verified; larger ones hold images and graphs
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DT_FLOAT, _DT_DOUBLE = 1, 2


def _crc_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return tuple(table)


_CRC = _crc_table()


def masked_crc(data: bytes) -> int:
    """Return the checksum that TFRecord stores: CRC-32C, rotated and shifted."""
    value = 0xFFFFFFFF
    for byte in data:
        value = _CRC[(value ^ byte) & 0xFF] ^ (value >> 8)
    value ^= 0xFFFFFFFF
    return (((value >> 15) | (value << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def is_event_file(head: bytes) -> bool:
    """Return whether the first bytes are a record of TFRecord whose length has the right checksum."""
    return len(head) >= 12 and struct.unpack("<I", head[8:12])[0] == masked_crc(head[:8])


def read_scalars(path: Path, content: bytes) -> Iterator[tuple[str, int, float]]:
    """Yield tag, step and value of the scalars. A file that ends within a record is read up to there, as during a run."""
    position, count = 0, 0
    while position + 12 <= len(content):
        (length,) = struct.unpack_from("<Q", content, position)
        (checksum,) = struct.unpack_from("<I", content, position + 8)
        if checksum != masked_crc(content[position : position + 8]):
            raise InputError(f"{path}, byte {position}: the event file is damaged (the checksum of a length is wrong).")
        start, end = position + 12, position + 12 + length
        if end + 4 > len(content):
            return
        data = content[start:end]
        if length <= _LARGEST_SCALAR and struct.unpack_from("<I", content, end)[0] != masked_crc(data):
            raise InputError(f"{path}, byte {start}: the event file is damaged (the checksum of a record is wrong).")
        try:
            scalars = list(_event_scalars(data))
        except (ValueError, struct.error, UnicodeDecodeError):
            raise InputError(f"{path}, byte {start}: expected an event of TensorBoard.") from None
        count += len(scalars)
        if count > MOST_VALUES:
            raise InputError(f"{path}: expected at most {MOST_VALUES} scalars.")
        yield from scalars
        position = end + 4


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for index in range(10):
        if position + index >= len(data):
            raise ValueError("the message ends within a number")
        byte = data[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, position + index + 1
    raise ValueError("a number has more than ten bytes")


def _fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Yield number, wire type and value of the fields of a message."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, kind = tag >> 3, tag & 7
        value: int | bytes
        if kind == _VARINT:
            value, position = _varint(data, position)
        elif kind in (_FIXED64, _FIXED32, _BYTES):
            size = 8 if kind == _FIXED64 else 4
            if kind == _BYTES:
                size, position = _varint(data, position)
            if position + size > len(data):
                raise ValueError("a field is longer than the message")
            value, position = data[position : position + size], position + size
        else:
            raise ValueError("unknown kind of field")
        yield number, kind, value


def _event_scalars(data: bytes) -> Iterator[tuple[str, int, float]]:
    step, summaries = 0, []
    for number, kind, value in _fields(data):
        if number == 2 and kind == _VARINT and isinstance(value, int):
            step = value - 2**64 if value >= 2**63 else value
        elif number == 5 and isinstance(value, bytes):
            summaries.append(value)
    for summary in summaries:
        for number, _, item in _fields(summary):
            if number == 1 and isinstance(item, bytes):
                scalar = _summary_value(item)
                if scalar is not None and math.isfinite(scalar[1]):
                    yield scalar[0], step, scalar[1]


def _summary_value(data: bytes) -> tuple[str, float] | None:
    tag, scalar = "", None
    for number, kind, value in _fields(data):
        if number == 1 and isinstance(value, bytes):
            if len(value) > LONGEST_NAME:
                return None
            tag = value.decode("utf-8")
        elif number == 2 and kind == _FIXED32 and isinstance(value, bytes):
            scalar = float(struct.unpack("<f", value)[0])
        elif number == 8 and isinstance(value, bytes):
            scalar = _tensor_scalar(value)
    return None if scalar is None else (tag, scalar)


def _tensor_scalar(data: bytes) -> float | None:
    """Return the number in a tensor with one number of type float or double; None for others."""
    kind_of_number, raw, numbers = 0, b"", b""
    for number, _, value in _fields(data):
        if number == 1 and isinstance(value, int):
            kind_of_number = value
        elif number == 4 and isinstance(value, bytes):
            raw = value
        elif number in (5, 6) and isinstance(value, bytes):
            numbers = value
    layout = {_DT_FLOAT: "<f", _DT_DOUBLE: "<d"}.get(kind_of_number)
    stored = raw or numbers
    if layout is None or len(stored) != struct.calcsize(layout):
        return None
    return float(struct.unpack(layout, stored)[0])
