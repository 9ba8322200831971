"""A growth closes connections so that clients ask for metadata: those of clients that it concerns, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

import ottla.testing
from ottla.client import Admin, NewTopic
from ottla.testing import LocalBroker
from ottla.wire.frames import encode_request
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.schema import Request
from tests.conformance.connection import Connection, NoFrame
from tests.growing.ledger import wait_until
from tests.growing.test_plain_readers import TOPIC, grow

PATIENCE_SECONDS = 60.0


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    with ottla.testing.broker() as broker:
        yield broker


class RawClient:
    def __init__(self, broker: LocalBroker) -> None:
        host, _, port = broker.bootstrap.partition(":")
        self._connection = Connection((host, int(port)))

    def ask(self, request: Request) -> None:
        self._connection.send(encode_request(1, "raw", request, request.api.highest))
        frame = self._connection.receive(PATIENCE_SECONDS)
        assert not isinstance(frame, NoFrame), frame

    def ask_for(self, *topics: str) -> None:
        self.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in topics]))

    def is_closed(self) -> bool:
        return self._connection.receive(PATIENCE_SECONDS) is NoFrame.CLOSED

    def close(self) -> None:
        self._connection.close()


def grow_and_close(broker: LocalBroker, admin: Admin) -> None:
    """Until the connections of those that know the topic are closed."""
    client = RawClient(broker)
    client.ask_for(TOPIC)
    grow(admin, 2)
    assert client.is_closed()
    client.close()


def test_clients_of_other_topics_keep_their_connections(broker: LocalBroker) -> None:
    clients = knows, knows_all, other, nothing, administers = [RawClient(broker) for _ in range(5)]
    with ExitStack() as stack:
        for client in clients:
            stack.callback(client.close)
        admin = stack.enter_context(Admin(broker.bootstrap))
        admin.create_topics([NewTopic(TOPIC, 1), NewTopic("other", 1)])
        knows.ask_for("other", TOPIC)
        knows_all.ask(MetadataRequest(topics=None))
        other.ask_for("other")
        nothing.ask_for()
        administers.ask_for(TOPIC)
        administers.ask(ListGroupsRequest(states_filter=[], types_filter=[]))
        grow(admin, 2)
        assert knows.is_closed()
        assert knows_all.is_closed()
        for client in (other, nothing, administers):
            client.ask_for("other")


def test_a_transactional_producer_at_rest_goes_on(broker: LocalBroker) -> None:
    """librdkafka 2.16 commits no offsets any more once all its connections to brokers were closed."""
    with Admin(broker.bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, 1)])
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": broker.bootstrap, "transactional.id": "x", "partitioner": "murmur2_random"}
        )
        producer.init_transactions(PATIENCE_SECONDS)
        group = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
        errors: list[object] = []

        def transact(offset: int) -> None:
            producer.begin_transaction()
            for key in range(20):
                producer.produce(TOPIC, b"v", b"%d" % key, on_delivery=lambda error, _: errors.append(error))
            place = confluent_kafka.TopicPartition(TOPIC, 0, offset)
            producer.send_offsets_to_transaction([place], group.consumer_group_metadata(), PATIENCE_SECONDS)
            producer.commit_transaction(PATIENCE_SECONDS)

        transact(1)
        grow_and_close(broker, admin)
        wait_until(lambda: len(producer.list_topics(TOPIC, 5).topics[TOPIC].partitions) == 2, "it knows of both")
        transact(2)
        assert errors == [None] * 40
        group.close()


def test_an_administrator_goes_on(broker: LocalBroker) -> None:
    """So it is with what librdkafka's administrators ask of the coordinators of groups."""
    with Admin(broker.bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, 1)])
        client = AdminClient({"bootstrap.servers": broker.bootstrap})

        def describe() -> None:
            client.list_topics(timeout=PATIENCE_SECONDS)
            client.describe_consumer_groups(["g"], request_timeout=PATIENCE_SECONDS)["g"].result()

        describe()
        grow_and_close(broker, admin)
        describe()
