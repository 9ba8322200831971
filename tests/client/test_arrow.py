"""Arrow tables to send: what a chunk takes from each kind of column."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pytest

from ottla.client.errors import InvalidRecord
from ottla.client.producer.arrow import fill_from_arrow
from ottla.client.producer.batch import ANONYMOUS, Encoding
from ottla.client.producer.buffer_pool import BufferPool
from ottla.client.producer.chunk import Chunk
from ottla.client.producer.partition_queue import PartitionQueue
from ottla.records.compression import NONE
from ottla.records.read import read_records


def filled(table: Any) -> Chunk:
    chunk = Chunk("topic", threading.Lock(), 0.0)
    fill_from_arrow(chunk, table)
    return chunk


@pytest.mark.parametrize(
    "column",
    [
        pa.array([b"one", None, b""], pa.binary()),
        pa.array([b"one", None, b""], pa.large_binary()),
        pa.array(["one", None, ""], pa.string()),
        pa.array(["one", None, ""], pa.large_string()),
        pa.array([b"before", b"one", None, b"", b"behind"], pa.binary()).slice(1, 3),
        pa.chunked_array([pa.array([b"one"]), pa.array([None], pa.binary()), pa.array([b""])]),
        pa.chunked_array([pa.array([], pa.string()), pa.array(["one", None, ""])]),
    ],
)
def test_bytes_and_text_in_any_shape(column: Any) -> None:
    chunk = filled(pa.table({"key": column, "value": column}))
    assert list(chunk.values) == [b"one", None, b""]
    assert list(chunk.keys or ()) == [b"one", None, b""]


def test_a_record_batch_and_bytes_of_one_size() -> None:
    column = pa.array([b"abcd", None, b"efgh"], pa.binary(4))
    assert list(filled(pa.record_batch({"value": column})).values) == [b"abcd", None, b"efgh"]
    assert list(filled(pa.table({"value": column.slice(1)})).values) == [None, b"efgh"]


@pytest.mark.parametrize("column", [pa.array([], pa.binary()), pa.chunked_array([], pa.string())])
def test_a_table_without_rows(column: Any) -> None:
    assert not filled(pa.table({"value": column})).values


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (pa.nulls(2), [None, None]),
        (pa.array(["a", None], pa.string_view()), [b"a", None]),
        (pa.array([b"a", None], pa.binary_view()), [b"a", None]),
        (pa.array(["a", "b", "a", None]).dictionary_encode(), [b"a", b"b", b"a", None]),
        (pa.chunked_array([pa.array(["a"]).dictionary_encode(), pa.array(["b"]).dictionary_encode()]), [b"a", b"b"]),
    ],
)
def test_other_layouts_of_bytes_and_text_are_taken(column: Any, values: list[bytes | None]) -> None:
    chunk = Chunk("t", threading.Lock(), 0)
    fill_from_arrow(chunk, pa.table({"value": column, "key": column}))
    assert list(chunk.values) == values
    assert chunk.keys is not None
    assert list(chunk.keys) == values


@pytest.mark.parametrize("column", [pa.array([1]), pa.array([1]).dictionary_encode(), pa.array([["a"]])])
def test_what_is_neither_bytes_nor_text_is_refused(column: Any) -> None:
    with pytest.raises(InvalidRecord, match="column value is binary or text, not"):
        filled(pa.table({"value": column}))


def test_tables_and_lists_travel_together() -> None:
    plain = Chunk("topic", threading.Lock(), 0.0)
    plain.values = [b"three"]
    keyed = filled(pa.table({"key": ["a", "b"], "value": ["one", "two"]}))
    every_second = filled(pa.table({"value": ["four", "left out", "five"]}))
    for chunks in ([keyed, plain, every_second], [plain, keyed, every_second], [every_second, plain, keyed]):
        queue = PartitionQueue("topic", 0, ANONYMOUS)
        expected: list[tuple[bytes | None, bytes | None]] = []
        for chunk in chunks:
            indexes = range(0, len(chunk.values), 2 if chunk is every_second else 1)
            queue.add(chunk, indexes, 10, 100, 0.0)
            expected += [(chunk.keys[index] if chunk.keys else None, chunk.values[index]) for index in indexes]
        assert len(queue.waiting) == 1
        encoded = queue.take().encode(Encoding(NONE, None), BufferPool())
        assert isinstance(encoded, bytearray)
        sent = read_records(encoded)
        assert [(record.key, record.value) for record in sent] == expected
