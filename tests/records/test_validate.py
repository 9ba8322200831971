"""Produced records are accepted, changed and refused as Apache Kafka 4.3.1 does it.

kafka_answers.json holds what a broker with default settings answered, one line a case: the bytes sent, and
either the error or the batch as it stood in the log afterwards ("same" but for base offset and leader epoch).
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.records.batch import read_header, stamp_crc
from ottla.records.build import build_batch
from ottla.records.compression import GZIP, LZ4, NONE, ZSTD
from ottla.records.large import ValidateSteps, validate_large
from ottla.records.read import read_records
from ottla.records.validate import InvalidRecords, LargeBatch, ProduceSettings, Validated, validate_produce
from ottla.wire.errors import ErrorCode

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "kafka_answers.json").read_text())

TOPICS = {
    "plain": ProduceSettings(),
    "appended": ProduceSettings(is_log_append_time=True),
    "compacted": ProduceSettings(is_compacted=True),
    "gzipped": ProduceSettings(codec=GZIP),
    "bare": ProduceSettings(codec=NONE),
    "zstded": ProduceSettings(codec=ZSTD),
    "lz4ed": ProduceSettings(codec=LZ4),
    "small": ProduceSettings(max_message_bytes=1000),
    "smallbare": ProduceSettings(max_message_bytes=1000, codec=NONE),
    "smallgz": ProduceSettings(max_message_bytes=1000, codec=GZIP),
    "bounded": ProduceSettings(before_max_ms=60_000, after_max_ms=60_000),
    "boundedappended": ProduceSettings(before_max_ms=60_000, after_max_ms=60_000, is_log_append_time=True),
    "appendedgz": ProduceSettings(is_log_append_time=True, codec=GZIP),
    "compactedappended": ProduceSettings(is_compacted=True, is_log_append_time=True),
    "compactedbounded": ProduceSettings(is_compacted=True, before_max_ms=60_000, after_max_ms=60_000),
    "compactedgz": ProduceSettings(is_compacted=True, codec=GZIP),
}

# Where we answer otherwise on purpose; docs/records.md says why.
STRICTER = {
    "length 14 of magic 2": ErrorCode.CORRUPT_MESSAGE,
    "length 20 of magic 2": ErrorCode.CORRUPT_MESSAGE,
    "record size +1 codec 1": ErrorCode.INVALID_RECORD,
    "record size -1 codec 1": ErrorCode.INVALID_RECORD,
    "record size negative codec 1": ErrorCode.INVALID_RECORD,
}


def validate(
    records: bytes | bytearray | memoryview | None,
    settings: ProduceSettings = TOPICS["plain"],
    *,
    version: int = 12,
    has_transactional_id: bool = False,
    now_ms: int = 0,
    partition: str = "t-0",
) -> Validated:
    """At once, or in steps where that is asked for."""
    try:
        return validate_produce(
            records,
            settings,
            partition=partition,
            version=version,
            has_transactional_id=has_transactional_id,
            now_ms=now_ms,
        )
    except LargeBatch as large:
        return finished(validate_large(large, settings, partition=partition, now_ms=now_ms))


def finished(steps: ValidateSteps) -> Validated:
    while True:
        try:
            job = next(steps)
        except StopIteration as end:
            validated: Validated = end.value
            return validated
        if job is not None:
            job()


@pytest.fixture(params=["at once", "in steps"], autouse=True)
def pace(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The answers are the same when every batch counts as a large one."""
    if request.param == "in steps":
        for limit in ("AT_ONCE_BYTES", "COMPRESSED_AT_ONCE_BYTES", "CHECKED_AT_ONCE"):
            monkeypatch.setattr(f"ottla.records.validate.{limit}", 0)
        monkeypatch.setattr("ottla.records.pieces.PIECE_BYTES", 5)
        monkeypatch.setattr("ottla.records.pieces.INPUT_BYTES", 7)
        monkeypatch.setattr("ottla.records.portions.MOST_RECORDS", 2)
        monkeypatch.setattr("ottla.records.growing.COMPRESSED_PIECE_BYTES", 3)
    return str(request.param)


def validate_case(case: dict[str, Any], records: bytearray) -> Validated:
    return validate(
        records,
        TOPICS[case["topic"]],
        partition=f"{case['topic']}-0",
        version=case["version"],
        has_transactional_id="transactional_id" in case,
        now_ms=case["now_ms"],
    )


@pytest.mark.parametrize("case", CASES, ids=[f"{case['name']} on {case['topic']}" for case in CASES])
def test_answers_as_kafka_does(case: dict[str, Any]) -> None:
    sent = bytearray.fromhex(case["sent"])
    expected = STRICTER.get(case["name"], case["code"])
    if expected != ErrorCode.NONE:
        with pytest.raises(InvalidRecords) as refused:
            validate_case(case, sent)
        assert refused.value.code == expected
        if case["name"] not in STRICTER:
            assert refused.value.is_log_reached == (case["log_start"] >= 0)
        check_messages(case, refused.value)
    else:
        check_stored(case, validate_case(case, sent))


def check_messages(case: dict[str, Any], refused: InvalidRecords) -> None:
    """Kafka leaves out most messages. Those it gives are ours too, but for its name of a Java object."""
    assert [index for index, _ in refused.record_errors] == [index for index, _ in case.get("record_errors", [])]
    for (_, ours), (_, theirs) in zip(refused.record_errors, case.get("record_errors", []), strict=True):
        if "DefaultRecord(" not in theirs:
            assert ours == theirs
    if "message" in case:
        assert refused.message == case["message"]
    assert refused.message


def check_stored(case: dict[str, Any], validated: Validated) -> None:
    batch = bytes(validated.batch)
    assert validated.header == read_header(batch)
    if case["stored"] == "same":
        assert batch == bytes.fromhex(case["sent"])[: len(batch)]
        return
    stored = bytes.fromhex(case["stored"])
    ours, theirs = read_header(batch), read_header(stored)
    for field in ("attributes", "last_offset_delta", "max_timestamp", "producer_id", "base_sequence", "count"):
        assert getattr(ours, field) == getattr(theirs, field), field
    expected = [(record.timestamp, record.key, record.value, record.headers) for record in read_records(stored)]
    read = [(record.timestamp, record.key, record.value, record.headers) for record in read_records(batch)]
    assert read == expected
    assert [record.offset for record in read_records(batch)] == list(range(ours.count))


def test_null_records_are_refused() -> None:
    with pytest.raises(InvalidRecords) as refused:
        validate(None)
    assert refused.value.code == ErrorCode.INVALID_RECORD


def test_a_good_batch_stays_where_it_is() -> None:
    sent = build_batch([b"a", b"b"], timestamp=5)
    before = bytes(sent)
    validated = validate(sent)
    assert isinstance(validated.batch, memoryview)
    assert validated.batch.obj is sent
    assert bytes(sent) == before
    assert validated.log_append_time == -1


def test_a_stamp_is_written_in_place_where_the_memory_is_writable() -> None:
    sent = build_batch([b"a"], timestamp=5)
    validated = validate(sent, TOPICS["appended"], now_ms=99)
    assert validated.log_append_time == 99
    assert read_header(sent).max_timestamp == 99
    assert [record.timestamp for record in read_records(sent)] == [99]


def test_a_stamp_on_memory_that_cannot_be_written_makes_a_copy() -> None:
    sent = bytes(build_batch([b"a"], timestamp=5))
    validated = validate(sent, TOPICS["appended"], now_ms=99)
    assert read_header(sent).max_timestamp == 5
    assert read_header(validated.batch).max_timestamp == 99


def test_level_reaches_the_codec() -> None:
    values = [b"%d" % (number * number) for number in range(2000)]
    sizes = {
        level: len(validate(build_batch(values, timestamp=0), ProduceSettings(codec=GZIP, level=level)).batch)
        for level in (1, 9)
    }
    assert sizes[9] < sizes[1]


@given(st.binary(max_size=200), st.integers(0, 200), st.integers(0, 255), st.booleans())
def test_every_change_ends_in_a_batch_or_the_one_error(tail: bytes, position: int, byte: int, is_stamped: bool) -> None:
    sent = build_batch([b"a", b"b"], timestamp=5) + tail
    sent[position % len(sent)] = byte
    if is_stamped:
        stamp_crc(sent, 0, len(sent) - len(tail))
    with contextlib.suppress(InvalidRecords):
        assert validate(sent).header.count == 2


def test_timestamps_that_wrap_are_taken_as_readers_see_them() -> None:
    """Kafka adds base and delta in 64 bits: what passes the end comes out below."""
    last = (1 << 63) - 1
    sent = build_batch([b"a", b"b"], timestamp=0, timestamps=[0, 10])
    wrapping = bytearray(sent)
    wrapping[27:35] = last.to_bytes(8, "big")
    stamp_crc(wrapping, 0, len(wrapping))
    validated = validate(wrapping, ProduceSettings(before_max_ms=last, after_max_ms=last), now_ms=1 << 40)
    assert [record.timestamp for record in read_records(validated.batch)] == [last, -last + 8]
    assert validated.header.max_timestamp == last
