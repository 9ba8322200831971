"""Whatever call of a consumer its user cancels, at whatever moment: nothing is lost, hidden or left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ottla.client import TopicPartition, aio
from ottla.testing.world import World, every_cancellation
from tests.client_sim.consuming import GROUP, TOPIC, committed_offsets

PARTITIONS = 2
RECORDS = 6  # of each partition
PLACE = TopicPartition(TOPIC, 0)
PROTOCOLS: dict[str, dict[str, Any]] = {
    "classic": {"assignors": ["range"]},
    "cooperative": {},
    "consumer": {"group_protocol": "consumer"},
}


class User:
    """Keeps what it was given, and reads on until it has seen all."""

    def __init__(self, world: World, **options: Any) -> None:
        self.world = world
        self.seen: set[tuple[int, int]] = set()
        self.told: list[str] = []
        self.consumer = aio.Consumer(
            world.bootstrap, TOPIC, group=GROUP, fetch_wait_ms=20, heartbeat_ms=200, auto_commit_ms=50,
            on_assigned=self._assigned, **options,
        )  # fmt: skip

    async def _assigned(self, partitions: list[TopicPartition]) -> None:
        await asyncio.sleep(0)
        self.told += [str(one) for one in partitions]

    async def poll(self) -> None:
        for batch in await self.consumer.poll(1_000):
            self.seen |= {(batch.partition, record.offset) for record in batch.records}

    async def iterate(self) -> None:
        count = 0
        async for message in self.consumer:
            self.seen.add((message.partition, message.offset))
            count += 1
            if count == 3:
                return

    async def open_and_poll(self) -> None:
        await self.consumer.open()
        await self.poll()

    async def read_all(self) -> None:
        while len(self.seen) < PARTITIONS * RECORDS:
            await self.poll()

    async def commit(self) -> None:
        await self.consumer.commit()

    async def seek(self) -> None:
        await self.consumer.seek(PLACE, 0)

    async def rewind(self) -> None:
        await self.consumer.rewind()

    async def subscribe(self) -> None:
        await self.consumer.subscribe([TOPIC, "other"])
        await self.poll()

    async def resubscribe(self) -> None:
        await self.consumer.unsubscribe()
        await self.consumer.subscribe(TOPIC)
        await self.poll()


def filled(world: World) -> None:
    world.create_topic(TOPIC, partitions=PARTITIONS)
    world.create_topic("other")
    for partition in range(PARTITIONS):
        world.put(TOPIC, *(b"%d" % number for number in range(RECORDS)), partition=partition)


def check_commits(user: User) -> None:
    for place, committed in committed_offsets(user.world).items():
        if place.topic == TOPIC:
            missing = {(place.partition, offset) for offset in range(committed)} - user.seen
            assert not missing, f"committed, and never handed out: {missing}"


def every_moment_of(call: Callable[[User], Awaitable[None]], *, is_read_before: bool, **options: Any) -> int:
    """Cancel the call at each moment of it; then all is read, and what is committed was handed out."""

    def scenario(k: int) -> bool:
        with World(5) as world:
            filled(world)
            user = User(world, **options)
            if call is not User.open_and_poll:
                world.run(user.consumer.open())
            if is_read_before:
                world.run(user.iterate())

            async def work() -> None:
                await call(user)

            is_over = world.run_cancelled(work(), k)
            if options.get("delivery") != "at-most-once":  # what that has committed comes with the next call
                check_commits(user)
            world.run(_end_well(user), most_seconds=100)
            assert len(user.seen) == PARTITIONS * RECORDS
            world.advance(60)
            assert world.leftovers() == []
            committed = committed_offsets(world)
            assert [committed[TopicPartition(TOPIC, index)] for index in range(PARTITIONS)] == [RECORDS] * PARTITIONS
            return is_over

    return every_cancellation(scenario)


async def _end_well(user: User) -> None:
    await user.consumer.open()
    if not user.consumer.core.is_of_group:  # the call was cancelled between its two halves
        await user.consumer.subscribe(TOPIC)
    await user.read_all()
    await user.consumer.close()


@pytest.mark.parametrize("options", PROTOCOLS.values(), ids=PROTOCOLS)
def test_opening_and_the_first_poll(options: dict[str, Any]) -> None:
    assert every_moment_of(User.open_and_poll, is_read_before=False, **options) > 10


@pytest.mark.parametrize(
    "options", [*PROTOCOLS.values(), {"delivery": "at-most-once"}], ids=[*PROTOCOLS, "at-most-once"]
)
@pytest.mark.parametrize("call", [User.poll, User.iterate], ids=["poll", "iteration"])
def test_reading(call: Callable[[User], Awaitable[None]], options: dict[str, Any]) -> None:
    assert every_moment_of(call, is_read_before=False, **options) > 5


@pytest.mark.parametrize(
    "call", [User.commit, User.seek, User.rewind, User.subscribe, User.resubscribe],
    ids=["commit", "seek", "rewind", "subscribe", "resubscribe"],
)  # fmt: skip
@pytest.mark.parametrize("options", PROTOCOLS.values(), ids=PROTOCOLS)
def test_what_is_not_reading(call: Callable[[User], Awaitable[None]], options: dict[str, Any]) -> None:
    assert every_moment_of(call, is_read_before=True, **options) >= 2


@pytest.mark.parametrize("options", PROTOCOLS.values(), ids=PROTOCOLS)
def test_closing_leaves_nothing_behind(options: dict[str, Any]) -> None:
    def scenario(k: int) -> bool:
        with World(5) as world:
            filled(world)
            user = User(world, **options)
            world.run(user.consumer.open())
            world.run(user.iterate())
            begun = False

            async def close() -> None:
                nonlocal begun
                begun = True
                await user.consumer.close()

            is_over = world.run_cancelled(close(), k)
            if not begun:
                world.run(user.consumer.close())
            check_commits(user)
            world.advance(60)
            assert world.leftovers() == []
            return is_over

    assert every_cancellation(scenario) > 3
