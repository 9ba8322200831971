"""Avro with a schema registry: `pip install ottla[avro]`. Subjects are TOPIC-key and TOPIC-value."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro

from ottla.client.serde.binding import Field, Function
from ottla.client.serde.registry import Schema, SchemaRegistry, frame, unframe

AVRO = "AVRO"


class AvroSerializer:
    """`schema` is its JSON text, or what that says. It is registered when the first record of a topic is sent."""

    def __init__(self, registry: SchemaRegistry, schema: str | dict[str, Any] | list[Any]) -> None:
        self._registry = registry
        said = json.loads(schema) if isinstance(schema, str) else schema
        self._schema = Schema(json.dumps(said), AVRO)
        self._parsed = fastavro.parse_schema(said)

    def bind(self, topic: str, field: Field) -> Function:
        schema_id = self._registry.register(f"{topic}-{field}", self._schema)

        def encode(value: Any) -> bytes:
            out = io.BytesIO()
            fastavro.schemaless_writer(out, self._parsed, value)
            return frame(schema_id, out.getvalue())

        return encode


class AvroDeserializer:
    """Reads what was written with any schema of the registry, as `schema` has it if one is given."""

    def __init__(self, registry: SchemaRegistry, schema: str | dict[str, Any] | None = None) -> None:
        self._registry = registry
        said = json.loads(schema) if isinstance(schema, str) else schema
        self._reader = None if said is None else fastavro.parse_schema(said)
        self._writers: dict[int, Any] = {}

    def bind(self, topic: str, field: Field) -> Function:
        return self._decode

    def _decode(self, data: bytes) -> Any:
        schema_id, body = unframe(bytes(data))
        writer = self._writers.get(schema_id)
        if writer is None:
            writer = self._writers[schema_id] = self._parse(self._registry.schema(schema_id), {})
        return fastavro.schemaless_reader(io.BytesIO(body), writer, self._reader)

    def _parse(self, schema: Schema, named: dict[str, Any]) -> Any:
        """With the types of the schemas that it refers to, which come to be among `named`."""
        for reference in schema.references:
            if reference.name not in named:
                self._parse(self._registry.referred(reference), named)
        return fastavro.parse_schema(json.loads(schema.text), named)
