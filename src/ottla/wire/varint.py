"""Unsigned varints: seven bits a byte, the lowest first, as lengths, counts and tags are written."""

from __future__ import annotations

from ottla.wire.errors import ProtocolError
from ottla.wire.parts import Buffer

_MOST_IN_FIFTH_BYTE = 0x07
"""Four bytes have 28 bits; a length has no more than 31."""

ONE_BYTE = tuple(bytes([value]) for value in range(128))
"""The varints that fit in a byte."""


def read_uvarint_tail(data: Buffer, position: int, first: int) -> tuple[int, int]:
    """Goes on behind the first byte of a varint that has more than one.

    Returns the value and the position behind it. Kafka reads an int32; what is above ends here.
    """
    # Two or three bytes are what records of some size have in front: worth to be written out.
    second = data[position]
    if second < 0x80:
        return first & 0x7F | second << 7, position + 1
    third = data[position + 1]
    value = first & 0x7F | (second & 0x7F) << 7 | (third & 0x7F) << 14
    if third < 0x80:
        return value, position + 2
    fourth = data[position + 2]
    value |= (fourth & 0x7F) << 21
    if fourth < 0x80:
        return value, position + 3
    fifth = data[position + 3]
    if fifth > _MOST_IN_FIFTH_BYTE:
        raise ProtocolError("varint above 31 bits")
    return value | fifth << 28, position + 4


def read_uvarint(data: Buffer, position: int) -> tuple[int, int]:
    first = data[position]
    return (first, position + 1) if first < 0x80 else read_uvarint_tail(data, position + 1, first)


def uvarint(value: int) -> bytes:
    if value < 0x80:
        return ONE_BYTE[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x20_0000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    low = bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14 & 0x7F | 0x80))
    return low + uvarint(value >> 21)


def skip_tags(data: Buffer, position: int, count: int) -> int:
    """Passes over tagged fields that nobody here knows. Their contents are not looked at."""
    for _ in range(count):
        _, position = read_uvarint(data, position)
        size_bytes, position = read_uvarint(data, position)
        position += size_bytes
        if position > len(data):
            raise ProtocolError(f"tagged field of {size_bytes} bytes, {len(data) - position + size_bytes} left")
    return position
