"""The few steps that fast_path.py takes on raw memory, in plain Python: fast_path.pxd has the same in C."""

from __future__ import annotations

import operator
import struct
from typing import Any

compiled = False  # what is asked of Cython, where that is not installed

_FLOAT = struct.Struct(">d")


def view_of(data: bytes | bytearray | memoryview) -> memoryview:
    return memoryview(data)


def octets(view: memoryview) -> memoryview:
    return view


def writable(out: bytearray) -> bytearray:
    return out


# Numbers and texts


def big_endian(data: memoryview, position: int, size: int) -> int:
    return int.from_bytes(data[position : position + size], "big", signed=True)


def read_size(view: memoryview, position: int) -> int:
    """The size in front of a frame."""
    return big_endian(view, position, 4)


def read_float(data: memoryview, position: int) -> float:
    value: float = _FLOAT.unpack_from(data, position)[0]
    return value


def text_or_marks(data: memoryview, start: int, stop: int) -> str:
    """With a mark in place of what is no UTF-8."""
    return str(data[start:stop], "utf-8", "replace")


def read_text(_last: str | None, data: memoryview, start: int, stop: int) -> str:
    """`_last`: what stood in the same place before, which in C need not be made again."""
    return str(data[start:stop], "utf-8")


def read_bytes(data: memoryview, start: int, stop: int) -> bytes:
    return bytes(data[start:stop])


def read_uvarint(data: memoryview, position: int, end: int) -> tuple[int, int]:
    """The value, and the position behind it: negative where it is not whole, or has more than 31 bits."""
    value = shift = 0
    while position < end:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value, position) if value < 1 << 31 else (0, -1)
        shift += 7
        if shift > 28:
            break
    return 0, -1


def number_of(value: Any) -> int:
    """TypeError for what is no number, OverflowError for one of more than 64 bits."""
    number: int = operator.index(value)
    if not -(1 << 63) <= number < 1 << 63:
        raise OverflowError(number)
    return number


def text_size(value: str) -> int:
    return len(value.encode())


def put_big_endian(out: bytearray, position: int, value: int, size: int) -> int:
    """The position behind it."""
    out[position : position + size] = (value & (1 << 8 * size) - 1).to_bytes(size, "big")
    return position + size


def put_float(out: bytearray, position: int, value: float) -> None:
    _FLOAT.pack_into(out, position, value)


def put_text(out: bytearray, position: int, value: str, size: int) -> int:
    out[position : position + size] = value.encode()
    return position + size


def put_bytes(out: bytearray, position: int, data: bytes) -> int:
    out[position : position + len(data)] = data
    return position + len(data)


def taken(out: bytearray, size: int) -> bytes:
    """What was put there."""
    return bytes(out[:size])


# Objects


def slot_of(struct: type, name: str) -> Any:
    """Where objects of a class keep a value."""
    return vars(struct)[name]


def new(struct: Any) -> Any:
    return struct.__new__(struct)


def put_slot(made: Any, slot: Any, value: object) -> None:
    slot.__set__(made, value)


def get_slot(owner: Any, slot: Any) -> Any:
    return slot.__get__(owner)


def named_tuple(kind: type, values: tuple[Any, ...]) -> Any:
    return tuple.__new__(kind, values)
