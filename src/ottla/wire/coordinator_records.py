"""How coordinators write their state into a log: keys start with their record type, values with their version."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from ottla.wire.parts import Buffer
from ottla.wire.schema import Message
from ottla.wire.versioned import decode_body, decode_versioned, encode_prefixed, encode_versioned, read_int16

_INT16 = struct.Struct(">h")
_KEY_VERSION = 0
_TYPE_BYTES = 2


class RecordTypes:
    """The records of one log: by their type, the messages of key and value."""

    def __init__(self, types: Mapping[int, tuple[type[Message], type[Message]]]) -> None:
        self.types = dict(types)
        self._type_of_key = {key: record_type for record_type, (key, _) in self.types.items()}
        self._prefixes = {key: _INT16.pack(record_type) for key, record_type in self._type_of_key.items()}

    def encode(self, key: Message, value: Message | None, version: int) -> tuple[bytes, bytes | None]:
        """Both, with few calls: each commit of an offset comes by here."""
        body: Any = key.writers[_KEY_VERSION](key)[0]
        key_bytes = self._prefixes[type(key)] + body
        if value is None:
            return key_bytes, None
        body = value.writers[version](value)[0]
        return key_bytes, _INT16.pack(version) + body

    def encode_key(self, key: Message) -> bytes:
        return encode_prefixed(self._type_of_key[type(key)], key, _KEY_VERSION)

    def decode_key(self, data: Buffer) -> Any:
        """The key; None if its type is not known here, which a reader of somebody else's log passes over."""
        record_type = read_int16(data, "record key")
        if record_type not in self.types:
            return None
        key, _ = self.types[record_type]
        return decode_body(key, _KEY_VERSION, data, _TYPE_BYTES)

    def decode_value(self, key: Message, data: Buffer) -> Any:
        """The value that belongs to a key. A tombstone is no value: do not ask."""
        _, value = self.types[self._type_of_key[type(key)]]
        return decode_versioned(value, data)

    @staticmethod
    def encode_value(value: Message | None, version: int) -> bytes | None:
        return None if value is None else encode_versioned(value, version)
