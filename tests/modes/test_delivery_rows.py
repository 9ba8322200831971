"""Rows of the tables of docs/delivery.md that promise a number, or say that a setting makes no difference."""

from __future__ import annotations

import asyncio

import pytest

from ottla.client import ClientOptions, Producer, TopicPartition, aio
from ottla.testing import LocalBroker
from ottla.testing.world import World

PORTION = 500
"""At most so many records of a partition are committed ahead."""


@pytest.mark.parametrize("max_in_flight", [1, 5])
def test_acks_of_the_leader_are_written_twice_when_one_is_lost(max_in_flight: int) -> None:
    with World() as world:
        world.create_topic("t")
        world.faults.lose_answer("Produce")

        async def main() -> None:
            options = ClientOptions(request_timeout_ms=500)
            async with aio.Producer(
                world.bootstrap, acks="1", max_in_flight=max_in_flight, options=options
            ) as producer:
                await producer.send("t", b"paid")

        world.run(main(), most_seconds=60)
        assert [record.value for record in world.written("t")] == [b"paid", b"paid"]


@pytest.mark.ottla(topics={"t": 1})
def test_with_one_broker_acks_of_the_leader_and_of_all_keep_the_same(ottla: LocalBroker) -> None:
    for acks in ("1", "all"):
        with Producer(ottla.bootstrap, acks=acks) as producer:
            producer.send("t", acks.encode()).result()
        ottla.restart(kill=True)
    assert ottla.values("t") == [b"1", b"all"]


def test_at_most_once_a_crash_takes_500_records_of_each_partition_and_no_more() -> None:
    with World() as world:
        world.create_topic("t", partitions=2)
        for partition in range(2):
            world.put("t", *(b"%d" % number for number in range(1_200)), partition=partition)
        seen: dict[int, list[int]] = {0: [], 1: []}

        async def main() -> None:
            dying = await aio.Consumer(
                world.bootstrap, "t", group="g", delivery="at-most-once", session_timeout_ms=6_000
            ).open()
            async for message in dying:
                seen[message.partition].append(message.offset)
                if len(seen[0]) + len(seen[1]) == 10:
                    break
            dying._drop()  # it ends as a process does: nothing is committed, and nobody leaves the group
            async with aio.Consumer(world.bootstrap, "t", group="g", delivery="at-most-once") as another:
                while sum(map(len, seen.values())) < 2 * (1_200 - PORTION) + 10:
                    for batch in await another.poll(1_000):
                        seen[batch.partition] += [record.offset for record in batch.records]
                assert await another.poll(3_000) == []

        world.run(main(), most_seconds=300)
        for offsets in seen.values():
            assert len(set(offsets)) == len(offsets)
            assert set(range(PORTION, 1_200)) <= set(offsets)


def test_at_least_once_a_crash_repeats_what_was_processed_within_the_interval_of_commits() -> None:
    with World() as world:
        world.create_topic("t")
        world.put("t", *(b"%d" % number for number in range(100)))

        async def main() -> tuple[int, int]:
            dying = await aio.Consumer(
                world.bootstrap, "t", group="g", auto_commit_ms=1_000, session_timeout_ms=6_000
            ).open()
            async for message in dying:
                processed = message.offset
                if processed == 57:
                    break
                await asyncio.sleep(0.1)
            dying._drop()
            async with aio.Consumer(world.bootstrap, "t", group="g") as another:
                async for message in another:
                    return processed, message.offset
            raise AssertionError

        processed, repeated_from = world.run(main(), most_seconds=300)
        assert processed - 12 <= repeated_from <= processed  # ten a second, and the time of a commit


def test_what_is_in_hand_when_partitions_are_assigned_comes_again() -> None:
    with World() as world:
        world.create_topic("t")
        world.put("t", *(b"%d" % number for number in range(6)))

        async def main() -> int:
            async with aio.Consumer(world.bootstrap, "t", group="g") as consumer:
                async for message in consumer:
                    if message.offset == 3:
                        break
                await consumer.assign([TopicPartition("t", 0)])
                async for message in consumer:
                    return message.offset
            raise AssertionError

        assert world.run(main(), most_seconds=60) == 3
