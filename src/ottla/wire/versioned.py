"""Messages that carry their version in front of them, as an int16: what is kept in logs and in group members.

The keys of coordinator records carry their record type in that place instead; see wire/messages.
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import TypeVar, cast

from ottla.wire.errors import ProtocolError
from ottla.wire.parts import Buffer
from ottla.wire.schema import Message

M = TypeVar("M", bound=Message)

_INT16 = struct.Struct(">h")


def read_int16(data: Buffer, what: str) -> int:
    try:
        return int(_INT16.unpack_from(data)[0])
    except struct.error as error:
        raise ProtocolError(f"{what}: {len(data)} bytes are too few") from error


def encode_body(message: Message, version: int) -> bytes:
    """The bytes of a message that carries no records, with nothing in front."""
    return cast(bytes, message.writers[version](message)[0])


def decode_body(message: type[M], version: int, data: Buffer, position: int = 0) -> M:
    return cast(M, message.readers[version](data, position)[0])


def encode_prefixed(prefix: int, message: Message, version: int) -> bytes:
    return _INT16.pack(prefix) + encode_body(message, version)


def encode_versioned(message: Message, version: int) -> bytes:
    return encode_prefixed(version, message, version)


def decode_versioned(message: type[M], data: Buffer, *, newer_as_highest: bool = False) -> M:
    """Reads the version and the message behind it.

    `newer_as_highest` is for messages whose later versions only add at the end: one from the future is read
    as the highest version known here.
    """
    version = read_int16(data, message.__name__)
    if newer_as_highest:
        version = min(version, message.versions.highest)
    return decode_body(message, version, data, _INT16.size)


def decode_versioned_in_steps(message: type[M], data: Buffer) -> Generator[None, None, M]:
    """The same for `newer_as_highest`, as a generator that yields after some elements."""
    version = min(read_int16(data, message.__name__), message.versions.highest)
    return cast(M, (yield from message.step_readers[version](data, _INT16.size))[0])
