"""What a consumer does when its topic changes under it: offsets that go, topics made anew, leaders that move."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from ottla.client import EARLIEST, LATEST, ClientOptions, Offset, OffsetMissing, ServerError, TopicPartition, aio
from ottla.testing.world import World
from ottla.wire.messages.metadata import MetadataResponseBroker

OPTIONS = ClientOptions(request_timeout_ms=3_000, retry_timeout_ms=10_000, metadata_age_ms=5_000)
PLACE = TopicPartition("t", 0)
PROTOCOLS: dict[str, dict[str, Any]] = {"classic": {}, "consumer": {"group_protocol": "consumer"}}
protocols = pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS.keys())


async def read(consumer: aio.Consumer, count: int) -> list[bytes]:
    seen: list[bytes] = []
    while len(seen) < count:
        seen += [record.value for batch in await consumer.poll(500) for record in batch.records]
    return seen


@protocols
@pytest.mark.parametrize("away_seconds", [0, 0.2, 2, 8])
@pytest.mark.parametrize("count", [3, 10])
def test_a_topic_that_is_created_again_is_read_from_its_start(
    protocol: dict[str, Any], away_seconds: float, count: int
) -> None:
    """Whether it has more records than the old one, or fewer; and no offset of the old one is committed for it."""
    with World() as world:
        world.create_topic("t")
        world.put("t", *(b"old %d" % number for number in range(6)))
        new = [b"new %d" % number for number in range(count)]

        async def main() -> list[bytes]:
            async with (
                aio.Consumer(world.bootstrap, "t", group="g", options=OPTIONS, **protocol) as consumer,
                aio.Admin(world.bootstrap) as admin,
            ):
                await read(consumer, 6)
                await admin.delete_topics(["t"])
                await asyncio.sleep(away_seconds)
                world.create_topic("t")
                world.put("t", *new)
                return await read(consumer, count)

        assert world.run(main(), most_seconds=100) == new


@pytest.mark.parametrize("age_ms", [0, 100, 5_000])
def test_a_topic_that_is_created_again_is_read_from_its_start_without_a_group_too(age_ms: int) -> None:
    """However often the topic is asked for: the offset of the old one is never asked of the new one."""
    with World() as world:
        world.create_topic("t")
        world.put("t", *(b"old %d" % number for number in range(6)))
        new = [b"new %d" % number for number in range(10)]
        options = OPTIONS._replace(metadata_age_ms=age_ms)

        async def main() -> list[bytes]:
            async with (
                aio.Consumer(world.bootstrap, options=options, fetch_wait_ms=200) as consumer,
                aio.Admin(world.bootstrap) as admin,
            ):
                await consumer.assign([PLACE])
                await read(consumer, 6)
                consumer.pause(PLACE)
                await consumer.poll(500)
                await admin.delete_topics(["t"])
                world.create_topic("t")
                world.put("t", *new)
                consumer.resume(PLACE)
                return await read(consumer, 10)

        assert world.run(main(), most_seconds=100) == new


@protocols
def test_a_commit_of_a_topic_that_is_gone_is_none_of_the_next_one_of_its_name(protocol: dict[str, Any]) -> None:
    """Its client has not noticed yet: only the broker knows that the topic is another."""
    with World() as world:
        world.create_topic("t")
        world.put("t", *(b"old %d" % number for number in range(6)))

        async def main() -> dict[TopicPartition, Offset]:
            async with (
                aio.Consumer(world.bootstrap, "t", group="g", options=OPTIONS, **protocol) as consumer,
                aio.Admin(world.bootstrap) as admin,
            ):
                await read(consumer, 6)
                consumer.pause(PLACE)
                await asyncio.sleep(1)  # nothing is being fetched any more
                await admin.delete_topics(["t"])
                world.create_topic("t")
                world.put("t", *(b"new %d" % number for number in range(6)))
                with pytest.raises(ServerError, match="UNKNOWN_TOPIC_ID"):
                    await consumer.commit({PLACE: 6})
                committed = await admin.list_group_offsets("g")
                consumer.resume(PLACE)
                assert await read(consumer, 6) == [b"new %d" % number for number in range(6)]
                await consumer.commit()
                assert (await consumer.committed([PLACE]))[PLACE].offset == 6
                return committed

        assert world.run(main(), most_seconds=100) == {}


@pytest.mark.parametrize(("start", "expected"), [(EARLIEST, [b"4", b"5", b"6"]), (LATEST, [b"6"])])
def test_who_falls_behind_what_is_kept_goes_on_where_it_is_told(start: Any, expected: list[bytes]) -> None:
    with World() as world:
        world.create_topic("t")
        world.put("t", *(b"%d" % number for number in range(6)))

        async def main() -> list[bytes]:
            async with (
                aio.Consumer(world.bootstrap, group="g", start=start, options=OPTIONS) as consumer,
                aio.Admin(world.bootstrap) as admin,
            ):
                await consumer.assign([PLACE])
                await admin.delete_records({PLACE: 4})
                await consumer.seek(PLACE, 1)
                await consumer.poll(1_000 if start is LATEST else 0)
                world.put("t", b"6")
                return await read(consumer, len(expected))

        assert world.run(main(), most_seconds=100) == expected


def test_without_a_start_it_is_told() -> None:
    with World() as world:
        world.create_topic("t")
        world.put("t", b"0")

        async def main() -> None:
            async with aio.Consumer(world.bootstrap, group="g", start=None, options=OPTIONS) as consumer:
                with pytest.raises(OffsetMissing, match="no committed offset"):
                    await consumer.assign([PLACE])
                await consumer.seek(PLACE, 100)
                with pytest.raises(OffsetMissing, match="not there any more"):
                    await read(consumer, 1)

        world.run(main(), most_seconds=100)


def test_outages_and_leaders_that_move_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ottla.client")
    with World() as world:
        world.create_topic("t")
        world.put("t", b"0")

        def move(answer: Any) -> None:
            [broker] = answer.brokers
            answer.brokers.append(MetadataResponseBroker(node_id=2, host=broker.host, port=broker.port))
            for topic in answer.topics:
                for partition in topic.partitions:
                    partition.leader_id = 2

        async def main() -> None:
            async with aio.Consumer(world.bootstrap, "t", group="g", options=OPTIONS) as consumer:
                await read(consumer, 1)
                world.faults.alter("Metadata", move, times=1_000)
                world.faults.error("Fetch", "NOT_LEADER_OR_FOLLOWER", times=2)
                world.put("t", b"1")
                await read(consumer, 1)
                world.stop()
                await consumer.poll(3_000)
                world.start()
                world.put("t", b"2")
                await read(consumer, 1)

        world.run(main(), most_seconds=100)
    told = [record.getMessage() for record in caplog.records]
    for says in (
        "topic t, partition 0: the leader was 1 and is 2",
        "t-0: broker 2 leads it now, not 1",
        "cannot reach a broker at 127.0.0.1:9092: connection refused",
        "127.0.0.1:9092: the broker can be reached again",
        "broker 2 gives nothing",
        "broker 2 answers again after",
        "group g: reads t-0",
    ):
        assert len([one for one in told if one.startswith(says)]) == 1, (says, told)
