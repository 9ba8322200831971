"""What a consumer's user must be able to rely on, where the client has failed once: each with a broker of its own."""

import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

import ottla.testing
from ottla.client import (
    Consumer,
    DeserializationFailed,
    Message,
    Producer,
    ServerError,
    TopicPartition,
)
from ottla.testing import LocalBroker

TOPIC = "orders"
PLACE = TopicPartition(TOPIC, 0)


class Stop(Exception):
    pass


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    with ottla.testing.broker() as running:
        running.topic(TOPIC)
        yield running


def stop() -> None:
    raise Stop


def committed(broker: LocalBroker, group: str = "g") -> int:
    with Consumer(broker.bootstrap, group=group) as consumer:
        found = consumer.committed([PLACE])
    return found[PLACE].offset if found else 0


def put_transactions(broker: LocalBroker, count: int) -> list[bytes]:
    """Every second one is aborted; what is committed."""
    kept = []
    with Producer(broker.bootstrap, transactional_id="t", linger_ms=0) as producer:
        for number in range(count):
            with suppress(Stop), producer.transaction():
                for index in range(4):
                    producer.send(TOPIC, b"%d-%d" % (number, index), partition=0).result()
                if number % 2:
                    stop()
                kept += [b"%d-%d" % (number, index) for index in range(4)]
    return kept


@pytest.mark.parametrize("delivery", ["at-least-once", "at-most-once"])
def test_nothing_committed_is_hidden_behind_an_abort_when_each_loop_is_left(broker: LocalBroker, delivery: Any) -> None:
    kept = put_transactions(broker, 12)
    seen: list[bytes] = []
    with Consumer(broker.bootstrap, TOPIC, group="g", delivery=delivery) as consumer:
        while len(seen) < len(kept):
            for message in consumer:
                seen.append(message.value)
                consumer.pause(PLACE)
                consumer.resume(PLACE)
                break
    assert seen == kept


def test_what_poll_returned_is_processed_when_it_is_called_again(broker: LocalBroker) -> None:
    broker.put(TOPIC, *(b"%d" % number for number in range(10)))
    with suppress(Stop), Consumer(broker.bootstrap, TOPIC, group="g") as consumer:
        assert len(consumer.poll(10_000)[0].records) == 10
        stop()
    assert committed(broker) == 0
    with Consumer(broker.bootstrap, TOPIC, group="g") as consumer:
        assert len(consumer.poll(10_000)[0].records) == 10
        assert consumer.poll(0) == []
    assert committed(broker) == 10


def test_a_committed_offset_that_is_refused_at_first_is_asked_for_again(broker: LocalBroker) -> None:
    broker.put(TOPIC, b"one")
    broker.faults.error("OffsetFetch", "GROUP_AUTHORIZATION_FAILED")
    with Consumer(broker.bootstrap, TOPIC, group="g") as consumer:
        with pytest.raises(ServerError, match="GROUP_AUTHORIZATION_FAILED"):
            next(iter(consumer))
        assert next(iter(consumer)).value == b"one"


def test_a_message_that_its_handler_refused_comes_again(broker: LocalBroker) -> None:
    broker.put(TOPIC, b"one", b"two", b"three")
    seen: list[bytes] = []

    def handle(message: Message) -> None:
        seen.append(message.value)
        if seen.count(b"two") == 1 and message.value == b"two":
            raise Stop
        if message.value == b"three":
            consumer.stop()

    with Consumer(broker.bootstrap, TOPIC, group="g") as consumer:
        with pytest.raises(Stop):
            consumer.run(handle, retries=0)
        consumer.run(handle, retries=0)
    assert seen == [b"one", b"two", b"two", b"three"]


def test_an_aborted_batch_comes_again_exactly_once(broker: LocalBroker) -> None:
    broker.topic("results")
    broker.put(TOPIC, b"one", b"two")
    tries = 0

    def handle(message: Message) -> None:
        nonlocal tries
        producer.send("results", message.value)
        tries += 1
        if tries == 2:
            raise Stop
        if tries == 4:
            consumer.stop()

    with (
        Producer(broker.bootstrap, transactional_id="t") as producer,
        Consumer(broker.bootstrap, TOPIC, group="g", delivery="exactly-once") as consumer,
    ):
        with pytest.raises(Stop):
            consumer.run(handle, retries=0, producer=producer)
        consumer.run(handle, retries=0, producer=producer)
    assert broker.values("results") == [b"one", b"two"]


def test_stop_ends_a_loop_from_another_thread(broker: LocalBroker) -> None:
    with Consumer(broker.bootstrap, TOPIC, group="g") as consumer:
        timer = threading.Timer(0.2, consumer.stop)
        timer.start()
        assert list(consumer) == []
        timer.join()


def test_stop_ends_the_first_loop_of_a_consumer_that_is_not_open_yet(broker: LocalBroker) -> None:
    broker.put(TOPIC, b"one")
    consumer = Consumer(broker.bootstrap, TOPIC, group="g")
    consumer.stop()  # by the handler of a signal, say
    with consumer:
        assert list(consumer) == []
        assert next(iter(consumer)).value == b"one"
    consumer.stop()


def test_statistics_can_be_asked_for_at_any_time(broker: LocalBroker) -> None:
    broker.put(TOPIC, b"one")
    consumer = Consumer(broker.bootstrap, TOPIC, group="g")
    assert consumer.statistics().fetches == 0
    with consumer:
        next(iter(consumer))
        assert consumer.statistics().partitions == 1
    assert consumer.statistics().fetches > 0
    assert consumer.statistics()[-3:] == (0, 0, 0)


def test_a_consumer_that_is_not_open_says_so(broker: LocalBroker) -> None:
    consumer = Consumer(broker.bootstrap, TOPIC, group="g")
    with pytest.raises(RuntimeError, match="not open"):
        consumer.poll(0)
    consumer.close()


def test_a_value_that_cannot_be_deserialized_is_an_error_until_it_is_passed(broker: LocalBroker) -> None:
    broker.topic("dead")
    broker.put(TOPIC, b"1", b"x", b"3")
    with Consumer(broker.bootstrap, TOPIC, group="g", value=int) as consumer:
        assert next(iter(consumer)).value == 1
        for _ in range(2):
            with pytest.raises(DeserializationFailed, match="offset 1"):
                next(iter(consumer))
        consumer.seek(PLACE, 2)
        assert next(iter(consumer)).value == 3
    seen: list[int] = []

    def handle(message: Message) -> None:
        seen.append(message.value)
        if message.value == 3:
            consumer.stop()

    with Consumer(broker.bootstrap, TOPIC, group="h", value=int) as consumer:
        consumer.run(handle, dead_letter="dead")
    assert (seen, broker.values("dead")) == ([1, 3], [b"x"])


def test_what_a_raising_listener_does_not_prevent(broker: LocalBroker) -> None:
    broker.put(TOPIC, b"one")

    def refuse(_: object) -> None:
        raise Stop

    with pytest.raises(Stop), Consumer(broker.bootstrap, TOPIC, group="g", on_revoked=refuse) as consumer:
        assert next(iter(consumer)).value == b"one"
    assert committed(broker) == 1


def test_a_refused_commit_skips_nothing_at_most_once(broker: LocalBroker) -> None:
    broker.put(TOPIC, b"one", b"two")
    broker.faults.error("OffsetCommit", "GROUP_AUTHORIZATION_FAILED")
    with Consumer(broker.bootstrap, TOPIC, group="g", delivery="at-most-once") as consumer:
        with pytest.raises(ServerError):
            next(iter(consumer))
        assert next(iter(consumer)).value == b"one"
