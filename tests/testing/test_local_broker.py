"""The broker of a test: topics in a line, records without a client, and what can happen to a broker."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

import ottla.testing
from ottla.broker.broker import Broker
from ottla.log.errors import StorageFailed
from ottla.records.build import build_batch
from ottla.testing import LocalBroker
from ottla.wire.errors import ApiError


def produce(broker: LocalBroker, topic: str, *values: bytes, **settings: object) -> list[KafkaError | None]:
    """Through a client of another make; the error of each record, if it had one."""
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, **settings})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _message: errors.append(error))
    assert producer.flush(20) == 0
    return errors


def test_the_fixture_is_a_running_broker(ottla: LocalBroker) -> None:
    ottla.topic("orders", partitions=3)
    assert produce(ottla, "orders", b"one", b"two") == [None, None]
    ottla.assert_records("orders", [b"two", b"one"])


@pytest.mark.ottla(topics={"orders": 3}, settings={"auto.create.topics.enable": "false"})
def test_a_marker_says_what_it_is_like(ottla: LocalBroker) -> None:
    assert ottla.call(lambda broker: len(broker.topics.by_name["orders"].partitions)) == 3
    [error] = produce(ottla, "missing", b"value", **{"message.timeout.ms": 300, "allow.auto.create.topics": True})
    assert error is not None


def test_brokers_of_wider_scopes_are_others(
    ottla: LocalBroker, ottla_module: LocalBroker, ottla_session: LocalBroker
) -> None:
    assert len({ottla.port, ottla_module.port, ottla_session.port}) == 3


def test_brokers_in_one_process_have_nothing_in_common() -> None:
    with ottla.testing.broker() as first, ottla.testing.broker() as second:
        first.topic("orders")
        assert second.call(lambda broker: list(broker.topics.by_name)) == []
        assert first.call(lambda broker: broker.cluster_id) != second.call(lambda broker: broker.cluster_id)


def test_records_can_be_put_and_looked_at_without_a_client(ottla: LocalBroker) -> None:
    ottla.topic("t", partitions=2)
    ottla.put("t", b"a", b"b", key=b"k", partition=1, headers=[("h", b"1")], timestamp=5)
    [first, second] = ottla.records("t")
    assert first == (1, 0, 5, b"k", b"a", (("h", b"1"),))
    assert second.offset == 1
    assert ottla.dump("t").splitlines() == [
        "t-1@0 key=b'k' value=b'a' h=b'1'",
        "t-1@1 key=b'k' value=b'b' h=b'1'",
    ]


def test_what_a_topic_should_have_and_has_not_is_told(ottla: LocalBroker) -> None:
    ottla.topic("t")
    ottla.put("t", b"a")
    with pytest.raises(AssertionError) as other:
        ottla.assert_records("t", [b"b"])
    assert str(other.value) == "topic t has 1 records where 1 were expected; missing: b'b'; not expected: b'a'"
    with pytest.raises(AssertionError) as lacking:
        ottla.assert_records("t", [b"a", b"b"], within=0.01)
    assert str(lacking.value) == "topic t has 1 records where 2 were expected; missing: b'b'"
    ottla.put("t", *[b"a"] * 9)
    with pytest.raises(AssertionError) as doubled:
        ottla.assert_records("t", [b"a"])
    assert str(doubled.value).endswith("not expected: b'a', b'a', b'a', b'a', b'a' and 4 more")


def test_a_look_finds_written_what_came_before_it(ottla: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small batches are written when a round of the loop ends; a look in the middle of that round has to see them."""
    ottla.topic("t")
    is_asked = threading.Event()
    post = ottla._loop.post

    def post_and_tell(callback: Callable[[], None]) -> None:
        post(callback)
        is_asked.set()

    def gather() -> None:
        is_asked.wait(20)  # so that the look comes in the same round
        batch = build_batch([b"a"], timestamp=1)
        ottla._broker.topics.by_name["t"].partitions[0].writer.produce(batch, version=9, now_ms=1)

    monkeypatch.setattr(ottla._loop, "post", post_and_tell)
    post(gather)
    assert ottla.values("t") == [b"a"]


def test_a_topic_that_cannot_be_is_refused(ottla: LocalBroker) -> None:
    ottla.topic("t")
    with pytest.raises(ApiError, match="already exists"):
        ottla.topic("t")
    with pytest.raises(ValueError, match="there is no topic 'u'"):
        ottla.records("u")


def test_a_consumer_of_another_make(ottla: LocalBroker) -> None:
    ottla.topic("t")
    ottla.put("t", b"a", b"b")
    consumer = Consumer({"bootstrap.servers": ottla.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    messages = consumer.consume(2, timeout=20)
    consumer.close()
    assert [message.value() for message in messages] == [b"a", b"b"]


@pytest.mark.parametrize("kill", [False, True])
def test_data_is_there_after_a_restart_on_the_same_port(
    ottla: LocalBroker, kill: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ottla.topic("t")
    ottla.put("t", b"a")
    port = ottla.port
    start_broker, seen = Broker.start, list[str]()

    def look(broker: Broker) -> None:
        seen.append(ottla.bootstrap)  # as a client of another thread may
        start_broker(broker)

    with monkeypatch.context() as patched:
        patched.setattr(Broker, "start", look)
        ottla.restart(kill=kill)
    assert seen == [ottla.bootstrap]
    assert ottla.port == port
    assert ottla.values("t") == [b"a"]


def test_a_broker_that_is_down_refuses_connections(ottla: LocalBroker) -> None:
    ottla.topic("t")
    ottla.put("t", b"a")
    with ottla.down(kill=True):
        [error] = produce(ottla, "t", b"lost", **{"message.timeout.ms": 300})
        assert error is not None
    assert produce(ottla, "t", b"b") == [None]
    assert ottla.values("t") == [b"a", b"b"]


def test_a_paused_broker_answers_when_it_goes_on(ottla: LocalBroker) -> None:
    ottla.topic("t")
    producer = Producer({"bootstrap.servers": ottla.bootstrap, "acks": "all"})
    delivered: list[KafkaError | None] = []
    with ottla.paused():
        producer.produce("t", b"a", on_delivery=lambda error, _message: delivered.append(error))
        producer.poll(0.2)
        assert not delivered
    producer.flush(20)
    assert delivered == [None]
    assert ottla.values("t") == [b"a"]


def test_a_full_disk_refuses_writes_and_takes_them_again(ottla: LocalBroker) -> None:
    ottla.topic("t")
    assert produce(ottla, "t", b"a") == [None]
    with ottla.full_disk():
        [error] = produce(ottla, "t", b"lost", **{"message.timeout.ms": 500})
        assert error is not None
        with pytest.raises(StorageFailed):
            ottla.put("t", b"lost")
        assert ottla.values("t") == [b"a"]
    assert produce(ottla, "t", b"b") == [None]
    assert ottla.values("t") == [b"a", b"b"]


def test_settings_that_cannot_be_are_told_at_once() -> None:
    with (
        pytest.raises(ValueError, match=r"log\.retention\.hours"),
        ottla.testing.broker(settings={"log.retention.hours": "many"}),
    ):
        pass


def test_without_pytest() -> None:
    with ottla.testing.broker() as broker:
        broker.topic("t")
        assert produce(broker, "t", b"a") == [None]
    with pytest.raises(KafkaException):
        Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"}).list_topics(timeout=0.3)
