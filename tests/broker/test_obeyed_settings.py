"""Settings of the broker that limit its clients, set at the start and while it runs."""

from __future__ import annotations

import contextlib
import socket
from typing import Any

import pytest

import ottla.testing
from ottla.broker.broker import Broker
from ottla.broker.config.layers import BrokerSettings
from ottla.client import Admin, ConfigChange, ConfigOperation, NewTopic, Resource, ResourceKind
from ottla.log.housekeeping import Housekeeping
from ottla.records.build import build_batch
from ottla.wire.frames import decode_response, encode_request
from ottla.wire.schema import Request
from ottla.wire.uuids import ZERO_UUID
from tests.conformance import requests
from tests.conformance.connection import Connection
from tests.conformance.script import Topic


def test_a_limit_of_connections_holds_as_soon_as_it_is_set() -> None:
    with ottla.testing.broker() as broker, Admin(broker.bootstrap) as admin:

        def limit(count: int) -> None:
            change = ConfigChange("max.connections", ConfigOperation.SET, str(count))
            admin.alter_configs(Resource(ResourceKind.BROKER, "1"), [change])

        limit(1)
        with contextlib.closing(socket.create_connection((broker.host, broker.port))) as refused:
            refused.settimeout(10)
            assert refused.recv(1) == b""
        limit(100)
        with contextlib.closing(socket.create_connection((broker.host, broker.port))) as taken:
            taken.settimeout(0.05)
            with pytest.raises(TimeoutError):
                taken.recv(1)


def test_what_was_set_while_the_broker_ran_holds_after_its_next_start() -> None:
    with ottla.testing.broker() as broker:
        with Admin(broker.bootstrap) as admin:
            texts = {"max.connections": "1", "log.cleaner.backoff.ms": "77", "producer.id.expiration.ms": "78"}
            changes = [ConfigChange(name, ConfigOperation.SET, text) for name, text in texts.items()]
            admin.alter_configs(Resource(ResourceKind.BROKER, "1"), changes)
        broker.restart()
        with (
            contextlib.closing(Connection((broker.host, broker.port))) as first,
            contextlib.closing(socket.create_connection((broker.host, broker.port))) as refused,
        ):
            assert ask(first, requests.metadata(), 9).brokers
            refused.settimeout(10)
            assert refused.recv(1) == b""
        housekeeping = broker.call(housekeeping_of)
        assert (housekeeping.compaction_interval_ms, housekeeping.producer_expiration_ms) == (77, 78)


@pytest.mark.parametrize(("limits", "is_taken"), [("127.0.0.1:0", False), ("127.0.0.9:0, 127.0.0.1:100", True)])
def test_single_addresses_have_limits_of_their_own(limits: str, is_taken: bool) -> None:
    settings = {"max.connections.per.ip": "0" if is_taken else "100", "max.connections.per.ip.overrides": limits}
    with (
        ottla.testing.broker(settings=settings) as broker,
        contextlib.closing(socket.create_connection((broker.host, broker.port))) as connection,
    ):
        connection.settimeout(0.05 if is_taken else 10)
        with pytest.raises(TimeoutError) if is_taken else contextlib.nullcontext():
            assert connection.recv(1) == b""


def housekeeping_of(broker: Broker) -> Housekeeping:
    assert broker._housekeeping is not None
    [housekeeping] = broker._housekeeping.parts
    return housekeeping


def test_changes_are_told_to_who_wants_to_know() -> None:
    settings = BrokerSettings()
    seen: list[int] = []
    settings.watch(lambda: seen.append(settings.config.max_connections))
    settings.set_dynamic({}, {"max.connections": "7"})
    assert seen == [7]


def ask(connection: Connection, request: Request, version: int) -> Any:
    connection.send(encode_request(1, None, request, version))
    frame = connection.receive(10)
    assert isinstance(frame, bytes)
    return decode_response(frame, request.api, version)[1]


def test_an_answer_to_a_fetch_is_no_larger_than_the_broker_lets_it_be() -> None:
    with ottla.testing.broker(settings={"fetch.max.bytes": "1024"}) as broker:
        with Admin(broker.bootstrap) as admin:
            admin.create_topics([NewTopic("t", 2)])
        with contextlib.closing(Connection((broker.host, broker.port))) as connection:
            topic = Topic("t", ZERO_UUID)
            for partition in (0, 1):
                batch = build_batch([b"v" * 900], timestamp=0)
                ask(connection, requests.produce(topic, batch, partition=partition), 12)
            wanted = [requests.fetch_partition(partition=partition) for partition in (0, 1)]
            response = ask(connection, requests.fetch({topic: wanted}, max_bytes=1 << 30), 12)
        sizes = [len(answer.records or b"") for answer in response.responses[0].partitions]
        assert sizes[0] > 900
        assert sizes[1] == 0
