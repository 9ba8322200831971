"""A consumer that leaves its group: what its user is told, and what becomes of commits that are on their way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ottla.client import CommitFailed, TopicPartition, aio
from ottla.testing.world import World
from tests.client.test_consumer_in_a_world import both_protocols, consumer, numbers, read
from tests.client_sim.consuming import TOPIC, committed_offsets

PLACE = TopicPartition(TOPIC, 0)
Told = list[tuple[str, list[TopicPartition]]]


def listeners(told: Told) -> dict[str, Any]:
    def listener(what: str) -> Any:
        return lambda partitions: told.append((what, partitions))

    return {f"on_{what}": listener(what) for what in ("assigned", "revoked", "lost")}


async def leave(one: aio.Consumer, how: str) -> None:
    if how == "assign":
        await one.assign([])
    else:
        await getattr(one, how)()


@both_protocols
@pytest.mark.parametrize("how", ["close", "unsubscribe", "assign"])
def test_a_commit_whose_turn_comes_after_its_consumer_has_left_is_none(how: str, protocol: dict[str, Any]) -> None:
    """As nobody's, it would be taken by a group that is empty then, whatever others have committed meanwhile."""
    with World() as world:
        world.create_topic(TOPIC)
        world.put(TOPIC, *numbers(0, 10))

        async def main() -> list[object]:
            one = consumer(world, auto_commit=False, **protocol)
            await one.open()
            await read(one, 10)
            world.faults.delay("OffsetCommit", 1.0)
            commits = [asyncio.create_task(one.commit({PLACE: offset})) for offset in (7, 3)]
            await asyncio.sleep(0.1)
            await leave(one, how)
            ended = await asyncio.gather(*commits, return_exceptions=True)
            await one.close()
            return list(ended)

        first, second = world.run(main())
        assert first is None
        assert isinstance(second, RuntimeError if how == "close" else CommitFailed)
        assert committed_offsets(world) == {PLACE: 7}


@both_protocols
@pytest.mark.parametrize("how", ["close", "unsubscribe", "assign"])
def test_nobody_is_told_to_give_up_what_he_was_not_told_of(how: str, protocol: dict[str, Any]) -> None:
    with World() as world:
        world.create_topic(TOPIC)
        world.faults.silence("OffsetFetch", times=100)  # so it is not known where to begin
        told: Told = []

        async def main() -> None:
            one = consumer(world, **protocol, **listeners(told))
            await one.open()
            await one.poll(2_000)
            await leave(one, how)
            await one.close(1)

        world.run(main())
        assert told == []


@both_protocols
@pytest.mark.parametrize("how", ["close", "unsubscribe", "assign"])
def test_who_leaves_is_told_once_and_at_any_moment(how: str, protocol: dict[str, Any]) -> None:
    with World() as world:
        world.create_topic(TOPIC)
        told: Told = []

        async def main() -> None:
            one = consumer(world, **protocol, **listeners(told))
            await one.open()
            while not told:  # and then no more: that it was told is noticed by the next call only
                await one.poll(100)
            await leave(one, how)
            await one.close()

        world.run(main())
        assert told == [("assigned", [PLACE]), ("revoked", [PLACE])]


@both_protocols
def test_what_was_lost_when_it_is_closed_is_told_as_lost(protocol: dict[str, Any]) -> None:
    with World() as world:
        world.create_topic(TOPIC)
        told: Told = []

        async def main() -> None:
            one = consumer(world, max_poll_interval_ms=1_000, **protocol, **listeners(told))
            await one.open()
            while not told:
                await one.poll(100)
            await one.poll(100)
            await asyncio.sleep(5)  # it leaves, for it is taken to be stuck
            await one.close()

        world.run(main())
        assert told == [("assigned", [PLACE]), ("lost", [PLACE])]
