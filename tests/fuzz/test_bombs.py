"""Batches that become much more than they are: a broker with its own limits refuses them, and does not pay for them."""

from __future__ import annotations

import contextlib
import select
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from ottla.records.build import build_batch
from ottla.records.compression import GZIP, LZ4, ZSTD
from ottla.wire.errors import ErrorCode
from ottla.wire.frames import decode_response, encode_request
from ottla.wire.uuids import ZERO_UUID
from tests.conformance import requests
from tests.conformance.connection import Connection
from tests.conformance.script import Topic
from tests.faults.broker_process import BrokerProcess
from tests.log.bombs import bomb

BOMB_BYTES = 192 << 20
MOST_MORE_BYTES = 64 << 20  # at any moment, beside what the broker had before
PRODUCE_VERSION = 12
WAIT_S = 60.0
MOST_MESSAGE_BYTES = 16 << 20
RECORDS = {GZIP: 110, ZSTD: 1800}  # of 1 MB each: what takes long enough to be seen, and a batch may become
LEAST_ANSWERS = 3  # to another client meanwhile, where a broker that does it at once gives one at most


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """With the limits that everybody has."""
    with BrokerProcess(tmp_path_factory.mktemp("bombs") / "data") as broker:
        yield broker


def peak_bytes(broker: BrokerProcess) -> int:
    status = Path(f"/proc/{broker.process_id}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])  # snappy makes nothing twenty times smaller
def test_a_bomb_is_refused_without_its_size_in_memory(broker: BrokerProcess, codec: int) -> None:
    with contextlib.closing(Connection(broker.address)) as connection:

        def ask_produce(batch: bytes) -> int:
            request = requests.produce(Topic("t", ZERO_UUID), batch)
            connection.send(encode_request(1, "bomber", request, PRODUCE_VERSION))
            frame = connection.receive(WAIT_S)
            assert isinstance(frame, bytes), frame
            answer = decode_response(frame, request.api, PRODUCE_VERSION)[1]
            code: int = answer.responses[0].partition_responses[0].error_code  # type: ignore[attr-defined]
            return code

        create = requests.create_topics(requests.creatable("t"))
        connection.send(encode_request(1, "bomber", create, 7))
        connection.receive(WAIT_S)
        assert ask_produce(bytes(build_batch([b"a" * 1000], timestamp=0, codec=codec))) == 0
        before = peak_bytes(broker)
        assert (
            ask_produce(bytes(build_batch([bytes(BOMB_BYTES)], timestamp=0, codec=codec)))
            == ErrorCode.MESSAGE_TOO_LARGE
        )
        assert peak_bytes(broker) - before < MOST_MORE_BYTES


@pytest.mark.parametrize("codec", [GZIP, ZSTD])
def test_others_are_served_while_a_large_batch_is_looked_at(broker: BrokerProcess, codec: int) -> None:
    batch = bytes(bomb(codec, [b"%d" % number for number in range(RECORDS[codec])], bytes(1 << 20)))
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused", "log_level": 0})
    name = f"others-{codec}"
    with contextlib.closing(consumer), contextlib.closing(Connection(broker.address)) as connection:
        topic = requests.creatable(name, configs=[("max.message.bytes", str(MOST_MESSAGE_BYTES))])
        connection.send(encode_request(1, "bomber", requests.create_topics(topic), 7))
        connection.receive(WAIT_S)
        assert consumer.get_watermark_offsets(TopicPartition(name, 0), WAIT_S) == (0, 0)
        request = requests.produce(Topic(name, ZERO_UUID), batch)
        connection.send(encode_request(1, "bomber", request, PRODUCE_VERSION))
        answers = 0
        while not is_answered(connection):
            assert consumer.get_watermark_offsets(TopicPartition(name, 0), WAIT_S)[0] == 0
            answers += 1
        frame = connection.receive(WAIT_S)
        assert isinstance(frame, bytes), frame
        assert consumer.get_watermark_offsets(TopicPartition(name, 0), WAIT_S) == (0, RECORDS[codec])
    assert answers >= LEAST_ANSWERS


def is_answered(connection: Connection) -> bool:
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))
