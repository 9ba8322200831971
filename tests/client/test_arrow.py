"""Arrow tables to send: what a chunk takes from each kind of column."""

from __future__ import annotations

import datetime as dt
import threading
from typing import Any

import pyarrow as pa
import pytest

from ottla.client import Producer, TopicPartition
from ottla.client.errors import InvalidRecord
from ottla.client.producer.arrow import fill_from_arrow
from ottla.client.producer.batch import ANONYMOUS, Encoding
from ottla.client.producer.buffer_pool import BufferPool
from ottla.client.producer.chunk import Chunk
from ottla.client.producer.partition_queue import PartitionQueue
from ottla.records.compression import NONE
from ottla.records.read import read_records
from ottla.testing import LocalBroker


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


_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
REFUSED = [
    ("partition", pa.array([1.0]), "column partition is whole numbers, not double"),
    ("partition", pa.array([True]), "column partition is whole numbers, not bool"),
    ("partition", pa.array(["1"]), "column partition is whole numbers, not string"),
    ("partition", pa.array([-1]), "a partition is not negative: -1"),
    ("partition", pa.array([2**31]), "a partition is at most 2,147,483,647"),
    ("timestamp", pa.array(["2020"]), "milliseconds since 1970, not string"),
    ("timestamp", pa.array([1.5]), "milliseconds since 1970, not double"),
    ("timestamp", pa.array([dt.date(2020, 1, 1)]), "milliseconds since 1970, not date32"),
    ("timestamp", pa.array([2**63], pa.uint64()), "a timestamp is at most"),
    ("timestamp", pa.array([2**62], pa.timestamp("s")), "a timestamp does not fit into milliseconds"),
    ("timestamp", pa.array([-5]), "a timestamp is not negative: -5"),
    ("headers", pa.array(["source"]), "column headers is a list of structs of key and value, not string"),
    ("headers", pa.array([7]), "column headers is a list of structs of key and value, not int64"),
    ("headers", pa.array([[{"k": "a", "v": b"b"}]]), "column headers is a list of structs of key and value"),
    ("headers", pa.array([[None]], _HEADERS), "structs of key and value, and one of its headers is null"),
    ("headers", pa.array([[{"key": None, "value": b"b"}]], _HEADERS), "the name of a header is a str, not NoneType"),
    ("headers", pa.array([[{"key": "a", "value": "b"}]]), "the value of header 'a' is bytes, not str"),
]


@pytest.mark.parametrize(("name", "column", "reason"), REFUSED)
def test_what_no_record_can_have_is_refused_before_it_is_sent(name: str, column: Any, reason: str) -> None:
    with pytest.raises(InvalidRecord, match=reason):
        filled(pa.table({"value": [b"one"], name: column}))


def test_a_column_twice_and_a_dictionary_that_arrow_cannot_read_are_refused() -> None:
    with pytest.raises(InvalidRecord, match="has each column once, and not more of value"):
        filled(pa.Table.from_arrays([pa.array([b"a"]), pa.array([b"b"])], names=["value", "value"]))
    views = pa.DictionaryArray.from_arrays(pa.array([0]), pa.array(["a"], pa.string_view()))
    with pytest.raises(InvalidRecord, match="column value is binary or text, not dictionary"):
        filled(pa.table({"value": views}))


def test_partitions_times_and_headers_in_any_shape() -> None:
    chunk = filled(
        pa.table(
            {
                "value": [b"one", b"two"],
                "partition": pa.array([3, None], pa.int8()).dictionary_encode(),
                "timestamp": pa.array([None, None], pa.float64()),
                "headers": pa.array([[("a", b"b")], None], pa.map_(pa.string(), pa.binary())),
            }
        )
    )
    assert chunk.partitions == [3, None]
    assert chunk.timestamps == [chunk.timestamp_ms] * 2
    assert [list(headers) for headers in chunk.headers or ()] == [[("a", b"b")], []]


def test_times_in_a_dictionary() -> None:
    times = pa.array([7, 7], pa.timestamp("ms")).dictionary_encode()
    assert filled(pa.table({"value": [b"one", b"two"], "timestamp": times})).timestamps == [7, 7]


def test_a_table_with_crooked_partitions_does_not_end_its_producer(ottla: LocalBroker) -> None:
    """As pandas has them where one is missing: as floats."""
    ottla.topic("orders")
    with Producer(ottla.bootstrap) as producer:
        sent = producer.send("orders", b"before")
        with pytest.raises(InvalidRecord, match="column partition is whole numbers, not double"):
            producer.send_many("orders", pa.table({"value": [b"x", b"y"], "partition": pa.array([0.0, None])}))
        with pytest.raises(InvalidRecord, match=r"a partition is an int, not float: 0\.0"):
            producer.send_batches([(TopicPartition("orders", 0.0), _one_batch())])  # type: ignore[arg-type]
        assert sent.result(10).offset == 0
        assert producer.send("orders", b"after").result(10).offset == 1


def _one_batch() -> bytes:
    queue = PartitionQueue("topic", 0, ANONYMOUS)
    queue.add(filled(pa.table({"value": ["one"]})), range(1), 10, 100, 0.0)
    encoded = queue.take().encode(Encoding(NONE, None), BufferPool())
    assert isinstance(encoded, bytearray)
    return bytes(encoded)


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
