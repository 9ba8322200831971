"""The few steps the codec takes on raw memory, in plain Python.

codec.pxd has the same functions in C, and the compiled codec takes them from there. The codec is written so
that a pointer and a bytes object read alike: both are indexed and sliced.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from operator import index
from sys import byteorder
from typing import NamedTuple, TypeVar

_SIGN = 1 << 63
_WRAP = 1 << 64

T = TypeVar("T")

# What the codec asks of Cython, where that is not installed.

compiled = False


def cclass(declared: T) -> T:
    return declared


final = no_gc = cclass


def freelist(_size: int) -> Callable[[T], T]:
    return cclass


# Memory.


class Fields(NamedTuple):
    """Where the parts of one record are."""

    end: int  # of the record; negative: what is wrong with it
    timestamp_delta: int
    offset_delta: int
    key_at: int
    key_size: int  # negative: null
    value_at: int
    value_size: int  # negative: null
    headers_at: int
    header_count: int


class Cell(NamedTuple):
    """Where the bytes of a key or of a value are."""

    data: bytes
    at: int
    size: int  # negative: null


def cell_of(value: bytes | None) -> Cell:
    return Cell(b"", 0, -1) if value is None else Cell(value, 0, len(value))


def cell_in(items: list[bytes | None], index: int) -> Cell:
    return cell_of(items[index])


def read_offset(offsets: bytes, index: int, is_wide: bool) -> int:
    """A number of an array of 64 or 32 bits each, in the order of bytes that this machine has."""
    size = 8 if is_wide else 4
    return int.from_bytes(offsets[index * size : (index + 1) * size], byteorder, signed=True)


def read_varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """A signed number of at most 32 bits, and the position behind it: -1 when it is cut or too long."""
    if position < end and data[position] < 0x80:
        raw = data[position]
        return (raw >> 1) ^ -(raw & 1), position + 1
    return read_wide(data, position, end, 35, 0xFFFFFFFF)


def read_varlong(data: bytes, position: int, end: int) -> tuple[int, int]:
    """A signed number of at most 64 bits, likewise."""
    if position < end and data[position] < 0x80:
        raw = data[position]
        return (raw >> 1) ^ -(raw & 1), position + 1
    return read_wide(data, position, end, 70, 0xFFFFFFFFFFFFFFFF)


def read_wide(data: bytes, position: int, end: int, most_bits: int, mask: int) -> tuple[int, int]:
    """A number of several bytes. Bits beyond the mask are dropped, as Kafka's reader drops them."""
    raw = 0
    shift = 0
    while position < end and shift < most_bits:
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= mask
            return (raw >> 1) ^ -(raw & 1), position
        shift += 7
    return 0, -1


def big_endian(data: bytes, position: int, size: int) -> int:
    """A signed number of so many bytes, which must be there."""
    return int.from_bytes(data[position : position + size], "big", signed=True)


def processor_crc(_view: memoryview, _start: int) -> int:
    """What the processor computes in C; here nothing does, and the package is asked."""
    return -1


def view_of(data: bytes | bytearray | memoryview) -> memoryview:
    return memoryview(data)


def octets(view: memoryview) -> bytes:
    """The bytes behind a view, to read."""
    if not view.c_contiguous:
        raise BufferError("the buffer is not contiguous")
    return bytes(view)


def put_offset_and_epoch(view: memoryview, position: int, offset: int, epoch: int) -> None:
    """What the leader writes into a batch for the log. The checksum does not cover it."""
    view[position : position + 8] = offset.to_bytes(8, "big", signed=True)
    view[position + 12 : position + 16] = epoch.to_bytes(4, "big", signed=True)


def writable(out: bytearray) -> bytearray:
    """The bytes of `out`, to write; good until the next resize."""
    return out


def int32s(numbers: array[int]) -> array[int]:
    return numbers


def int64s(numbers: array[int]) -> array[int]:
    return numbers


def resize(out: bytearray, size: int) -> None:
    """Cut `out`, or grow it by bytes that are to be written before they are read."""
    if size > len(out):
        out.extend(bytes(size - len(out)))
    else:
        del out[size:]


def resize_numbers(numbers: array[int], count: int) -> None:
    if count > len(numbers):
        numbers.frombytes(bytes((count - len(numbers)) * numbers.itemsize))
    else:
        del numbers[count:]


def copy(out: bytearray, position: int, source: bytes, size: int) -> None:
    out[position : position + size] = source


def copy_range(out: bytearray, position: int, data: bytes, start: int, size: int) -> None:
    out[position : position + size] = data[start : start + size]


def fill_ones(out: bytearray, start: int, end: int) -> None:
    out[start:end] = b"\xff" * (end - start)


def wrapping_add(left: int, right: int) -> int:
    """The sum as 64 bits hold it: hostile bytes may ask for more."""
    return (left + right + _SIGN) % _WRAP - _SIGN


def wrapping_subtract(left: int, right: int) -> int:
    return (left - right + _SIGN) % _WRAP - _SIGN


def int64(number: int) -> int:
    """`number` itself, if it is whole and 64 bits hold it."""
    number = index(number)
    if not -_SIGN <= number < _SIGN:
        raise OverflowError("the number does not fit in 64 bits")
    return number
