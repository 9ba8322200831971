"""Every numeric setting at its edges: refused in one sentence, or obeyed by a broker that answers as it should."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest

import ottla.testing
from ottla.broker.config.layers import broker_settings
from ottla.config import ConfigError, Definition, Kind
from ottla.log.topic_config import TOPIC_SETTINGS
from ottla.records.build import build_batch
from ottla.records.compression import NONE, ZSTD
from ottla.testing.local_broker import LocalBroker
from ottla.wire.errors import ErrorCode
from ottla.wire.frames import decode_response, encode_request
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.schema import Request
from ottla.wire.uuids import ZERO_UUID
from tests.conformance import group_requests, requests
from tests.conformance.connection import Connection, NoFrame
from tests.conformance.script import Topic

BITS = {Kind.SHORT: 16, Kind.INT: 32, Kind.LONG: 64}
MINUTE_MS = 60_000
WAIT_S = 20.0
SILENCE_S = 0.5

# What a broker with such a setting refuses, and everybody else is refused nothing.
REFUSED = {
    ("message.max.bytes", "0"): {"produce": ErrorCode.MESSAGE_TOO_LARGE},
    ("message.max.bytes", "1"): {"produce": ErrorCode.MESSAGE_TOO_LARGE},
    ("max.message.bytes", "0"): {"produce": ErrorCode.MESSAGE_TOO_LARGE},
    ("max.message.bytes", "1"): {"produce": ErrorCode.MESSAGE_TOO_LARGE},
    ("log.message.timestamp.before.max.ms", "0"): {"produce": ErrorCode.INVALID_TIMESTAMP},
    ("log.message.timestamp.before.max.ms", "1"): {"produce": ErrorCode.INVALID_TIMESTAMP},
    ("message.timestamp.before.max.ms", "0"): {"produce": ErrorCode.INVALID_TIMESTAMP},
    ("message.timestamp.before.max.ms", "1"): {"produce": ErrorCode.INVALID_TIMESTAMP},
    ("offset.metadata.max.bytes", "-1"): {"commit": ErrorCode.OFFSET_METADATA_TOO_LARGE},
    ("offset.metadata.max.bytes", str(-(1 << 31))): {"commit": ErrorCode.OFFSET_METADATA_TOO_LARGE},
    ("transaction.max.timeout.ms", "1"): {"init": ErrorCode.INVALID_TRANSACTION_TIMEOUT},
    ("offsets.topic.num.partitions", str((1 << 31) - 1)): {"commit": ErrorCode.COORDINATOR_NOT_AVAILABLE},
    ("offsets.topic.segment.bytes", "1"): {"commit": ErrorCode.COORDINATOR_NOT_AVAILABLE},
    ("transaction.state.log.num.partitions", str((1 << 31) - 1)): {"init": ErrorCode.COORDINATOR_NOT_AVAILABLE},
    ("transaction.state.log.segment.bytes", "1"): {"init": ErrorCode.COORDINATOR_NOT_AVAILABLE},
}
CLOSES = {("max.connections", "0"), ("socket.request.max.bytes", "1")}
LINGERS = {("group.coordinator.append.linger.ms", str((1 << 31) - 1))}  # 24 days, as it was asked to


def edges(definition: Definition) -> list[str]:
    if definition.kind is Kind.DOUBLE:
        return ["0", "1", "-1", "1e308", "NaN"]
    bound = 1 << BITS[definition.kind] - 1
    return ["0", "1", "-1", str(bound - 1), str(-bound)]


def numeric(definitions: dict[str, Definition]) -> list[str]:
    return [name for name, each in definitions.items() if each.kind in BITS or each.kind is Kind.DOUBLE]


def is_one_sentence(message: str | None, name: str) -> bool:
    return message is not None and name in message and "\n" not in message and "Traceback" not in message


class Client:
    """Asks for each thing once, or again while a coordinator is on its way."""

    def __init__(self, broker: LocalBroker) -> None:
        self._connection = Connection((broker.host, broker.port))
        self.close = self._connection.close

    def ask(self, request: Request, version: int, wait_s: float = WAIT_S) -> Any:
        self._connection.send(encode_request(1, "edges", request, version))
        frame = self._connection.receive(wait_s)
        return frame if isinstance(frame, NoFrame) else decode_response(frame, request.api, version)[1]

    def ask_coordinator(self, request: Request, version: int, *, is_refused: bool, wait_s: float = WAIT_S) -> Any:
        waiting = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
        if not is_refused:
            waiting.add(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        deadline = time.monotonic() + WAIT_S
        while True:
            answer = self.ask(request, version, wait_s)
            code = answer if isinstance(answer, NoFrame) else _code_of(answer)
            if code not in waiting or time.monotonic() > deadline:
                return code
            time.sleep(0.005)


def _code_of(answer: Any) -> int:
    code: int = answer.error_code if hasattr(answer, "error_code") else answer.topics[0].partitions[0].error_code
    return code


def check_served(client: Client, topic: Topic, setting: tuple[str, str], *, with_coordinators: bool) -> None:
    """Produce, fetch and look up; and commit and begin a transaction."""
    refused = REFUSED.get(setting, {})
    timestamp = time.time_ns() // 1_000_000 - MINUTE_MS
    for codec in (NONE, ZSTD):
        batch = build_batch([b"value" * 20] * 3, keys=[b"key"] * 3, timestamp=timestamp, codec=codec)
        answer = client.ask(requests.produce(topic, bytes(batch)), 12)
        assert answer.responses[0].partition_responses[0].error_code == refused.get("produce", 0), setting
    assert client.ask(requests.fetch_from(topic), 12).responses[0].partitions[0].error_code == 0
    assert client.ask(requests.list_offsets(topic, 0), 7).topics[0].partitions[0].error_code == 0
    if with_coordinators:
        wait_s = SILENCE_S if setting in LINGERS else WAIT_S
        commit = client.ask_coordinator(
            group_requests.commit("g", topic), 8, is_refused="commit" in refused, wait_s=wait_s
        )
        assert commit == (NoFrame.SILENCE if setting in LINGERS else refused.get("commit", 0))
        if setting not in LINGERS:  # which holds its connection
            request = InitProducerIdRequest(
                transactional_id="t", transaction_timeout_ms=1000, producer_id=-1, producer_epoch=-1
            )
            assert client.ask_coordinator(request, 4, is_refused="init" in refused) == refused.get("init", 0)


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with ottla.testing.broker() as broker:
        yield broker


@pytest.mark.parametrize("name", numeric(TOPIC_SETTINGS))
def test_a_setting_of_a_topic(broker: LocalBroker, name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with contextlib.closing(Client(broker)) as client:
        for number, text in enumerate(edges(TOPIC_SETTINGS[name])):
            topic = Topic(f"{name}-{number}", ZERO_UUID)
            create = requests.create_topics(requests.creatable(topic.name, configs=[(name, text)]))
            [created] = client.ask(create, 7).topics
            if created.error_code == ErrorCode.INVALID_CONFIG:
                assert is_one_sentence(created.error_message, name), (text, created.error_message)
            else:
                assert created.error_code == 0, text
                check_served(client, topic, (name, text), with_coordinators=False)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("name", numeric(broker_settings()))
def test_a_setting_of_a_broker(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    for text in edges(broker_settings()[name]):
        with accepted(name, text) as settings:
            check_broker(settings, (name, text))
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@contextlib.contextmanager
def accepted(name: str, text: str) -> Iterator[dict[str, str]]:
    """What is refused must be told in one sentence."""
    complaint = None
    try:
        yield {name: text}
    except ConfigError as refused:
        complaint = str(refused)
    if complaint is not None:
        # Kafka tells of log.retention.hours as of log.retention.ms.
        assert is_one_sentence(complaint, name.rpartition(".")[0]), (text, complaint)


def check_broker(settings: dict[str, str], setting: tuple[str, str]) -> None:
    with ottla.testing.broker(settings=settings) as broker, contextlib.closing(Client(broker)) as client:
        created = client.ask(requests.create_topics(requests.creatable("t")), 7)
        if setting in CLOSES:
            assert created is NoFrame.CLOSED
        else:
            assert created.topics[0].error_code == 0
            check_served(client, Topic("t", ZERO_UUID), setting, with_coordinators=True)


@pytest.mark.parametrize("name", ["offsets.topic.segment.bytes", "transaction.state.log.segment.bytes"])
def test_a_topic_of_the_brokers_own_that_cannot_be_made_is_told(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Apache Kafka starts with it, too, warns, and answers COORDINATOR_NOT_AVAILABLE."""
    caplog.set_level(logging.WARNING)
    with ottla.testing.broker(settings={name: "1000"}) as broker, contextlib.closing(Client(broker)) as client:
        key_type = group_requests.GROUP_KEY if name.startswith("offsets") else group_requests.TRANSACTION_KEY
        found = client.ask(group_requests.find_coordinator("g", key_type), 3)
        assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert any("cannot be made" in record.getMessage() for record in caplog.records)
    assert any("at least 1048576" in str(vars(record)) for record in caplog.records)
