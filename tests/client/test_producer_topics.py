"""What a producer knows of topics gets old: they get partitions, and are asked for again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from ottla import testing
from ottla.client import (
    LATEST,
    Admin,
    ClientOptions,
    InvalidRecord,
    NewRecord,
    NewTopic,
    Producer,
    Reader,
    TopicPartition,
    aio,
)
from ottla.records.build import build_batch
from ottla.testing import LocalBroker


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    with testing.broker() as running:
        for name in ("a", "b", "c"):
            running.topic(name)
        yield running


def test_partitions_that_were_just_added_are_written_to(broker: LocalBroker) -> None:
    batch = bytes(build_batch([b"x"], timestamp=1))
    with Producer(broker.bootstrap) as producer, Admin(broker.bootstrap) as admin:
        for name in ("a", "b", "c"):
            producer.send(name, b"known from now on").result()
            admin.expand_topics({name: 4})
        assert producer.send("a", b"x", partition=3).result().partition == 3
        assert [one.partition for one in producer.send_many("b", [NewRecord(b"x", partition=2)])] == [2]
        assert producer.send_batches([(TopicPartition("c", 1), batch)]) == [0]


def test_a_partition_that_is_not_added_is_refused_after_a_moment(broker: LocalBroker) -> None:
    with Producer(broker.bootstrap, options=ClientOptions(unknown_topic_timeout_ms=50)) as producer:
        wrong = producer.send("a", b"x", partition=1)
        right = producer.send("a", b"y", partition=0)
        with pytest.raises(InvalidRecord, match="topic a has no partition 1: it has 1"):
            wrong.result()
        assert right.result().offset == 0


def test_no_request_overtakes_another_while_topics_are_asked_for_again(broker: LocalBroker) -> None:
    """Without an identity nobody would put them right."""

    async def scenario() -> None:
        options = ClientOptions(metadata_age_ms=0)
        producer = aio.Producer(broker.bootstrap, acks="1", linger_ms=0, batch_bytes=200, options=options)
        async with producer:
            for number in range(300):
                producer.send("b", b"%05d" % number + bytes(60))
                if number % 7 == 0:
                    producer.send("a", b"x")
                    producer.send("c", b"x")
                if number % 3 == 0:
                    await asyncio.sleep(0.001)

    asyncio.run(scenario())
    with Reader(broker.bootstrap, "b", end=LATEST) as reader:
        found = [int(record.value[:5]) for fetched in reader for record in fetched.records]
    assert found == list(range(300))


def test_a_broker_that_is_behind_does_not_hold_a_producer_to_a_topic_that_was_deleted(broker: LocalBroker) -> None:
    """It tells of the former topic after another broker has told of the new one."""

    async def main() -> int:
        options = ClientOptions(retry_timeout_ms=10_000)
        async with aio.Producer(broker.bootstrap, options=options) as producer, aio.Admin(broker.bootstrap) as admin:
            former = await admin._cluster.refresh(["a"])
            await admin.delete_topics(["a"])
            await admin.create_topics([NewTopic("a")])
            await producer.send("a", b"new")
            producer._cluster._view.take(former, asyncio.get_running_loop().time())
            return (await producer.send("a", b"newer")).offset

    assert asyncio.run(main()) == 1
    assert broker.values("a") == [b"new", b"newer"]


def test_nor_a_consumer(broker: LocalBroker) -> None:
    async def main() -> None:
        async with aio.Producer(broker.bootstrap) as producer, aio.Admin(broker.bootstrap) as admin:
            former = await admin._cluster.refresh(["a"])
            await admin.delete_topics(["a"])
            await admin.create_topics([NewTopic("a")])
            await producer.send("a", b"new")
            async with aio.Consumer(broker.bootstrap, "a", group="g") as consumer, asyncio.timeout(20):
                await consumer.poll()
                consumer.core._cluster._view.take(former, asyncio.get_running_loop().time())
                await producer.send("a", b"newer")
                async for message in consumer:
                    if message.value == b"newer":
                        return

    asyncio.run(main())
