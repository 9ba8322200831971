"""Records as columns: the same as the objects, in buffers that Arrow wraps."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.records.batch import CorruptBatch
from tests.records.codecs import both_ways
from tests.records.strategies import DRAFTS, Draft

HEADER_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def binary(kind: Any, rows: int, column: Any) -> Any:
    buffers = [None if buffer is None else pa.py_buffer(buffer) for buffer in column[:3]]
    return pa.Array.from_buffers(kind, rows, buffers, null_count=column.null_count)


def table(columns: Any) -> Any:
    """What a reader does with the buffers: wrap them, copy nothing."""
    rows = columns.rows
    arrays = {
        "offset": pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(columns.offsets)]),
        "timestamp": pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(columns.timestamps)]),
        "key": binary(pa.binary(), rows, columns.keys),
        "value": binary(pa.binary(), rows, columns.values),
    }
    if columns.headers is not None:
        headers = columns.headers
        names = binary(pa.string(), headers.count, headers.names)
        values = binary(pa.binary(), headers.count, headers.values)
        pairs = pa.StructArray.from_arrays([names, values], ["key", "value"])
        list_buffers = [None, pa.py_buffer(headers.offsets)]
        arrays["headers"] = pa.Array.from_buffers(HEADER_TYPE, rows, list_buffers, children=[pairs])
    made = pa.table(arrays)
    made.validate(full=True)
    return made


def encode(codec: ModuleType, drafts: list[Draft]) -> bytearray:
    area: bytearray = codec.encode_records([tuple(draft) for draft in drafts], 0)
    return area


def expected_rows(records: list[Any], with_headers: bool) -> list[dict[str, object]]:
    rows = []
    for record in records:
        row = {"offset": record.offset, "timestamp": record.timestamp, "key": record.key, "value": record.value}
        if with_headers:
            row["headers"] = [{"key": name, "value": value} for name, value in record.headers]
        rows.append(row)
    return rows


@both_ways
@given(batches=st.lists(DRAFTS, max_size=4), with_headers=st.booleans(), start_offset=st.integers(0, 40))
def test_arrow_reads_what_the_objects_say(
    codec: ModuleType, batches: list[list[Draft]], with_headers: bool, start_offset: int
) -> None:
    columns = codec.Columns(with_headers)
    records = []
    base_offset = 0
    for drafts in batches:
        area = encode(codec, drafts)
        columns.append_batch(area, len(drafts), base_offset, 0, start_offset=start_offset)
        records += codec.decode_records(area, len(drafts), base_offset, 0, start_offset=start_offset)
        base_offset += len(drafts)
    assert columns.rows == len(records)
    assert table(columns.finish()).to_pylist() == expected_rows(records, with_headers)


@both_ways
def test_log_append_time(codec: ModuleType) -> None:
    columns = codec.Columns()
    columns.append_batch(codec.encode_columns([b"a", b"b"], timestamps=[1, 2]), 2, 0, 0, 99)
    assert list(columns.finish().timestamps) == [99, 99]


@both_ways
def test_no_validity_where_nothing_is_null(codec: ModuleType) -> None:
    columns = codec.Columns()
    columns.append_batch(codec.encode_columns([b"a"] * 20, [b""] * 19 + [None]), 20, 0, 0)
    made = columns.finish()
    assert made.values.validity is None
    assert made.keys.null_count == 1
    assert [made.keys.validity[row >> 3] >> (row & 7) & 1 for row in range(20)] == [1] * 19 + [0]


@both_ways
def test_finish_begins_anew(codec: ModuleType) -> None:
    columns = codec.Columns(True)
    assert columns.finish().rows == 0
    columns.append_batch(codec.encode_values([b"a", None]), 2, 0, 0)
    first = columns.finish()
    columns.append_batch(codec.encode_values([b"b"]), 1, 2, 0)
    second = columns.finish()
    assert [row["value"] for row in table(first).to_pylist()] == [b"a", None]
    assert [row["value"] for row in table(second).to_pylist()] == [b"b"]


@both_ways
@pytest.mark.parametrize("with_headers", [False, True])
def test_a_corrupt_batch_leaves_no_trace(codec: ModuleType, with_headers: bool) -> None:
    good = codec.encode_records([(1, b"k", b"v", [("n", b"x")]), (2, None, None, [("n", None)])], 0)
    corrupt = codec.encode_records([(1, None, None, [("n", None)]), (2, None, b"w", [("m", b"y")])], 0)
    columns = codec.Columns(with_headers)
    columns.append_batch(good, 2, 0, 0)
    for count, area in ((2, bytes(corrupt) + b"\0"), (2, bytes(corrupt[:-1])), (1, bytes(corrupt))):
        with pytest.raises(CorruptBatch):
            columns.append_batch(area, count, 2, 0)
    columns.append_batch(good, 2, 2, 0)
    records = codec.decode_records(good, 2, 0, 0) + codec.decode_records(good, 2, 2, 0)
    assert table(columns.finish()).to_pylist() == expected_rows(records, with_headers)


@both_ways
def test_columns_are_full_before_their_limit_is_passed(codec: ModuleType) -> None:
    area = codec.encode_values([b"x" * 100])
    columns = codec.Columns(limit_bytes=2 * len(area))
    columns.append_batch(area, 1, 0, 0)
    columns.append_batch(area, 1, 1, 0)
    with pytest.raises(codec.ColumnsFull):
        columns.append_batch(area, 1, 2, 0)
    assert list(columns.finish().offsets) == [0, 1]
    columns.append_batch(area, 1, 2, 0)
    with pytest.raises(ValueError, match="at most"):
        codec.Columns(limit_bytes=1 << 31)


@both_ways
def test_header_names_become_utf8(codec: ModuleType) -> None:
    """Arrow trusts a string column to be UTF-8."""
    area = bytes([18, 0, 0, 0, 1, 1, 2, 2, 0xFF, 1])
    columns = codec.Columns(True)
    columns.append_batch(area, 1, 0, 0)
    assert table(columns.finish()).to_pylist()[0]["headers"] == [{"key": "\ufffd", "value": None}]
