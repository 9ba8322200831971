"""A broker whose disk is full answers everybody, deletes what it is asked to, and stops and starts in good order."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer

from ottla.records.build import build_batch
from ottla.wire.errors import ErrorCode
from ottla.wire.frames import decode_response, encode_request
from ottla.wire.schema import Request
from ottla.wire.uuids import ZERO_UUID
from tests.conformance import group_requests as groups
from tests.conformance import requests
from tests.conformance import transaction_requests as transactions
from tests.conformance.connection import Connection
from tests.conformance.script import Topic
from tests.faults.broker_process import BrokerProcess
from tests.faults.small_disk import SmallDisk, can_mount, small_disk

DISK_BYTES = 24 << 20
WAIT_S = 20.0
TOPIC, BROKER, GROUP = 2, 4, 32
EARLIEST, LATEST = -2, -1
SOON_MS = 4000
STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR

pytestmark = pytest.mark.skipif(not can_mount(), reason="nobody may mount a file system here")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    with small_disk(folder, DISK_BYTES) as disk:
        yield disk


class Client:
    """One connection, which must never be closed by the broker."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._connection = Connection(broker.address)

    def ask(self, request: Request, version: int | None = None) -> Any:
        version = request.api.highest if version is None else version
        self._connection.send(encode_request(1, "client", request, version))
        frame = self._connection.receive(WAIT_S)
        assert isinstance(frame, bytes), f"{request.api.name}: {frame}"
        return decode_response(frame, request.api, version)[1]

    def close(self) -> None:
        self._connection.close()


def fill_with_records(broker: BrokerProcess, topic: str) -> None:
    """Write until the disk takes no more."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "retries": 0, "linger.ms": 0})
    failed: list[KafkaError] = []

    def told(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            failed.append(error)

    deadline = time.monotonic() + WAIT_S
    while not failed and time.monotonic() < deadline:
        producer.produce(topic, bytes(100_000), on_delivery=told)
        producer.poll(0.01)
    producer.flush(WAIT_S)
    assert failed


def create(client: Client, *names: str) -> list[int]:
    topics = [requests.creatable(name, configs=[("file.delete.delay.ms", "0")]) for name in names]
    return [topic.error_code for topic in client.ask(requests.create_topics(*topics)).topics]


REFUSED: dict[str, tuple[Request, Callable[[Any], int]]] = {
    "create a topic": (
        requests.create_topics(requests.creatable("new")),
        lambda answer: answer.topics[0].error_code,
    ),
    "create partitions": (
        requests.create_partitions(("small", 40, None)),
        lambda answer: answer.results[0].error_code,
    ),
    "configure a topic": (
        requests.change_configs(TOPIC, "small", [("retention.ms", 0, "1234567")]),
        lambda answer: answer.responses[0].error_code,
    ),
    "configure a broker": (
        requests.change_configs(BROKER, "1", [("max.connections", 0, "1000")]),
        lambda answer: answer.responses[0].error_code,
    ),
    "configure a group": (
        requests.change_configs(GROUP, "g", [("consumer.session.timeout.ms", 0, "50000")]),
        lambda answer: answer.responses[0].error_code,
    ),
    "set a quota": (
        requests.alter_quotas([("client-id", "c")], ("producer_byte_rate", 1000.0)),
        lambda answer: answer.entries[0].error_code,
    ),
}
ANSWERED: dict[str, Request] = {
    "metadata that creates": requests.metadata("created", create=True),
    "describe": requests.describe_configs(TOPIC, "small"),
    "commit": groups.commit("g", Topic("small", ZERO_UUID)),
    "join": groups.join("g"),
    "enter": groups.enter("consumers", "m", "small"),
    "init": transactions.init("transaction"),
    "init without a transaction": transactions.init(None),
    "delete records": requests.delete_records(Topic("large", ZERO_UUID), (0, 5)),
    "delete groups": groups.delete_groups("g"),
}


def exhaust(client: Client, disk: SmallDisk, request: Request, code_of: Callable[[Any], int]) -> int:
    """Ask until the store has used up what its files had room for; the code it refuses with."""
    for _ in range(500):
        disk.fill()
        code = code_of(client.ask(request))
        if code:
            break
    return code


def test_every_change_is_answered_and_what_is_deleted_makes_room(disk: SmallDisk) -> None:
    with BrokerProcess(disk.folder / "data") as broker, contextlib.closing(Client(broker)) as client:
        assert create(client, "large", "small") == [0, 0]
        client.ask(transactions.init("known"))
        fill_with_records(broker, "large")
        codes = {what: exhaust(client, disk, *asked) for what, asked in REFUSED.items() if what != "create a topic"}
        codes["create a topic"] = exhaust_creations(client, disk)
        assert codes == dict.fromkeys(REFUSED, STORAGE_ERROR)
        for request in ANSWERED.values():
            client.ask(request)
        disk.fill()
        answer = client.ask(requests.delete_topics("large"))
        assert [topic.error_code for topic in answer.responses] == [0]
        deadline = time.monotonic() + WAIT_S
        while create(client, f"after-{time.monotonic()}") != [0]:
            assert time.monotonic() < deadline, "deleting made no room"
            time.sleep(0.1)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("small", b"fits again")
        assert producer.flush(WAIT_S) == 0
        assert "Traceback" not in broker.errors()


def exhaust_creations(client: Client, disk: SmallDisk) -> int:
    """Each has another name: one that is there already would be refused for that."""
    for number in range(500):
        disk.fill()
        [code] = create(client, f"new-{number}")
        if code:
            break
    return code


@pytest.mark.parametrize("ends", ["terminated", "killed"])
def test_a_broker_stops_and_starts_on_a_full_disk(disk: SmallDisk, ends: str) -> None:
    with BrokerProcess(disk.folder / "data") as broker, contextlib.closing(Client(broker)) as client:
        assert create(client, "large", "small") == [0, 0]
        fill_with_records(broker, "large")
        exhaust_creations(client, disk)
        disk.fill()
        if ends == "terminated":
            assert "Traceback" not in broker.errors()
        else:
            broker.kill()
    disk.fill()
    with BrokerProcess(disk.folder / "data") as broker, contextlib.closing(Client(broker)) as client:
        assert client.ask(requests.delete_topics("large")).responses[0].error_code == 0
        deadline = time.monotonic() + WAIT_S
        while create(client, f"after-{time.monotonic()}") != [0]:
            assert time.monotonic() < deadline, "deleting made no room"
            time.sleep(0.1)
        assert "Traceback" not in broker.errors()


def test_what_a_start_writes_has_room_on_a_full_disk(disk: SmallDisk) -> None:
    """After a crash it makes again what follows from the batches: here the epochs of logs that were never flushed."""
    partitions = 100
    batch = build_batch([bytes(4000)] * 2, timestamp=0)
    for life in range(3):
        with BrokerProcess(disk.folder / "data") as broker, contextlib.closing(Client(broker)) as client:
            if not life:
                client.ask(requests.create_topics(requests.creatable("t", partitions=partitions)))
            topic = Topic("t", client.ask(requests.metadata("t")).topics[0].topic_id)
            offsets = client.ask(requests.list_offsets(topic, -1, partitions=range(partitions))).topics[0].partitions
            assert [partition.offset for partition in offsets] == [2 * life] * partitions
            client.ask(requests.produce_many([(topic, index, batch) for index in range(partitions)]))
            disk.fill()
            broker.kill()
        disk.fill()
        BrokerProcess(disk.folder / "data").errors()
        disk.clear()


@pytest.mark.parametrize("records", [1, 30])
def test_retention_makes_room_also_where_all_of_a_log_is_due(disk: SmallDisk, records: int) -> None:
    """One segment or several, all as old: the next one has to begin before they can go."""
    retention = [("retention.ms", "0"), ("segment.bytes", "1048576"), ("file.delete.delay.ms", "0")]
    options = ("--set", "log.retention.check.interval.ms=100")
    with BrokerProcess(disk.folder / "data", *options) as broker, contextlib.closing(Client(broker)) as client:
        client.ask(requests.create_topics(requests.creatable("t", configs=retention)))
        topic = Topic("t", client.ask(requests.metadata("t")).topics[0].topic_id)
        batch = build_batch([bytes(100_000)], timestamp=time.time_ns() // 1_000_000 + SOON_MS)
        for _ in range(records):
            client.ask(requests.produce(topic, batch))
        disk.fill()
        assert offset_of(client, topic, EARLIEST) == 0
        deadline = time.monotonic() + WAIT_S
        while offset_of(client, topic, EARLIEST) != records:
            disk.fill()
            assert time.monotonic() < deadline, "nothing was removed"
            time.sleep(0.05)
        disk.clear()
        broker.kill()
    with BrokerProcess(disk.folder / "data", *options) as broker, contextlib.closing(Client(broker)) as client:
        assert offset_of(client, topic, LATEST) == records
        assert client.ask(requests.produce(topic, batch)).responses[0].partition_responses[0].base_offset == records


def offset_of(client: Client, topic: Topic, time_or_end: int) -> int:
    offset: int = client.ask(requests.list_offsets(topic, time_or_end)).topics[0].partitions[0].offset
    return offset
