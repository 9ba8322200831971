"""Record batches as plain values: codecs may compress the same records to other bytes."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, TypeAlias

from ottla.records.batch import BatchHeader, CorruptBatch, check_batch, whole_batches
from ottla.records.read import Batch
from tests.conformance.masks import masked_number

Json: TypeAlias = Any

LEFT_OUT = {"length", "crc"}
DEFAULTS = {
    "base_offset": 0,
    "leader_epoch": 0,
    "magic": 2,
    "attributes": 0,
    "last_offset_delta": 0,
    "producer_id": -1,
    "producer_epoch": -1,
    "base_sequence": -1,
}
"""Of the header's fields, as a plain producer's batch of one record has them."""
SHOWN_BYTES = 100


def rendered_records(records: memoryview, number: Callable[[str, int], int | str]) -> list[Json]:
    """Batch by batch, sound or not; `number` masks the numbers of a header."""
    rendered: list[Json] = []
    size_bytes = 0
    try:
        for position, header in whole_batches(records):
            size_bytes += header.size
            rendered.append(_rendered_batch(Batch(header, records[position : position + header.size]), number))
    except CorruptBatch:
        rendered.append(f"{len(records) - size_bytes} bytes that are no batch")
        return rendered
    if size_bytes < len(records):
        rendered.append(f"{len(records) - size_bytes} bytes of another batch")
    return rendered


def _rendered_batch(batch: Batch, number: Callable[[str, int], int | str]) -> Json:
    rendered: dict[str, Json] = _rendered_header(batch.header, number)
    try:
        check_batch(batch.bytes)
        records = batch.records()
    except (ValueError, OverflowError, EOFError, zlib.error) as fault:
        return rendered | {"corrupt": str(fault)}
    rendered["records"] = [
        [
            record.offset,
            masked_number("timestamp", record.timestamp),
            _text(record.key),
            _text(record.value),
            *[[key, _text(value)] for key, value in record.headers],
        ]
        for record in records
    ]
    return rendered


def _rendered_header(header: BatchHeader, number: Callable[[str, int], int | str]) -> dict[str, Json]:
    return {
        field: number(field, value)
        for field, value in header._asdict().items()
        if field not in LEFT_OUT and DEFAULTS.get(field) != value
    }


def _text(value: bytes | None) -> str | None:
    if value is None:
        return None
    text = value.decode(errors="backslashreplace")
    return text if len(text) < SHOWN_BYTES else f"{text[:20]}... ({len(value)} bytes)"
