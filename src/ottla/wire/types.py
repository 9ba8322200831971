"""The types that fields are declared with: what Python sees, and how Kafka writes it."""

from __future__ import annotations

import struct
from typing import Annotated, TypeAlias

from ottla.wire.parts import Buffer, FileRange, Joined

LONGEST_STRING_BYTES = 0x7FFF
"""Of all strings: the older versions have an int16 for the length, and Kafka holds the later ones to it."""


class Kind:
    """How a value is laid out in bytes."""

    __slots__ = ()


class Fixed(Kind):
    """A value of a fixed size, by its code in the struct module."""

    __slots__ = ("code", "size_bytes")

    def __init__(self, code: str) -> None:
        self.code = code
        self.size_bytes = struct.calcsize(">" + code)


class Text(Kind):
    """UTF-8 behind its length in bytes."""


class Blob(Kind):
    """Bytes behind their length."""


class RecordsBlob(Kind):
    """Record batches behind their length. They are never copied: a view when read, a part when written."""


Int8: TypeAlias = Annotated[int, Fixed("b")]
Int16: TypeAlias = Annotated[int, Fixed("h")]
UInt16: TypeAlias = Annotated[int, Fixed("H")]
Int32: TypeAlias = Annotated[int, Fixed("i")]
Int64: TypeAlias = Annotated[int, Fixed("q")]
Float64: TypeAlias = Annotated[float, Fixed("d")]
Bool: TypeAlias = Annotated[bool, Fixed("?")]
Uuid: TypeAlias = Annotated[bytes, Fixed("16s")]
String: TypeAlias = Annotated[str, Text()]
Bytes: TypeAlias = Annotated[bytes, Blob()]
Records: TypeAlias = Annotated[Buffer | FileRange | Joined, RecordsBlob()]
