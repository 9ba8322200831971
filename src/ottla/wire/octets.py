"""The few steps that fast_path.py takes on raw memory, in plain Python: fast_path.pxd has the same in C."""

from __future__ import annotations

compiled = False  # what is asked of Cython, where that is not installed


def octets(view: memoryview) -> memoryview:
    return view


def writable(out: bytearray) -> bytearray:
    return out


def big_endian(data: memoryview, position: int, size: int) -> int:
    return int.from_bytes(data[position : position + size], "big", signed=True)


def text(data: memoryview, start: int, stop: int) -> str:
    return str(data[start:stop], "utf-8")


def text_or_marks(data: memoryview, start: int, stop: int) -> str:
    """With a mark in place of what is no UTF-8."""
    return str(data[start:stop], "utf-8", "replace")


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


def put_big_endian(out: bytearray, position: int, value: int, size: int) -> int:
    """The position behind it."""
    out[position : position + size] = value.to_bytes(size, "big", signed=True)
    return position + size


def put_bytes(out: bytearray, position: int, data: bytes) -> int:
    out[position : position + len(data)] = data
    return position + len(data)
