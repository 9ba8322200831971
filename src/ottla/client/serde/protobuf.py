"""Protobuf with a schema registry: `pip install ottla[protobuf]`. Subjects are TOPIC-key and TOPIC-value.

Files that a message's file imports are registered too, under their own names; those of Protobuf itself every registry
has.
"""

from __future__ import annotations

import base64
from typing import Any

from ottla.client.serde.binding import Field, Function
from ottla.client.serde.registry import Schema, SchemaRegistry, frame, unframe

PROTOBUF = "PROTOBUF"
OF_PROTOBUF_ITSELF = "google/protobuf/"


class ProtobufSerializer:
    """`message` is the class that is sent. Its schema is registered as the bytes of its file's descriptor."""

    def __init__(self, registry: SchemaRegistry, message: type[Any]) -> None:
        self._registry = registry
        self._message = message
        self._place = _place_of(message.DESCRIPTOR)

    def bind(self, topic: str, field: Field) -> Function:
        schema_id = self._registry.register(f"{topic}-{field}", self._schema_of(self._message.DESCRIPTOR.file))

        def encode(value: Any) -> bytes:
            if not isinstance(value, self._message):
                raise TypeError(f"it is a {self._message.__name__}, not a {type(value).__name__}")
            return frame(schema_id, self._place + value.SerializeToString())

        return encode

    def _schema_of(self, file: Any) -> Schema:
        """With what it imports, which the registry has to know before."""
        imported = [one for one in file.dependencies if not one.name.startswith(OF_PROTOBUF_ITSELF)]
        references = tuple(self._registry.refer(one.name, self._schema_of(one)) for one in imported)
        return Schema(base64.b64encode(file.serialized_pb).decode(), PROTOBUF, references)


class ProtobufDeserializer:
    """Makes objects of one class of messages."""

    def __init__(self, message: type[Any]) -> None:
        self._message = message

    def bind(self, topic: str, field: Field) -> Function:
        return self._decode

    def _decode(self, data: bytes) -> Any:
        _, body = unframe(bytes(data))
        count, position = _read_varint(body, 0)
        for _ in range(count):
            _, position = _read_varint(body, position)
        return self._message.FromString(body[position:])


def _place_of(descriptor: Any) -> bytes:
    """Which message of its file: indexes from the outermost on. The first of all is a single zero."""
    indexes: list[int] = []
    while descriptor is not None:
        outer = descriptor.containing_type
        siblings = outer.nested_types if outer is not None else list(descriptor.file.message_types_by_name.values())
        indexes.insert(0, [one.full_name for one in siblings].index(descriptor.full_name))
        descriptor = outer
    if indexes == [0]:
        return b"\0"
    return b"".join(_varint(number) for number in (len(indexes), *indexes))


def _varint(number: int) -> bytes:
    """Zigzag, as Confluent's format has them."""
    left, out = number << 1, bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(data) or shift > 28:
            raise ValueError("the indexes of the message are cut off")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value >> 1, position
