"""BatchReader when it is cancelled, when partitions come and go under its hands, and when some are not there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from ottla import testing
from ottla.client import Admin, ClientOptions, NewRecord, Producer, ServerError, TopicPartition, aio
from ottla.testing import LocalBroker

HERE, THERE = TopicPartition("here", 0), TopicPartition("there", 0)
MISSING = [TopicPartition("missing", index) for index in range(8)]
LONG_SECONDS = 60


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    with testing.broker() as running:
        for name in ("here", "there"):
            running.topic(name)
        yield running


def write(broker: LocalBroker, place: TopicPartition, count: int) -> None:
    with Producer(broker.bootstrap) as producer:
        for number in range(count):
            producer.send(place.topic, b"%d" % number, partition=place.partition)
            producer.flush()


async def read(reader: aio.BatchReader, count: int) -> AsyncIterator[int]:
    """The offsets that come, of one partition."""
    while count:
        for data in await reader.poll(1_000):
            for batch in data.visible():
                for record in batch.records(data.fetch_offset):
                    yield record.offset
                    count -= 1


def test_a_poll_that_is_cancelled_loses_nothing(broker: LocalBroker) -> None:
    write(broker, HERE, 40)

    async def scenario() -> list[int]:
        seen: list[int] = []
        # What is known of topics is always too old: they are asked for at every step.
        options = ClientOptions(metadata_age_ms=0)
        async with aio.BatchReader(broker.bootstrap, partition_bytes=1, options=options) as reader:
            reader.assign({HERE: 0})
            steps = 0
            while reader.offsets[HERE] < 40 or not seen or seen[-1] < 39:
                poll = asyncio.create_task(reader.poll(1_000))
                steps = steps % 40 + 1
                for _ in range(steps):
                    await asyncio.sleep(0.0002)
                poll.cancel()
                try:
                    found = await poll
                except asyncio.CancelledError:
                    continue
                seen += [
                    record.offset
                    for data in found
                    for one in data.visible()
                    for record in one.records(data.fetch_offset)
                ]
        return seen

    assert asyncio.run(asyncio.wait_for(scenario(), LONG_SECONDS)) == list(range(40))


def test_a_poll_without_time_gives_what_came_before_it(broker: LocalBroker) -> None:
    write(broker, HERE, 1)

    async def scenario() -> int:
        async with aio.BatchReader(broker.bootstrap) as reader:
            reader.assign({HERE: 0})
            while not (found := await reader.poll(0)):
                await asyncio.sleep(0.001)
            return found[0].next_offset

    assert asyncio.run(asyncio.wait_for(scenario(), LONG_SECONDS)) == 1


def test_partitions_of_a_topic_that_is_not_there_hold_up_no_other(broker: LocalBroker) -> None:
    write(broker, HERE, 1)

    async def scenario() -> None:
        options = ClientOptions(unknown_topic_timeout_ms=10 * LONG_SECONDS * 1000)
        async with aio.BatchReader(broker.bootstrap, options=options) as reader:
            reader.assign(dict.fromkeys([*MISSING, HERE], 0))
            assert [offset async for offset in read(reader, 1)] == [0]

    asyncio.run(asyncio.wait_for(scenario(), LONG_SECONDS))


def test_each_partition_that_is_not_there_is_told_by_its_number(broker: LocalBroker) -> None:
    async def scenario() -> set[tuple[str | None, int | None, str]]:
        told: set[tuple[str | None, int | None, str]] = set()
        async with aio.BatchReader(broker.bootstrap, options=ClientOptions(unknown_topic_timeout_ms=50)) as reader:
            reader.assign(dict.fromkeys([*MISSING, TopicPartition("here", 7)], 0))
            while len(told) < len(MISSING) + 1:
                try:
                    await reader.poll(1_000)
                except ServerError as error:
                    told.add((error.topic, error.partition, error.name))
        return told

    found = asyncio.run(asyncio.wait_for(scenario(), LONG_SECONDS))
    assert found == {(*place, "UNKNOWN_TOPIC_OR_PARTITION") for place in (*MISSING, TopicPartition("here", 7))}


def test_nothing_is_told_of_partitions_that_were_dropped(broker: LocalBroker) -> None:
    places = dict.fromkeys((HERE, THERE), 17)

    async def scenario() -> None:
        async with aio.BatchReader(broker.bootstrap) as reader:
            reader.assign(places)
            with pytest.raises(ServerError, match="offset 17 is not in the partition"):
                await reader.poll(LONG_SECONDS * 1000)
            reader.drop(places)
            assert await reader.poll(50) == []
            reader.assign({HERE: 0})
            assert await reader.poll(50) == []

    asyncio.run(asyncio.wait_for(scenario(), LONG_SECONDS))


def test_partitions_are_assigned_and_dropped_while_somebody_polls(broker: LocalBroker) -> None:
    write(broker, THERE, 1)

    async def scenario() -> list[str]:
        async with aio.BatchReader(broker.bootstrap) as reader:
            reader.assign({HERE: 0, TopicPartition("missing", 0): 0})
            poll = asyncio.create_task(reader.poll(LONG_SECONDS * 1000))
            await asyncio.sleep(0)
            reader.drop([HERE, TopicPartition("missing", 0)])
            reader.assign({THERE: 0})
            return [data.topic for data in await poll]

    assert asyncio.run(asyncio.wait_for(scenario(), LONG_SECONDS)) == ["there"]


def test_a_partition_that_was_just_added_is_read(broker: LocalBroker) -> None:
    added = TopicPartition("here", 1)

    async def scenario() -> list[int]:
        async with aio.BatchReader(broker.bootstrap) as reader:
            reader.assign({HERE: 0})
            assert await reader.poll(10) == []
            with Admin(broker.bootstrap) as admin:
                admin.expand_topics({"here": 2})
            with Producer(broker.bootstrap) as producer:
                producer.send_many("here", [NewRecord(b"a", partition=1)])
            reader.drop([HERE])
            reader.assign({added: 0})
            return [offset async for offset in read(reader, 1)]

    assert asyncio.run(asyncio.wait_for(scenario(), LONG_SECONDS)) == [0]


def test_who_polls_a_reader_that_is_not_open_is_told(broker: LocalBroker) -> None:
    async def scenario() -> None:
        reader = aio.BatchReader(broker.bootstrap)
        with pytest.raises(RuntimeError, match="not open"):
            await reader.poll(0)
        async with reader:
            reader.assign({HERE: 0})
            poll = asyncio.create_task(reader.poll(LONG_SECONDS * 1000))
            await asyncio.sleep(0.01)
        with pytest.raises(RuntimeError, match="not open"):
            await poll

    asyncio.run(asyncio.wait_for(scenario(), LONG_SECONDS))
