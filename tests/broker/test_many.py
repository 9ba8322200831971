"""Many topics and five thousand connections on one broker, which is a process of its own.

OTTLA_TOPICS is how many; five thousand take most of a minute.
"""

from __future__ import annotations

import os
import resource
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.faults.broker_process import BrokerProcess

TOPICS = int(os.environ.get("OTTLA_TOPICS", "1000"))
CONNECTIONS = 5_000
SPARE_FILES = 500
WAIT_S = 60.0
API_VERSIONS = struct.pack(">hhih", 18, 0, 1, -1)


@pytest.fixture
def many_files() -> Iterator[None]:
    """As many open files as may be, for this process and those it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = max(TOPICS, CONNECTIONS) + SPARE_FILES
    if hard < needed:
        pytest.skip(f"only {hard} files may be open: ulimit -Hn {needed}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def create_topics(broker: BrokerProcess, names: list[str]) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for first in range(0, len(names), 1_000):
        asked = [NewTopic(name, 1, 1) for name in names[first : first + 1_000]]
        for created in admin.create_topics(asked, request_timeout=WAIT_S).values():
            created.result(WAIT_S)


def write_to_each(broker: BrokerProcess, names: list[str]) -> dict[str, int]:
    """One record to each topic; the offsets that were acknowledged."""
    offsets: dict[str, int] = {}

    def delivered(error: KafkaError | None, message: Message) -> None:
        topic, offset = message.topic(), message.offset()
        assert error is None
        assert topic is not None
        assert offset is not None
        offsets[topic] = offset

    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": False, "acks": -1})
    for name in names:
        producer.produce(name, b"value", partition=0, on_delivery=delivered)
    assert producer.flush(WAIT_S) == 0
    return offsets


@pytest.mark.usefixtures("many_files")
def test_many_topics(tmp_path: Path) -> None:
    names = [f"topic-{number}" for number in range(TOPICS)]
    with BrokerProcess(tmp_path) as broker:
        create_topics(broker, names)
        assert write_to_each(broker, names) == dict.fromkeys(names, 0)
        print(f"{broker.memory_bytes() >> 20} MB with {TOPICS} topics")
    with BrokerProcess(tmp_path) as broker:
        assert write_to_each(broker, names) == dict.fromkeys(names, 1)
        print(f"{broker.memory_bytes() >> 20} MB after it was killed and started again")


def test_a_low_limit_of_open_files_is_raised_as_far_as_may_be(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    low = len(list(Path("/proc/self/fd").iterdir())) + 50  # this process has to live with it for a moment
    names = [f"topic-{number}" for number in range(low + 100)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (low, hard))
    try:
        broker = BrokerProcess(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with broker:
        create_topics(broker, names)
        assert write_to_each(broker, names) == dict.fromkeys(names, 0)


@pytest.mark.usefixtures("many_files")
def test_many_connections(tmp_path: Path) -> None:
    backlog = f"socket.listen.backlog.size={CONNECTIONS}"  # with less, some would wait for a second to be let in
    with BrokerProcess(tmp_path, "--set", backlog) as broker, ExitStack() as stack:
        idle_bytes = broker.memory_bytes()
        connections = [
            stack.enter_context(socket.create_connection(broker.address, WAIT_S)) for _ in range(CONNECTIONS)
        ]
        answers = set()
        for _ in range(2):
            for connection in connections:
                connection.sendall(struct.pack(">i", len(API_VERSIONS)) + API_VERSIONS)
            answers |= {answer(connection) for connection in connections}
        assert len(answers) == 1
        create_topics(broker, ["beside"])
        assert write_to_each(broker, ["beside"]) == {"beside": 0}
        grown_bytes = broker.memory_bytes() - idle_bytes
        print(f"{grown_bytes >> 20} MB for {CONNECTIONS} connections")


def test_the_size_of_a_frame_alone_costs_no_memory(tmp_path: Path) -> None:
    backlog = f"socket.listen.backlog.size={CONNECTIONS}"  # with less, some would wait for a second to be let in
    with BrokerProcess(tmp_path, "--set", backlog) as broker, ExitStack() as stack:
        idle_bytes = broker.memory_bytes()
        for _ in range(100):
            connection = stack.enter_context(socket.create_connection(broker.address, WAIT_S))
            connection.sendall(struct.pack(">i", 100_000_000) + b"and little more")
        create_topics(broker, ["beside"])
        assert broker.memory_bytes() - idle_bytes < 50_000_000


def answer(connection: socket.socket) -> bytes:
    (size_bytes,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
    return connection.recv(size_bytes, socket.MSG_WAITALL)
