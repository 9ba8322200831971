"""At most once: committed, then handed out, and nothing comes twice. Each in a simulated world."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ottla.client import TopicPartition
from ottla.testing.world import World
from tests.client.test_consumer_in_a_world import PLACE, consumer, numbers, read
from tests.client_sim.consuming import TOPIC


def test_at_most_once_hands_out_nothing_of_what_was_paused_while_it_was_committed() -> None:
    with World() as world:
        world.create_topic(TOPIC)
        world.put(TOPIC, b"one")
        world.faults.delay("OffsetCommit", 1)

        async def main() -> None:
            async with consumer(world, delivery="at-most-once", on_assigned=assigned.extend) as one:
                polling = asyncio.ensure_future(one.poll(3_000))
                while not assigned:
                    await asyncio.sleep(0.1)
                await asyncio.sleep(0.5)
                one.pause(PLACE)
                assert await polling == []
                one.resume(PLACE)
                assert await read(one, 1) == [b"one"]

        assigned: list[TopicPartition] = []
        world.run(main())


def test_at_most_once_does_not_wait_longer_for_a_commit_than_its_user_does() -> None:
    """The commit goes on meanwhile, and what it was for is handed out, once, when it is there."""
    with World() as world:
        world.create_topic(TOPIC)
        world.put(TOPIC, *numbers(0, 6))

        async def main() -> None:
            late = world.faults.delay_answer("OffsetCommit", 2.5)
            async with consumer(world, delivery="at-most-once") as one:
                while not late.count:
                    assert await one.poll(10) == []
                started = world.now()
                assert await one.poll(1_000) == []
                assert await one.poll(1_000) == []
                assert world.now() - started < 2.1
                [batch] = await one.poll(1_000)
                assert [record.offset for record in batch.records] == list(range(6))
                assert await one.poll(1_000) == []
                assert (await one.committed([PLACE]))[PLACE].offset == 6

        world.run(main(), most_seconds=60)


@pytest.mark.parametrize("protocol", [{"assignors": ["range"]}, {}, {"group_protocol": "consumer"}])
def test_what_is_committed_at_most_once_is_handed_out_before_it_is_given_up(protocol: dict[str, Any]) -> None:
    with World() as world:
        world.create_topic(TOPIC)
        world.put(TOPIC, *numbers(0, 6))

        async def main() -> None:
            late = world.faults.delay_answer("OffsetCommit", 2.0)
            async with consumer(world, delivery="at-most-once", **protocol) as one:
                while not late.count:
                    assert await one.poll(10) == []
                async with consumer(world, delivery="at-most-once", **protocol):
                    await asyncio.sleep(4.0)  # long enough for the group to want the partition, and no longer
                    [batch] = await one.poll(1_000)
                    assert [record.offset for record in batch.records] == list(range(6))

        world.run(main(), most_seconds=60)


def test_a_commit_at_most_once_brings_nothing_twice() -> None:
    """What is in hand was committed to its end: to call the first of it processed takes nothing of that back."""
    with World() as world:
        world.create_topic(TOPIC)
        world.put(TOPIC, *numbers(0, 6))

        async def main() -> None:
            async with consumer(world, delivery="at-most-once") as one:
                assert (await anext(aiter(one))).offset == 0
                await one.commit()
                assert (await one.committed([PLACE]))[PLACE].offset == 6
                await one.seek(PLACE, 2)
                await one.commit()
                assert (await one.committed([PLACE]))[PLACE].offset == 2

        world.run(main(), most_seconds=60)


def test_nor_does_one_while_another_is_on_its_way() -> None:
    with World() as world:
        world.create_topic(TOPIC)
        world.put(TOPIC, *numbers(0, 6))

        async def main() -> None:
            late = world.faults.delay_answer("OffsetCommit", 2.0)
            async with consumer(world, delivery="at-most-once") as one:
                while not late.count:
                    assert await one.poll(10) == []
                await one.commit()
                assert await read(one, 6) == numbers(0, 6)
                assert (await one.committed([PLACE]))[PLACE].offset == 6

        world.run(main(), most_seconds=60)


@pytest.mark.parametrize("ends", ["close", "unsubscribe"])
def test_what_is_committed_and_never_handed_out_is_given_back(ends: str) -> None:
    with World() as world:
        world.create_topic(TOPIC)
        world.put(TOPIC, *numbers(0, 6))

        async def main() -> None:
            late = world.faults.delay_answer("OffsetCommit", 2.0)
            async with consumer(world, delivery="at-most-once") as one:
                while not late.count:
                    assert await one.poll(10) == []
                await (one.close() if ends == "close" else one.unsubscribe())
            async with consumer(world, delivery="at-most-once") as other:
                assert await read(other, 6) == numbers(0, 6)

        world.run(main(), most_seconds=60)
        assert world.leftovers() == []
