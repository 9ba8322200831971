"""`run` exactly once: what a failed attempt has sent is not in the results, whatever becomes of its message."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

import ottla.testing
from ottla.client import Consumer, Message, Producer, aio
from ottla.client.consumer.options import GroupProtocol
from ottla.testing.world import World

SOURCE, SINK, DEAD = "source", "sink", "dead"
UNLUCKY = 3


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def world_run(world: World, failures: int, **options: Any) -> list[int]:
    """Handles six records, of which one fails so many times after its result was sent; the offsets as they came."""
    handled: list[int] = []

    async def main() -> None:
        async with (
            aio.Producer(world.bootstrap, transactional_id="x") as producer,
            aio.Consumer(world.bootstrap, SOURCE, group="g", delivery="exactly-once") as consumer,
        ):

            async def handle(message: Message) -> None:
                handled.append(message.offset)
                producer.send(SINK, message.value)
                if message.offset == UNLUCKY and handled.count(UNLUCKY) <= failures:
                    raise ValueError("unlucky")
                if message.offset == 5:
                    consumer.stop()

            async with asyncio.timeout(60):
                await consumer.run(handle, producer=producer, **options)

    world.run(main(), most_seconds=120)
    return handled


async def run_until_committed(
    world: World, consumer: aio.Consumer, producer: aio.Producer, handle: Callable[[Message], Awaitable[None]]
) -> None:
    """Handles until there are results that count."""

    async def stop() -> None:
        while not world.committed(SINK):
            await asyncio.sleep(0.1)
        consumer.stop()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(stop())
        await consumer.run(handle, producer=producer)


@pytest.fixture
def world() -> Iterator[World]:
    with World() as made:
        for topic in (SOURCE, SINK, DEAD):
            made.create_topic(topic)
        made.put(SOURCE, *numbers(6))
        yield made


def test_a_topic_that_is_deleted_holds_up_others_for_a_moment_only(world: World) -> None:
    handled: list[bytes | None] = []
    world.create_topic("gone")

    async def main() -> None:
        async with (
            aio.Admin(world.bootstrap) as admin,
            aio.Producer(world.bootstrap, transactional_id="x") as producer,
            aio.Consumer(world.bootstrap, [SOURCE, "gone"], group="g", delivery="exactly-once") as consumer,
        ):

            async def handle(message: Message) -> None:
                if not handled:
                    await admin.delete_topics(["gone"])
                handled.append(message.value)
                producer.send(SINK, message.value)

            await run_until_committed(world, consumer, producer, handle)

    world.run(main(), most_seconds=30)
    assert handled == numbers(6) * (len(handled) // 6)
    assert [record.value for record in world.committed(SINK)] == numbers(6)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_that_was_thrown_out_learns_it_when_its_offsets_are_refused(
    world: World, protocol: GroupProtocol
) -> None:
    handled: list[int] = []

    async def main() -> None:
        async with (
            aio.Producer(world.bootstrap, transactional_id="x") as producer,
            aio.Consumer(
                world.bootstrap, SOURCE, group="g", delivery="exactly-once", group_protocol=protocol
            ) as consumer,
        ):

            async def handle(message: Message) -> None:
                handled.append(message.offset)
                if len(handled) == 1:  # as an operator would take it out of the group, or a pause
                    member = consumer.core._assignment._member
                    assert member is not None
                    await member._requests.leave(is_closing=True)
                producer.send(SINK, message.value)

            await run_until_committed(world, consumer, producer, handle)

    world.run(main(), most_seconds=30)
    assert handled == [*range(6)] * (len(handled) // 6)
    assert 6 < len(handled) <= 18  # it does not try again and again until its next heartbeat


def test_what_a_failed_attempt_has_sent_is_undone(world: World) -> None:
    handled = world_run(world, 2, retries=2, backoff_ms=1)
    assert handled == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 4, 5]
    assert [record.value for record in world.committed(SINK)] == numbers(6)


def test_a_message_that_is_given_up_leaves_nothing_but_its_dead_letter(world: World) -> None:
    handled = world_run(world, 9, retries=1, backoff_ms=1, dead_letter=DEAD)
    assert handled == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 4, 5]
    assert [record.value for record in world.committed(SINK)] == [b"0", b"1", b"2", b"4", b"5"]
    assert [record.value for record in world.committed(DEAD)] == [b"3"]


def test_without_dead_letters_its_error_is_raised_and_nothing_is_left(world: World) -> None:
    with pytest.raises(ValueError, match="unlucky"):
        world_run(world, 9, retries=1, backoff_ms=1)
    assert not world.committed(SINK)


def test_the_same_without_an_event_loop() -> None:
    handled: list[int] = []
    with ottla.testing.broker() as broker:
        for topic in (SOURCE, SINK, DEAD):
            broker.topic(topic)
        broker.put(SOURCE, *numbers(6))
        with (
            Producer(broker.bootstrap, transactional_id="x") as producer,
            Consumer(broker.bootstrap, SOURCE, group="g", delivery="exactly-once") as consumer,
        ):

            def handle(message: Message) -> None:
                handled.append(message.offset)
                producer.send(SINK, message.value)
                if message.offset == UNLUCKY or (message.offset == 1 and handled.count(1) == 1):
                    raise ValueError("unlucky \udc80")
                if message.offset == 5:
                    consumer.stop()

            consumer.run(handle, producer=producer, retries=1, backoff_ms=1, dead_letter=DEAD)
        assert handled == [0, 1, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 4, 5]
        assert broker.values(SINK) == [b"0", b"1", b"2", b"4", b"5"]
        [letter] = broker.records(DEAD)
        assert letter.value == b"3"
        headers = dict(letter.headers)
        assert headers["dead-letter.attempts"] == b"2"
        assert headers["dead-letter.reason"] == b"unlucky \\udc80"
