"""The steps that row_image.py takes on raw memory, in plain Python. row_image.pxd has the same functions in C."""

from __future__ import annotations

import struct

from ottla.connect.mysql.values import quoted


def little_endian(data: bytes, position: int, size: int) -> int:
    """An unsigned number of so many bytes, which must be there."""
    return int.from_bytes(data[position : position + size], "little")


def little_endian_signed(data: bytes, position: int, size: int) -> int:
    return int.from_bytes(data[position : position + size], "little", signed=True)


def big_endian_unsigned(data: bytes, position: int, size: int) -> int:
    return int.from_bytes(data[position : position + size], "big")


def float_at(data: bytes, position: int) -> float:
    number: float = struct.unpack_from("<f", data, position)[0]
    return number


def double_at(data: bytes, position: int) -> float:
    number: float = struct.unpack_from("<d", data, position)[0]
    return number


def put_number(out: bytearray, at: int, number: int) -> int:
    """Its digits, and the position behind them. There must be room for 20 bytes."""
    text = b"%d" % number
    out[at : at + len(text)] = text
    return at + len(text)


def put_unsigned(out: bytearray, at: int, number: int) -> int:
    return put_number(out, at, number)


def put_digits(out: bytearray, at: int, number: int, count: int) -> int:
    """Just so many digits, the last ones, with zeros in front."""
    out[at : at + count] = b"%0*d" % (count, number % 10**count)
    return at + count


def put_escaped(out: bytearray, at: int, data: bytes, start: int, size: int) -> int:
    """UTF-8 as the inside of a JSON string. There must be room for 6 bytes each."""
    text = quoted(data[start : start + size].decode("utf-8", "replace"))[1:-1]
    out[at : at + len(text)] = text
    return at + len(text)
