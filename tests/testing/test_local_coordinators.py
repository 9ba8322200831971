"""Groups and transactions in the test kit: lags that are right, rebalances and fencing on demand."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from ottla import client
from ottla.testing import LocalBroker


@pytest.fixture
def ottla(ottla: LocalBroker) -> LocalBroker:
    ottla.topic("t")
    return ottla


def consumer(broker: LocalBroker, **settings: object) -> Consumer:
    defaults = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "g",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 100,
    }
    return Consumer({**defaults, **settings})


def take(reader: Consumer, count: int) -> list[Message]:
    messages: list[Message] = reader.consume(count, timeout=20)
    assert len(messages) == count
    return messages


def test_a_lag_counts_what_a_consumer_would_get(ottla: LocalBroker) -> None:
    producer = Producer({"bootstrap.servers": ottla.bootstrap, "transactional.id": "x"})
    producer.init_transactions(20)
    for end in (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        for value in (b"a", b"b"):
            producer.produce("t", value)
        end(20)
    reader = consumer(ottla)
    reader.subscribe(["t"])
    [first] = take(reader, 1)
    reader.commit(message=first, asynchronous=False)
    assert ottla.lag("g") == 3  # of four committed ones: no marker and nothing aborted counts
    with pytest.raises(AssertionError, match="group 'g' is behind: t-0 by 3"):
        ottla.wait_for_lag_zero("g", within=0.01)
    rest = take(reader, 3)
    reader.commit(message=rest[-1], asynchronous=False)
    ottla.wait_for_lag_zero("g")
    reader.close()


def test_a_group_that_committed_nothing_is_told(ottla: LocalBroker) -> None:
    with pytest.raises(AssertionError, match="it has committed nothing"):
        ottla.wait_for_lag_zero("nobody", within=0.01)


def test_a_rebalance_that_nobody_asked_for(ottla: LocalBroker) -> None:
    assignments: list[list[TopicPartition]] = []
    reader = consumer(ottla)
    reader.subscribe(["t"], on_assign=lambda _consumer, partitions: assignments.append(partitions))
    ottla.put("t", b"a")
    take(reader, 1)
    assert len(assignments) == 1
    ottla.rebalance("g")
    for _ in range(200):
        reader.poll(0.1)
        if len(assignments) == 2:
            break
    assert len(assignments) == 2
    reader.close()


def test_only_a_group_with_members_can_rebalance(ottla: LocalBroker) -> None:
    with pytest.raises(ValueError, match="no group 'nobody' with members"):
        ottla.rebalance("nobody")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_that_is_thrown_out_may_not_commit(ottla: LocalBroker, protocol: str) -> None:
    ottla.put("t", b"a")
    group = {"group": "g", "group_protocol": protocol, "auto_commit": False}
    with client.Consumer(ottla.bootstrap, "t", options=client.ClientOptions(client_id="c"), **group) as reader:  # type: ignore[arg-type]
        next(iter(reader))
        ottla.expel("g", client_id="c")
        with pytest.raises(client.CommitFailed):
            reader.commit()


def test_only_a_member_can_be_thrown_out(ottla: LocalBroker) -> None:
    with pytest.raises(ValueError, match="no group 'nobody' with members"):
        ottla.expel("nobody", client_id="c")
    ottla.put("t", b"a")
    with client.Consumer(ottla.bootstrap, "t", group="g") as reader:
        next(iter(reader))
        with pytest.raises(ValueError, match="has no member of a client 'c'"):
            ottla.expel("g", client_id="c")


def test_a_fenced_producer_writes_no_more(ottla: LocalBroker) -> None:
    producer = Producer({"bootstrap.servers": ottla.bootstrap, "transactional.id": "x"})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce("t", b"a")
    producer.flush(20)
    ottla.fence("x")
    with pytest.raises(KafkaException):
        producer.commit_transaction(20)
    assert ottla.values("t") == []


def test_who_has_no_open_transaction_is_fenced_too(ottla: LocalBroker) -> None:
    with client.Producer(ottla.bootstrap, transactional_id="x") as producer:
        ottla.fence("x")
        with pytest.raises(client.ProducerFenced), producer.transaction():
            producer.send("t", b"a")
    assert ottla.values("t") == []


@pytest.mark.ottla(durability="fsync")
def test_fencing_waits_for_the_disk(ottla: LocalBroker) -> None:
    ottla.fence("x")
    ottla.fence("x")
