"""kio, an independent implementation of Kafka's messages, as an oracle: its classes, and our values in them."""

from __future__ import annotations

import dataclasses
import datetime as dt
import io
import typing
import uuid
from typing import Any

from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from ottla.wire.layout import Array, Nested, layout_of
from ottla.wire.schema import Struct

UNIX_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
LATEST_SECONDS = int(dt.datetime(9999, 1, 1, tzinfo=dt.UTC).timestamp())
WHOLE_SECONDS_MS = st.integers(0, LATEST_SECONDS).map(lambda seconds: seconds * 1000)

NARROWED: dict[str | None, st.SearchStrategy[Any]] = {
    "error_code": st.sampled_from([int(code) for code in ErrorCode]),
    "timedelta_i64": WHOLE_SECONDS_MS,
    "datetime_i64": WHOLE_SECONDS_MS,
}
"""Where kio's types hold fewer values than the wire does; it computes times in floats."""


class Counterpart:
    """One message of kio's, in one version, beside ours."""

    def __init__(self, message: type[Struct], version: int, entity: type[Any]) -> None:
        self.message = message
        self.version = version
        self.entity = entity
        self._entities: dict[type[Struct], type[Any]] = {}
        self._pair(message, entity)

    def narrow(self, struct: type[Struct], field: str) -> st.SearchStrategy[Any] | None:
        return NARROWED.get(_fields(self._entities[struct])[field].metadata.get("kafka_type"))

    def convert(self, value: Struct) -> Any:
        """Our value as an object of kio's."""
        fields = _fields(self._entities[type(value)])
        layout = layout_of(type(value), self.version)
        assert set(fields) == {field.name for field in (*layout.positional, *layout.tagged)}
        converted = {}
        for name, field in fields.items():
            ours = getattr(value, name)
            if ours is None and "tag" in field.metadata:
                continue  # as a default
            converted[field.name] = self._converted(ours, field.metadata.get("kafka_type"))
        return self.entity_of(value)(**converted)

    def entity_of(self, value: Struct) -> type[Any]:
        return self._entities[type(value)]

    def write(self, entity: Any) -> bytes:
        return write_entity(entity)

    def read(self, data: bytes) -> Any:
        entity, size_bytes = entity_reader(self.entity)(data, 0)
        assert size_bytes == len(data)
        return entity

    def _converted(self, value: Any, kafka_type: str | None) -> Any:
        match value, kafka_type:
            case None, _:
                return None
            case Struct(), _:
                return self.convert(value)
            case list(), _:
                return tuple(self._converted(each, kafka_type) for each in value)
            case bytes(), "uuid":
                return uuid.UUID(bytes=value) if any(value) else None
            case int(), "error_code":
                return ErrorCode(value)
            case int(), "timedelta_i32" | "timedelta_i64":
                return dt.timedelta(milliseconds=value)
            case int(), "datetime_i64":
                return UNIX_EPOCH + dt.timedelta(milliseconds=value)
        return value

    def _pair(self, struct: type[Struct], entity: type[Any]) -> None:
        self._entities[struct] = entity
        layout = layout_of(struct, self.version)
        types = typing.get_type_hints(entity)
        fields = _fields(entity)
        for field in (*layout.positional, *layout.tagged):
            kind = field.kind.element if isinstance(field.kind, Array) else field.kind
            if isinstance(kind, Nested):
                self._pair(kind.struct, _nested_entity(types[fields[field.name].name]))


def write_entity(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def _fields(entity: type[Any]) -> dict[str, dataclasses.Field[Any]]:
    """kio's fields by our names: it leaves out the unit where its type knows it."""
    named = {}
    for field in dataclasses.fields(entity):
        unit = "_ms" if str(field.metadata.get("kafka_type")).startswith(("timedelta", "datetime")) else ""
        named[field.name.rstrip("_") + unit] = field
    return named


def _nested_entity(annotation: Any) -> type[Any]:
    if dataclasses.is_dataclass(annotation):
        return typing.cast(type[Any], annotation)
    for argument in typing.get_args(annotation):
        if argument is not type(None) and argument is not Ellipsis:
            return _nested_entity(argument)
    raise TypeError(f"no entity in {annotation!r}")
