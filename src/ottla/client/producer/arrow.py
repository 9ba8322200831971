"""Arrow tables in and out. The one module here that imports pyarrow, and only when it is called for."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import Any

import pyarrow as pa

from ottla.client.consumer.fetched_data import FetchedData
from ottla.client.errors import ClientError, InvalidRecord
from ottla.client.producer.chunk import Chunk, Headers
from ottla.client.producer.sending import HIGHEST_PARTITION, HIGHEST_TIMESTAMP_MS, checked_headers
from ottla.records.codec import Binary, Column, ColumnBuffers, Rows
from ottla.records.codec import Headers as HeaderColumns

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
    if twice := sorted({name for name in table.schema.names if table.schema.names.count(name) > 1}):
        raise InvalidRecord(
            f"a table to send has each column once, and not more of {', '.join(twice)}", topic=chunk.topic
        )
    columns = {name: table.column(name) for name in table.schema.names}
    chunk.values = _binary(chunk, "value", columns["value"])
    if "key" in columns:
        chunk.keys = _binary(chunk, "key", columns["key"])
    if "partition" in columns:
        chunk.partitions = _whole_numbers(chunk, "partition", columns["partition"], HIGHEST_PARTITION)
    if "timestamp" in columns:
        chunk.timestamps = _timestamps(chunk, columns["timestamp"])
    if "headers" in columns:
        chunk.headers = _headers(chunk, columns["headers"])


def _binary(chunk: Chunk, name: str, column: Any) -> Column:
    """The bytes stay where they are. Text goes as UTF-8. What is laid out otherwise is copied."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        try:
            column = column.cast(kind.value_type)
        except pa.ArrowNotImplementedError:
            raise InvalidRecord(f"column {name} is binary or text, not {kind}", topic=chunk.topic) from None
    kind = column.type
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_null(kind) or kind == pa.binary_view():
        column = column.cast(pa.binary())
    elif kind == pa.string_view():
        column = column.cast(pa.string())
    elif kind not in (pa.binary(), pa.string(), pa.large_binary(), pa.large_string()):
        raise InvalidRecord(f"column {name} is binary or text, not {kind}", topic=chunk.topic)
    if not len(column):
        return []
    if isinstance(column, pa.ChunkedArray):
        # Several become one, with wide offsets, for together they may be larger than others can say.
        column = column.chunk(0) if column.num_chunks == 1 else column.cast(pa.large_binary()).combine_chunks()
    validity, offsets, data = column.buffers()
    is_wide = column.type in (pa.large_binary(), pa.large_string())
    return Rows(data or b"", offsets, validity if column.null_count else None, column.offset, len(column), is_wide)


def _timestamps(chunk: Chunk, column: Any) -> list[int]:
    column = _without_dictionary(column)
    if pa.types.is_timestamp(column.type):
        try:
            # From finer units it is cut; from seconds nothing may be lost.
            column = column.cast(pa.timestamp("ms", column.type.tz), safe=column.type.unit == "s").cast(pa.int64())
        except pa.ArrowInvalid as error:
            raise InvalidRecord(f"a timestamp does not fit into milliseconds: {error}", topic=chunk.topic) from None
    timestamps = _whole_numbers(chunk, "timestamp", column, HIGHEST_TIMESTAMP_MS)
    return [chunk.timestamp_ms if one is None else one for one in timestamps]


def _without_dictionary(column: Any) -> Any:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _whole_numbers(chunk: Chunk, name: str, column: Any, highest: int) -> list[int | None]:
    """From 0 on, or None. A column of another kind is refused as a whole: nothing of it may reach the sender."""
    column = _without_dictionary(column)
    if not pa.types.is_integer(column.type) and column.null_count != len(column):
        what = "whole numbers" if name == "partition" else "timestamps, or whole numbers of milliseconds since 1970"
        raise InvalidRecord(f"column {name} is {what}, not {column.type}", topic=chunk.topic)
    numbers: list[int | None] = column.to_pylist()
    given = [one for one in numbers if one is not None]
    if given and min(given) < 0:
        raise InvalidRecord(f"a {name} is not negative: {min(given)}", topic=chunk.topic)
    if given and max(given) > highest:
        raise InvalidRecord(f"a {name} is at most {highest:,}, not {max(given):,}", topic=chunk.topic)
    return numbers


def _headers(chunk: Chunk, column: Any) -> list[Headers]:
    """A list of structs of `key` and `value`, or a map."""
    try:
        rows = [
            [one if isinstance(one, tuple) else (one["key"], one["value"]) for one in headers or ()]
            for headers in column.to_pylist()
        ]
    except (TypeError, KeyError):
        has_null = any(one is None for headers in column.to_pylist() if isinstance(headers, list) for one in headers)
        kind = "and one of its headers is null" if has_null else f"not {column.type}"
        raise InvalidRecord(
            f"column headers is a list of structs of key and value, {kind}", topic=chunk.topic
        ) from None
    return [checked_headers(headers, chunk.topic) if headers else () for headers in rows]


def record_batches(
    data: FetchedData, start: int, end: int | None = None, *, with_headers: bool = False
) -> tuple[list[pa.RecordBatch], int, ClientError | None]:
    """The records from `start` on: topic, partition, offset, timestamp, key, value, and headers if they are asked for.

    Beside them, the offset up to which they go, `end` at most, and what is wrong there.
    """
    found, next_offset, damage = data.columns(start, with_headers=with_headers)
    if end is not None and end < next_offset:
        next_offset, damage = end, None
    batches = [_record_batch(data, columns.finish(), next_offset) for columns in found]
    return [batch for batch in batches if batch.num_rows], next_offset, damage


def _record_batch(data: FetchedData, columns: ColumnBuffers, end: int) -> pa.RecordBatch:
    """The buffers are taken as they are, without a copy."""
    rows = columns.rows
    zeros = pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(bytes(4 * rows))])
    arrays = {
        "topic": pa.DictionaryArray.from_arrays(zeros, _one_text(data.topic)),
        "partition": pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(array("i", [data.partition]) * rows)]),
        "offset": _numbers(pa.int64(), rows, columns.offsets),
        "timestamp": _numbers(pa.timestamp("ms", tz="UTC"), rows, columns.timestamps),
        "key": _binary_array(pa.binary(), rows, columns.keys),
        "value": _binary_array(pa.binary(), rows, columns.values),
    }
    if columns.headers is not None:
        arrays["headers"] = _headers_array(rows, columns.headers)
    batch = pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))
    return batch if not rows or columns.offsets[-1] < end else batch.slice(0, bisect_left(columns.offsets, end))


def _one_text(text: str) -> Any:
    """From its buffers: `pa.array` would import pandas to look whether it is given something of it."""
    encoded = text.encode()
    offsets = array("i", [0, len(encoded)])
    return pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(encoded)])


def _numbers(kind: Any, rows: int, numbers: memoryview) -> Any:
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(numbers)])


def _binary_array(kind: Any, rows: int, column: Binary) -> Any:
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind, rows, buffers, null_count=column.null_count)


def _headers_array(rows: int, headers: HeaderColumns) -> Any:
    names = _binary_array(pa.string(), headers.count, headers.names)
    values = _binary_array(pa.binary(), headers.count, headers.values)
    pairs = pa.StructArray.from_arrays([names, values], names=["key", "value"])
    return pa.Array.from_buffers(pa.list_(pairs.type), rows, [None, pa.py_buffer(headers.offsets)], children=[pairs])
