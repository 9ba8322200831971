"""A batch rots while its log is in use: who reads it is told, and so is the operator. What is sound can be read."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from ottla.log.behind_rot import SEARCHED_BYTES
from ottla.log.errors import CorruptLog
from ottla.log.log import Log
from ottla.log.segment import LOG
from ottla.log.topic_config import TopicConfig
from ottla.records.batch import (
    BASE_TIMESTAMP_AT,
    CRC_AT,
    LAST_OFFSET_DELTA_AT,
    LEADER_EPOCH_AT,
    LENGTH_AT,
    CorruptBatch,
    check_batch,
    whole_batches,
)
from ottla.records.build import build_batch
from ottla.testing.files import SimulatedFile, SimulatedFiles
from ottla.wire.errors import ErrorCode
from tests.conformance import requests
from tests.conformance.script import Topic
from tests.faults.broker_process import BrokerProcess
from tests.faults.test_full_disk import Client
from tests.faults.test_out_of_files import make_topics
from tests.log.writing import append, new_log

BATCHES = 12
WAIT_S = 20.0
INTERVALS = {"no index": 1 << 16, "an index of some": 200, "an index of all": 1}
EMBEDDED = bytes(build_batch([b"this batch lies in a record"], timestamp=1000))


def filled(files: SimulatedFiles, interval_bytes: int) -> Log:
    """Batches of one record each, some of which hold what looks like another."""
    log = new_log(files, TopicConfig(internal_segment_bytes=1 << 20, index_interval_bytes=interval_bytes))
    for number in range(BATCHES):
        append(log, [EMBEDDED if number % 4 == 1 else b"value %d" % number])
    log.advance_high_watermark(log.end_offset)
    return log


def first_batch(log: Log, offset: int, bound: int) -> bytes | None:
    """What a reader gets first; None where he sees that it is not sound, or is told so."""
    try:
        found = log.read(offset, 1, bound)
        assert found is not None, "nothing, for ever"
        data = found.read()
        return data[: check_batch(data).size]
    except (CorruptLog, CorruptBatch):
        return None


@pytest.mark.parametrize("interval_bytes", INTERVALS.values(), ids=INTERVALS)
def test_whatever_bit_is_flipped_its_batch_alone_cannot_be_read(interval_bytes: int) -> None:
    files = SimulatedFiles()
    log = filled(files, interval_bytes)
    path, end = log.active.path(LOG), log.end_offset
    data = files.read_all(path)
    starts = [position for position, _ in whole_batches(data)]
    batches = [data[start:stop] for start, stop in zip(starts, [*starts[1:], len(data)], strict=True)]
    rotten = 5
    for position in range(starts[rotten] + LENGTH_AT, starts[rotten + 1]):
        if LEADER_EPOCH_AT <= position - starts[rotten] < CRC_AT - 1:
            continue  # no checksum covers it
        is_delta = LAST_OFFSET_DELTA_AT <= position - starts[rotten] < BASE_TIMESTAMP_AT  # others may seem to be in it
        for bit in range(8):
            files.flip_bit(path, position, bit)
            for offset in range(end):
                expected = {None if offset == rotten else batches[offset], None if is_delta else batches[offset]}
                expected -= {batches[rotten]}
                assert first_batch(log, offset, end) in expected, (position, bit, offset)
                if not is_delta:
                    assert first_batch(log, offset, offset + 1) in expected, (position, bit, offset)
            files.flip_bit(path, position, bit)


def test_a_large_part_that_is_gone_is_not_searched_through_for_who_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    files = SimulatedFiles()
    log = new_log(files, TopicConfig(internal_segment_bytes=1 << 30, index_interval_bytes=4096))
    for _ in range(500):
        append(log, [bytes(10_000)])
    log.advance_high_watermark(log.end_offset)
    end, path = log.end_offset, log.active.path(LOG)
    starts = [position for position, _ in whole_batches(files.read_all(path))]
    files.open(path).write_over(starts[100], bytes(starts[400] - starts[100]))
    read_bytes, read = [0], SimulatedFile.read

    def counted(file: SimulatedFile, position: int, size_bytes: int) -> bytes:
        read_bytes[0] += size_bytes
        return read(file, position, size_bytes)

    monkeypatch.setattr(SimulatedFile, "read", counted)
    for offset in (100, 250, 399):
        read_bytes[0] = 0
        with pytest.raises(CorruptLog):
            log.read(offset, 1, end)
        assert read_bytes[0] < 3 * SEARCHED_BYTES
    sound, offset = [], 0
    while offset < end:  # as coordinators read
        if first_batch(log, offset, end) is not None:
            sound.append(offset)
        offset = log.segments.offset_behind(offset, end)
    assert sound == [*range(100), *range(400, end)]


def write_all(client: Client, topic: Topic, count: int) -> None:
    for number in range(count):
        batch = build_batch([b"value %d" % number + bytes(1000)], timestamp=1)
        answer = client.ask(requests.produce(topic, batch, acks=-1))
        assert answer.responses[0].partition_responses[0].error_code == 0


def fetched(client: Client, topic: Topic, offset: int) -> Any:
    (answered,) = client.ask(requests.fetch_from(topic, offset, max_wait_ms=100)).responses
    return answered.partitions[0]


@contextlib.contextmanager
def running(folder: Path) -> Any:
    with (
        BrokerProcess(folder, "--log-level", "warning") as broker,
        contextlib.closing(Client(broker)) as client,
    ):
        yield broker, client


@pytest.mark.parametrize("length", [1 << 24, 5000, 3, 0, -1], ids=str)
@pytest.mark.parametrize("rotten", [3, 29])
def test_readers_and_the_operator_are_told_of_a_length_that_rotted(tmp_path: Path, length: int, rotten: int) -> None:
    count = 30
    with running(tmp_path / "data") as (broker, client):
        (topic,) = make_topics(client, 1)
        write_all(client, topic, count)
        path = tmp_path / "data" / f"{topic.name}-0" / f"{0:020d}.log"
        starts = [position for position, _ in whole_batches(path.read_bytes())]
        with path.open("r+b") as file:
            file.seek(starts[rotten] + LENGTH_AT)
            file.write(length.to_bytes(4, signed=True))
        for offset in range(count):
            found = fetched(client, topic, offset)
            if offset != rotten:
                assert found.error_code == 0
                assert check_batch(found.records).base_offset == offset
            elif found.error_code == 0:  # the length is that of some bytes: their checksum tells
                with pytest.raises(CorruptBatch):
                    check_batch(found.records)
            else:
                assert found.error_code == ErrorCode.CORRUPT_MESSAGE
        if length == 5000 and rotten == 3:
            return  # librdkafka gives up on bytes that look like a batch and are none
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "any", "check.crcs": True})
        consumer.assign([TopicPartition(topic.name, 0, 0)])
        messages = [consumer.poll(WAIT_S) for _ in range(rotten + 1)]
        errors = [message.error() for message in messages if message is not None and message.error() is not None]
        assert len(errors) == 1
        assert errors[0] is not None
        assert errors[0].code() in (KafkaError._BAD_MSG, KafkaError.INVALID_MSG)
        if rotten + 1 < count:
            consumer.assign([TopicPartition(topic.name, 0, rotten + 1)])
            message = consumer.poll(WAIT_S)
            assert message is not None
            assert message.offset() == rotten + 1
        consumer.close()
        told = broker.errors()
    if length != 5000:
        assert "a batch is rotten" in told
        assert f"{topic.name}-0" in told
        assert told.count("a batch is rotten") == 1


@pytest.mark.parametrize("length", [1 << 24, 3, -1], ids=str)
def test_a_length_that_rotted_while_the_broker_was_down_costs_no_other_batch(tmp_path: Path, length: int) -> None:
    """Though the broker was stopped in good order, and believes its files."""
    count, rotten = 30, 28
    with running(tmp_path / "data") as (broker, client):
        (topic,) = make_topics(client, 1)
        write_all(client, topic, count)
        assert broker.errors() == ""
    path = tmp_path / "data" / f"{topic.name}-0" / f"{0:020d}.log"
    starts = [position for position, _ in whole_batches(path.read_bytes())]
    with path.open("r+b") as file:
        file.seek(starts[rotten] + LENGTH_AT)
        file.write(length.to_bytes(4, signed=True))
    with running(tmp_path / "data") as (broker, client):
        write_all(client, topic, 1)
        offsets: list[int] = []
        while not offsets or offsets[-1] < count:
            found = fetched(client, topic, offsets[-1] + 1 if offsets else 0)
            assert found.error_code == 0
            offsets += [header.base_offset for _, header in whole_batches(found.records)]
        assert offsets == [offset for offset in range(count + 1) if offset != rotten]
        assert "rotten" in broker.errors()
