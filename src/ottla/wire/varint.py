"""Unsigned varints: seven bits a byte, the lowest first, as lengths, counts and tags are written."""

from __future__ import annotations

from ottla.wire.parts import Buffer
from ottla.wire.protocol_error import ProtocolError

_MOST = 0x7FFF_FFFF

ONE_BYTE = tuple(bytes([value]) for value in range(128))
"""The varints that fit in a byte."""


def read_uvarint_tail(data: Buffer, position: int, first: int) -> tuple[int, int]:
    """Goes on behind the first byte of a varint that has more than one.

    Returns the value and the position behind it. Kafka reads an int32; what is above ends here.
    """
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > _MOST:
                break
            return value, position
    raise ProtocolError("varint above 31 bits")


def read_uvarint(data: Buffer, position: int) -> tuple[int, int]:
    first = data[position]
    return (first, position + 1) if first < 0x80 else read_uvarint_tail(data, position + 1, first)


def uvarint(value: int) -> bytes:
    if value < 0x80:
        return ONE_BYTE[value]
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def skip_tags(data: Buffer, position: int, count: int) -> int:
    """Passes over tagged fields that nobody here knows. Their contents are not looked at."""
    for _ in range(count):
        _, position = read_uvarint(data, position)
        size_bytes, position = read_uvarint(data, position)
        position += size_bytes
        if position > len(data):
            raise ProtocolError(f"tagged field of {size_bytes} bytes, {len(data) - position + size_bytes} left")
    return position
