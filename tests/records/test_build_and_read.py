"""Whole batches: what is built is read back, by us and by kafka-python."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.records.batch import (
    HEADER_SIZE,
    BatchHeader,
    CorruptBatch,
    check_batch,
    read_header,
    stamp_crc,
)
from ottla.records.build import (
    ControlMarker,
    build_batch,
    build_from_records,
    build_from_tuples,
    build_marker,
    read_marker,
)
from ottla.records.codec import Columns, ColumnsFull, Record, stamp_batches
from ottla.records.compression import NAMES
from ottla.records.read import read_batches, read_columns, read_records
from tests.records.strategies import DRAFTS, HEADERS, NULLABLE, Draft

every_codec = pytest.mark.parametrize("codec", range(5), ids=NAMES)
RECORDS = st.lists(
    st.tuples(st.integers(1, 1000), st.integers(0, 1 << 41), NULLABLE, NULLABLE, HEADERS.map(tuple)),
    min_size=1,
    max_size=20,
)


def kafka_python(codec: int) -> Any:
    """Its record module, where it is installed and can do the codec."""
    kafka_codec = pytest.importorskip("kafka.codec", reason="kafka-python is not installed")
    if codec and not getattr(kafka_codec, f"has_{NAMES[codec]}")():
        pytest.skip(f"kafka-python has no {NAMES[codec]} here")
    return pytest.importorskip("kafka.record.default_records")


def with_gaps(fields: list[Any]) -> list[Record]:
    """Records at ascending offsets; the first number of each is its distance from the one before."""
    offset = 0
    records = []
    for gap, *rest in fields:
        offset += gap
        records.append(Record(offset, *rest))
    return records


@every_codec
@settings(max_examples=40)
@given(drafts=DRAFTS.filter(bool), base_offset=st.integers(0, 1 << 62))
def test_tuples_come_back(codec: int, drafts: list[Draft], base_offset: int) -> None:
    batch = build_from_tuples(drafts, codec=codec, base_offset=base_offset)
    header = check_batch(batch)
    assert header.count == len(drafts)
    assert header.last_offset == base_offset + len(drafts) - 1
    assert header.max_timestamp == max(draft.timestamp for draft in drafts)
    assert [Draft(r.timestamp, r.key, r.value, list(r.headers)) for r in read_records(batch)] == drafts


@every_codec
@settings(max_examples=40)
@given(fields=RECORDS)
def test_records_come_back_with_their_offsets(codec: int, fields: list[Any]) -> None:
    records = with_gaps(fields)
    batch = build_from_records(records, codec=codec)
    assert read_records(batch) == records
    assert check_batch(batch).last_offset == records[-1].offset


def test_records_in_a_batch_that_begins_earlier() -> None:
    records = [Record(7, 1, None, b"v"), Record(9, 2, None, b"w")]
    batch = build_from_records(records, base_offset=5)
    assert read_records(batch) == records
    assert read_header(batch).base_offset == 5
    with pytest.raises(ValueError, match="has records"):
        build_from_records([])


@every_codec
@settings(max_examples=40)
@given(drafts=DRAFTS.filter(bool), is_transactional=st.booleans())
def test_kafka_python_reads_it(codec: int, drafts: list[Draft], is_transactional: bool) -> None:
    default_records = kafka_python(codec)
    batch = build_from_tuples(
        drafts,
        codec=codec,
        producer_id=11,
        producer_epoch=3,
        base_sequence=5,
        is_transactional=is_transactional,
    )
    theirs = default_records.DefaultRecordBatch(bytes(batch))
    assert theirs.validate_crc()
    assert theirs.is_transactional == is_transactional
    read = [(r.offset, r.key, r.value, list(r.headers)) for r in theirs]
    assert read == [(i, d.key, d.value, d.headers) for i, d in enumerate(drafts)]


@every_codec
@settings(max_examples=40)
@given(drafts=DRAFTS.filter(bool))
def test_kafka_python_wrote_it(codec: int, drafts: list[Draft]) -> None:
    default_records = kafka_python(codec)
    builder = default_records.DefaultRecordBatchBuilder(2, codec, False, -1, -1, -1, 1 << 20)
    for index, draft in enumerate(drafts):
        builder.append(index, index * 3, draft.key, draft.value, draft.headers)
    batch = bytes(builder.build())
    check_batch(batch)
    expected = [Record(i, i * 3, d.key, d.value, tuple(d.headers)) for i, d in enumerate(drafts)]
    assert read_records(batch) == expected


def test_header_says_what_was_asked() -> None:
    batch = build_batch(
        [b"a", b"b"],
        timestamp=1000,
        timestamps=[30, 20],
        base_offset=7,
        leader_epoch=4,
        producer_id=11,
        producer_epoch=3,
        base_sequence=5,
        is_transactional=True,
    )
    header = read_header(batch)
    assert header == BatchHeader(7, len(batch) - 12, 4, 2, header.crc, 0x10, 1, 30, 30, 11, 3, 5, 2)
    assert header.last_sequence == 6
    plain = read_header(build_batch([b"a"], timestamp=8))
    assert plain[2:] == (-1, 2, plain.crc, 0, 0, 8, 8, -1, -1, -1, 1)


def test_log_append_time() -> None:
    batch = build_batch([b"a"], timestamp=5, log_append_time=99)
    header = read_header(batch)
    assert header.is_log_append_time
    assert (header.base_timestamp, header.max_timestamp) == (5, 99)
    assert [record.timestamp for record in read_records(batch)] == [99]
    columns = Columns()
    read_columns(batch, columns)
    assert list(columns.finish().timestamps) == [99]


@pytest.mark.parametrize("is_commit", [False, True])
def test_marker(is_commit: bool) -> None:
    marker = ControlMarker(is_commit, 17)
    batch = build_marker(marker, producer_id=5, producer_epoch=2, timestamp=3, base_offset=40)
    header = check_batch(batch)
    assert header.attributes == 0x30
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.count) == (5, 2, -1, 1)
    assert read_marker(batch) == marker
    [record] = read_records(batch, with_control=True)
    assert record.key == bytes([0, 0, 0, is_commit])
    assert record.value == bytes([0, 0, 0, 0, 0, 17])
    assert read_records(batch) == []


@pytest.mark.parametrize(
    ("keys", "values"),
    [
        ([None], [b"\0\0\0\0\0\1"]),
        ([b"\0\0\0"], [b"\0\0\0\0\0\1"]),
        ([b"\0\0\0\5"], [b"\0\0\0\0\0\1"]),  # the leader change of a quorum
        ([b"\0\0\0\1"], [None]),
        ([b"\0\0\0\1"], [b"\0\0\0\0"]),
        ([b"\0\0\0\1"] * 2, [b"\0\0\0\0\0\1"] * 2),
    ],
)
def test_what_is_no_marker(keys: list[bytes | None], values: list[bytes | None]) -> None:
    with pytest.raises(CorruptBatch):
        read_marker(build_batch(values, keys=keys, timestamp=0, is_control=True, is_transactional=True))


def test_data_is_no_marker() -> None:
    with pytest.raises(CorruptBatch, match="control batch"):
        read_marker(build_batch([b"\0\0\0\0\0\1"], keys=[b"\0\0\0\1"], timestamp=0))


@given(
    batches=st.lists(RECORDS, min_size=1, max_size=4),
    codecs=st.lists(st.integers(0, 4), min_size=4, max_size=4),
    tail=st.integers(0, 60),
    start=st.integers(0, 5000),
)
def test_several_batches_with_gaps_and_a_cut_tail(
    batches: list[list[Any]], codecs: list[int], tail: int, start: int
) -> None:
    buffer = bytearray()
    records: list[Record] = []
    for fields, codec in zip(batches, codecs, strict=False):
        after = records[-1].offset if records else -1
        new = [Record(r.offset + after, r.timestamp, r.key, r.value, r.headers) for r in with_gaps(fields)]
        buffer += build_from_records(new, codec=codec)
        records += new
    expected = [record for record in records if record.offset >= start]
    buffer += build_batch([b"cut"], timestamp=0, base_offset=1 << 40)[:tail]
    assert read_records(buffer, start_offset=start) == expected
    columns = Columns()
    read_columns(buffer, columns, start_offset=start)
    assert list(columns.finish().offsets) == [record.offset for record in expected]


def test_batches_come_one_by_one_and_unread() -> None:
    first, second = build_batch([b"a"], timestamp=0), build_batch([b"b"], timestamp=0, base_offset=1, codec=1)
    batches = read_batches(first + second)
    batch = next(batches)
    assert batch.bytes == first
    assert batch.header == read_header(first)
    batch = next(batches)
    assert [record.value for record in batch.records()] == [b"b"]
    assert next(batches, None) is None


def test_control_batches_are_skipped_unless_asked_for() -> None:
    marker = build_marker(ControlMarker(True, 0), producer_id=1, producer_epoch=0, timestamp=0, base_offset=1)
    buffer = build_batch([b"a"], timestamp=0) + marker + build_batch([b"b"], timestamp=0, base_offset=2)
    assert [record.offset for record in read_records(buffer)] == [0, 2]
    assert [record.offset for record in read_records(buffer, with_control=True)] == [0, 1, 2]


def test_an_empty_batch_is_read() -> None:
    batch = build_batch([], timestamp=0)
    header = read_header(batch)
    assert (len(batch), header.count, header.last_offset_delta) == (HEADER_SIZE, 0, -1)
    assert read_records(batch) == []
    columns = Columns()
    read_columns(batch, columns)
    assert columns.finish().rows == 0


def test_checksum_is_checked_unless_told_not_to() -> None:
    batch = build_batch([b"abc"], timestamp=0)
    batch[-2] ^= 1
    with pytest.raises(CorruptBatch, match="checksum"):
        read_records(batch)
    assert len(read_records(batch, check_crc=False)) == 1


def test_other_magic_is_refused() -> None:
    batch = build_batch([b"abc"], timestamp=0)
    batch[16] = 1
    with pytest.raises(CorruptBatch, match="magic"):
        read_records(batch)


def test_full_columns_keep_what_they_have() -> None:
    buffer = b"".join(build_batch([b"x" * 500], timestamp=0, base_offset=offset) for offset in range(4))
    columns = Columns(limit_bytes=1200)
    with pytest.raises(ColumnsFull):
        read_columns(buffer, columns)
    assert list(columns.finish().offsets) == [0, 1]


def test_stamping_leaves_the_checksum_right() -> None:
    batch = build_batch([b"abc"], timestamp=0)
    stamp_batches(batch, 99, 7)
    header = check_batch(batch)
    assert (header.base_offset, header.leader_epoch) == (99, 7)


@pytest.mark.parametrize(
    ("position", "new", "message"),
    [
        (8, b"\0\0\0\x30", "below the least"),
        (8, b"\0\1\0\0", "are left"),
        (16, b"\1", "magic"),
        (17, b"\0\0\0\0", "checksum"),
        (23, b"\xff\xff\xff\xff", "negative"),
        (57, b"\xff\xff\xff\xff", "negative"),
    ],
)
def test_unsound_batches(position: int, new: bytes, message: str) -> None:
    batch = build_batch([b"abc"], timestamp=0)
    batch[position : position + len(new)] = new
    if message == "negative":
        stamp_crc(batch, 0, len(batch))
    with pytest.raises(CorruptBatch, match=message):
        check_batch(batch)


def test_a_cut_header_is_unsound() -> None:
    with pytest.raises(CorruptBatch, match="fewer than"):
        check_batch(build_batch([b"abc"], timestamp=0)[: HEADER_SIZE - 1])
