"""Many records that are given at once, checked and laid out as the columns of a chunk."""

from __future__ import annotations

from typing import Any

from ottla.client.producer.chunk import Chunk
from ottla.client.producer.routing import NewRecord
from ottla.client.producer.sending import Serialize, as_bytes, check_partition, check_timestamp, checked_headers
from ottla.records.codec import holds_bytes


def fill(chunk: Chunk, records: list[Any], serialize: Serialize | None) -> None:
    """InvalidRecord, and nothing is changed outside of the chunk, if one of them can never be written."""
    if serialize is None and holds_bytes(records):
        chunk.values = records.copy()
        return
    given = [record if isinstance(record, NewRecord) else NewRecord(record) for record in records]
    if serialize is not None:
        pairs = [serialize(chunk.topic, record.value, record.key) for record in given]
        given = [record._replace(value=value, key=key) for record, (value, key) in zip(given, pairs, strict=True)]
    for record in given:
        if record.timestamp_ms is not None:
            check_timestamp(record.timestamp_ms, chunk.topic)
        if record.partition is not None:
            check_partition(record.partition, chunk.topic)
    chunk.values = [_checked("value", record.value) for record in given]
    keys = [_checked("key", record.key) for record in given]
    chunk.keys = keys if any(key is not None for key in keys) else None
    if any(record.headers for record in given):
        chunk.headers = [checked_headers(record.headers, chunk.topic) if record.headers else () for record in given]
    if any(record.partition is not None for record in given):
        chunk.partitions = [record.partition for record in given]
    if any(record.timestamp_ms is not None for record in given):
        now_ms = chunk.timestamp_ms
        chunk.timestamps = [now_ms if record.timestamp_ms is None else record.timestamp_ms for record in given]


def _checked(what: str, value: Any) -> bytes | None:
    return value if value is None or type(value) is bytes else as_bytes(what, value)
