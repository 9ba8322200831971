"""Reordering: the first of two batches in flight fails and is sent again, behind the second."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import confluent_kafka
import pytest

from ottla.client import Producer
from ottla.testing import LocalBroker

pytestmark = pytest.mark.ottla(topics={"t": 1})
SENT = [b"first", b"second", b"third"]
Send = Callable[[LocalBroker, Sequence[bytes], int, bool], None]


def send_with_ottla(broker: LocalBroker, values: Sequence[bytes], in_flight: int, idempotent: bool) -> None:
    """A batch for each value, one right after the other."""
    with Producer(broker.bootstrap, idempotent=idempotent, max_in_flight=in_flight, batch_bytes=1) as producer:
        producer.send_many("t", values)


def send_with_confluent(broker: LocalBroker, values: Sequence[bytes], in_flight: int, idempotent: bool) -> None:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "enable.idempotence": idempotent,
            "max.in.flight": in_flight,
            "batch.num.messages": 1,
            "retry.backoff.ms": 20,
            "log_level": 0,
        }
    )
    with broker.paused():  # all of them are there before the first can go
        for value in values:
            producer.produce("t", value)
    assert producer.flush(60) == 0


clients = pytest.mark.parametrize("send", [send_with_ottla, send_with_confluent])


@clients
def test_with_several_requests_in_flight_a_retry_comes_behind_later_ones(ottla: LocalBroker, send: Send) -> None:
    refused = ottla.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER")
    send(ottla, SENT, 5, False)
    refused.wait()
    assert ottla.values("t") == [b"second", b"third", b"first"]


def test_with_one_at_a_time_nothing_can_overtake(ottla: LocalBroker) -> None:
    """With ottla.client. librdkafka lets a later batch pass one that waits to be sent again, even so."""
    refused = ottla.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER")
    send_with_ottla(ottla, SENT, 1, False)
    refused.wait()
    assert ottla.values("t") == SENT


@clients
def test_an_idempotent_producer_keeps_the_order_with_five(ottla: LocalBroker, send: Send) -> None:
    refused = ottla.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", after=1)
    send(ottla, SENT, 5, True)
    refused.wait()
    assert ottla.values("t") == SENT


def test_even_if_its_very_first_batch_is_refused(ottla: LocalBroker) -> None:
    """A broker that knows nothing of a producer takes any number for the first, so nothing may follow it yet."""
    refused = ottla.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER")
    send_with_ottla(ottla, SENT, 5, True)
    refused.wait()
    assert ottla.values("t") == SENT


def test_a_transaction_keeps_it_too(ottla: LocalBroker) -> None:
    refused = ottla.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", after=1)
    with Producer(ottla.bootstrap, transactional_id="x", batch_bytes=1) as producer, producer.transaction():
        producer.send_many("t", SENT)
    refused.wait()
    assert ottla.values("t") == SENT
