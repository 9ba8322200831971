"""Arrow tables in and out. The one module here that imports pyarrow, and only when it is called for."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ottla.client.chunk import Chunk
from ottla.client.errors import InvalidRecord

_COLUMNS = ("key", "value", "timestamp", "headers", "partition")


def fill_from_arrow(chunk: Chunk, table: Any) -> None:
    """From columns `value` and, if they are there, `key`, `timestamp`, `headers` and `partition`."""
    unknown = [name for name in table.schema.names if name not in _COLUMNS]
    if unknown or "value" not in table.schema.names:
        raise InvalidRecord(
            f"a table to send has a column value, and may have key, timestamp, headers and partition; "
            f"this one has {', '.join(table.schema.names)}",
            topic=chunk.topic,
        )
    columns = {name: table.column(name) for name in table.schema.names}
    chunk.values = _binary(chunk, "value", columns["value"])
    if "key" in columns:
        chunk.keys = _binary(chunk, "key", columns["key"])
    if "partition" in columns:
        chunk.partitions = columns["partition"].to_pylist()
    if "timestamp" in columns:
        chunk.timestamps = _timestamps(chunk, columns["timestamp"])
    if "headers" in columns:
        chunk.headers = [
            [(header["key"], header["value"]) for header in headers or ()] for headers in columns["headers"].to_pylist()
        ]


def _binary(chunk: Chunk, name: str, column: Any) -> list[bytes | None]:
    """Text goes as UTF-8."""
    kind = column.type
    is_bytes = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        column = column.cast(pa.large_binary())
    elif not is_bytes:
        raise InvalidRecord(f"column {name} is binary or text, not {kind}", topic=chunk.topic)
    values: list[bytes | None] = column.to_pylist()
    return values


def _timestamps(chunk: Chunk, column: Any) -> list[int]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    timestamps = [chunk.timestamp_ms if one is None else int(one) for one in column.to_pylist()]
    if timestamps and min(timestamps) < 0:
        raise InvalidRecord(f"a timestamp is not negative: {min(timestamps)}", topic=chunk.topic)
    return timestamps
