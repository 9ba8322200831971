"""Record batches into Arrow as Spark takes it, without an object for a record."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ottla.client import FetchedData
from ottla.pipelines.offset_range import OffsetRange
from ottla.records.codec import Binary, ColumnBuffers, Columns, ColumnsFull, Headers
from ottla.records.read import Batch

TARGET_BYTES = 4 << 20
"""Of a RecordBatch: large enough that its cost is that of its bytes."""
CREATE_TIME, LOG_APPEND_TIME = 0, 1
ARROW_TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))),
}
"""As Spark expects them: it compares them, by name and order, with what the source says of its columns."""


class RowBuilder:
    """Of one range of a partition. What is the same for all rows is made once and cut to size."""

    def __init__(self, columns: Iterable[str], wanted: OffsetRange, target_bytes: int = TARGET_BYTES) -> None:
        self._schema = pa.schema([(name, ARROW_TYPES[name]) for name in columns])
        self._range = wanted
        self._target_bytes = target_bytes
        self._topic = _Repeated(pa.scalar(wanted.topic, pa.string()))
        self._partition = _Repeated(pa.scalar(wanted.partition, pa.int32()))
        self._timestamp_types = [_Repeated(pa.scalar(kind, pa.int32())) for kind in (CREATE_TIME, LOG_APPEND_TIME)]
        self._with_headers = "headers" in self._schema.names

    def batches(self, portion: FetchedData) -> Iterator[pa.RecordBatch]:
        """What may be seen of the portion, and belongs to the range."""
        for kind, columns in self._columns(portion):
            batch = self._record_batch(columns.finish(), kind)
            if batch.num_rows:
                yield batch

    def _columns(self, portion: FetchedData) -> Iterator[tuple[int, Columns]]:
        """With the kind of their timestamps, which may change in the middle of a topic."""
        columns, kind, size = Columns(self._with_headers), CREATE_TIME, 0
        for batch in portion.visible():
            next_kind = LOG_APPEND_TIME if batch.header.is_log_append_time else CREATE_TIME
            if size and (next_kind != kind or size >= self._target_bytes):
                yield kind, columns
                size = 0
            kind = next_kind
            area = batch.area()
            try:
                _append(columns, batch, area, portion.fetch_offset)
            except ColumnsFull:
                yield kind, columns
                size = 0
                _append(columns, batch, area, portion.fetch_offset)
            size += len(area)
        if size:
            yield kind, columns

    def _record_batch(self, columns: ColumnBuffers, kind: int) -> pa.RecordBatch:
        """The buffers are taken as they are, without a copy."""
        rows = columns.rows
        makers: dict[str, Callable[[], Any]] = {
            "key": lambda: _binary(pa.binary(), rows, columns.keys),
            "value": lambda: _binary(pa.binary(), rows, columns.values),
            "topic": lambda: self._topic.cut(rows),
            "partition": lambda: self._partition.cut(rows),
            "offset": lambda: pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(columns.offsets)]),
            "timestamp": lambda: _timestamps(rows, columns.timestamps),
            "timestampType": lambda: self._timestamp_types[kind].cut(rows),
            "headers": lambda: self._headers(rows, columns.headers),
        }
        batch = pa.RecordBatch.from_arrays([makers[name]() for name in self._schema.names], schema=self._schema)
        batch = batch.slice(0, bisect_left(columns.offsets, self._range.end))
        return self._of_time(batch, columns.timestamps)

    def _headers(self, rows: int, headers: Headers | None) -> Any:
        """As Spark's own source has it: no headers are null."""
        assert headers is not None
        names = _binary(pa.string(), headers.count, headers.names)
        values = _binary(pa.binary(), headers.count, headers.values)
        kind = self._schema.field("headers").type
        pairs = pa.StructArray.from_arrays([names, values], fields=list(kind.value_type))
        found = pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(headers.offsets)], children=[pairs])
        return pc.if_else(pc.greater(pc.list_value_length(found), 0), found, pa.scalar(None, kind))

    def _of_time(self, batch: pa.RecordBatch, timestamps: memoryview) -> pa.RecordBatch:
        least, limit = self._range.least_time_ms, self._range.time_limit_ms
        if least is None and limit is None:
            return batch
        times = pa.Array.from_buffers(pa.int64(), batch.num_rows, [None, pa.py_buffer(timestamps)])
        kept = pa.scalar(True)
        if least is not None:
            kept = pc.and_(kept, pc.greater_equal(times, least))
        if limit is not None:
            kept = pc.and_(kept, pc.less(times, limit))
        return batch.filter(kept)


class _Repeated:
    """One value, as often as it is wanted."""

    def __init__(self, value: Any) -> None:
        self._value = value
        self._array = pa.repeat(value, 0)

    def cut(self, rows: int) -> Any:
        if rows > len(self._array):
            self._array = pa.repeat(self._value, max(rows, 2 * len(self._array)))
        return self._array.slice(0, rows)


def _append(columns: Columns, batch: Batch, area: Any, start_offset: int) -> None:
    header = batch.header
    append_time = header.max_timestamp if header.is_log_append_time else None
    columns.append_batch(area, header.count, header.base_offset, header.base_timestamp, append_time, start_offset)


def _binary(kind: Any, rows: int, column: Binary) -> Any:
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind, rows, buffers, null_count=column.null_count)


def _timestamps(rows: int, timestamps: memoryview) -> Any:
    """Spark counts in microseconds. A time so late that it has none is the latest that has."""
    times = pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(timestamps)])
    try:
        times = pc.multiply_checked(times, 1000)
    except pa.ArrowInvalid:
        times = pc.multiply(pc.min_element_wise(times, _LATEST_MS), 1000)
    return times.view(pa.timestamp("us", tz="UTC"))


_LATEST_MS = (1 << 63) // 1000 - 1
