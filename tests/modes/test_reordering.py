"""Reordering: the first of several batches in flight fails and is sent again, behind the others."""

from __future__ import annotations

import json
from collections.abc import Callable

import confluent_kafka
import pytest

from ottla.client import Producer
from ottla.testing import LocalBroker

pytestmark = pytest.mark.ottla(topics={"t": 1})
KNOWN = b"known"
"""Written by itself at first, so that the broker knows the producer, and the producer the broker."""
SENT = [b"first", b"second", b"third"]
Send = Callable[[LocalBroker, int, bool], None]


def send_with_ottla(broker: LocalBroker, in_flight: int, idempotent: bool) -> None:
    """A batch for each value, one right after the other."""
    with Producer(broker.bootstrap, idempotent=idempotent, max_in_flight=in_flight, batch_bytes=1) as producer:
        producer.send_many("t", [KNOWN])
        producer.send_many("t", SENT)


def send_with_confluent(broker: LocalBroker, in_flight: int, idempotent: bool) -> None:
    """The broker looks at the requests when all of them are in flight."""
    counts: list[int] = []

    def told(statistics: str) -> None:
        topic = json.loads(statistics)["topics"].get("t", {"partitions": {}})
        counts.append(topic["partitions"].get("0", {"msgs_inflight": 0})["msgs_inflight"])

    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "enable.idempotence": idempotent,
            "max.in.flight": in_flight,
            "batch.num.messages": 1,
            "retry.backoff.ms": 20,
            "statistics.interval.ms": 10,
            "stats_cb": told,
            "log_level": 0,
        }
    )
    producer.produce("t", KNOWN)
    assert producer.flush(60) == 0
    with broker.paused():
        for value in SENT:
            producer.produce("t", value)
        while counts[-1:] != [len(SENT)]:
            producer.poll(0.01)
    assert producer.flush(60) == 0


clients = pytest.mark.parametrize("send", [send_with_ottla, send_with_confluent])


@clients
def test_with_several_requests_in_flight_a_retry_comes_behind_later_ones(ottla: LocalBroker, send: Send) -> None:
    refused = ottla.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", after=1)
    send(ottla, 5, False)
    refused.wait()
    assert ottla.values("t") == [KNOWN, b"second", b"third", b"first"]


def test_with_one_at_a_time_nothing_can_overtake(ottla: LocalBroker) -> None:
    """With ottla.client. librdkafka lets a later batch pass one that waits to be sent again, even so."""
    refused = ottla.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", after=1)
    send_with_ottla(ottla, 1, False)
    refused.wait()
    assert ottla.values("t") == [KNOWN, *SENT]


@clients
def test_an_idempotent_producer_keeps_the_order_with_five(ottla: LocalBroker, send: Send) -> None:
    refused = ottla.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", after=1)
    send(ottla, 5, True)
    refused.wait()
    assert ottla.values("t") == [KNOWN, *SENT]


def test_even_if_its_very_first_batch_is_refused(ottla: LocalBroker) -> None:
    """A broker that knows nothing of a producer takes any number for the first, so nothing may follow it yet."""
    refused = ottla.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER")
    with Producer(ottla.bootstrap, batch_bytes=1) as producer:
        producer.send_many("t", SENT)
    refused.wait()
    assert ottla.values("t") == SENT


def test_a_transaction_keeps_it_too(ottla: LocalBroker) -> None:
    refused = ottla.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", after=1)
    with Producer(ottla.bootstrap, transactional_id="x", batch_bytes=1) as producer, producer.transaction():
        producer.send_many("t", [KNOWN])
        producer.send_many("t", SENT)
    refused.wait()
    assert ottla.values("t") == [KNOWN, *SENT]
