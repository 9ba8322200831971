"""Producer duplicates: a record was written, its acknowledgement was lost, and it is sent again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import confluent_kafka
import pytest

from ottla.client import Producer
from ottla.testing import LocalBroker

pytestmark = pytest.mark.ottla(topics={"t": 1})
Send = Callable[[LocalBroker, Sequence[bytes], bool], None]


def send_with_ottla(broker: LocalBroker, values: Sequence[bytes], idempotent: bool) -> None:
    with Producer(broker.bootstrap, idempotent=idempotent) as producer:
        producer.send_many("t", values)


def send_with_confluent(broker: LocalBroker, values: Sequence[bytes], idempotent: bool) -> None:
    options = {"bootstrap.servers": broker.bootstrap, "enable.idempotence": idempotent, "log_level": 0}
    producer = confluent_kafka.Producer({**options, "retry.backoff.ms": 20})
    for value in values:
        producer.produce("t", value)
    assert producer.flush(60) == 0


clients = pytest.mark.parametrize("send", [send_with_ottla, send_with_confluent])


@clients
def test_a_lost_acknowledgement_doubles_a_record(ottla: LocalBroker, send: Send) -> None:
    ottla.faults.lose_answer("Produce")
    send(ottla, [b"paid"], False)
    assert ottla.values("t") == [b"paid", b"paid"]


@clients
def test_an_idempotent_producer_is_recognized(ottla: LocalBroker, send: Send) -> None:
    ottla.faults.lose_answer("Produce", times=3)
    send(ottla, [b"paid"], True)
    assert ottla.values("t") == [b"paid"]


@clients
def test_also_by_a_broker_that_was_killed_in_between(ottla: LocalBroker, send: Send) -> None:
    lost = ottla.faults.lose_answer("Produce")
    ottla.faults.cut("Produce", times=1_000)
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send, ottla, [b"paid"], True)
        lost.wait()
        ottla.restart(kill=True)
        ottla.faults.clear()
        sending.result()
    assert ottla.values("t") == [b"paid"]
