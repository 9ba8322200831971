"""At most once: committed, then handed out, and nothing comes twice. Each in a simulated world."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from ottla.client import (
    ClientError,
    ClientOptions,
    CommitFailed,
    DeserializationFailed,
    Message,
    ServerError,
    TopicPartition,
    aio,
)
from ottla.testing.world import World
from tests.client.test_consumer_in_a_world import PLACE, both_protocols, consumer, numbers, read
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


async def take_two(one: aio.Consumer) -> list[bytes | None]:
    """Of one portion, which is committed to its end."""
    taken: list[bytes | None] = []
    async for message in one:
        taken.append(message.value)
        if len(taken) == 2:
            break
    return taken


async def leave_by_an_error(world: World, one: aio.Consumer) -> None:
    raise Mistake


async def leave_after_a_commit(world: World, one: aio.Consumer) -> None:
    await one.commit()
    assert (await one.committed([PLACE]))[PLACE].offset == 6


async def leave_while_it_is_paused(world: World, one: aio.Consumer) -> None:
    one.pause(PLACE)
    assert await one.poll(10) == []


async def rewind(world: World, one: aio.Consumer) -> None:
    await one.rewind()
    assert one.position(PLACE) == 2


async def unsubscribe(world: World, one: aio.Consumer) -> None:
    await one.unsubscribe()


async def stay(world: World, one: aio.Consumer) -> None:
    pass


LEAVES = [
    stay, unsubscribe, rewind, leave_by_an_error, leave_after_a_commit, leave_while_it_is_paused,
]  # fmt: skip


class Mistake(Exception):
    pass


@pytest.mark.parametrize("leave", LEAVES)
@both_protocols
def test_who_leaves_in_the_middle_of_a_portion_leaves_the_rest_to_others(
    protocol: dict[str, Any], leave: Callable[[World, aio.Consumer], Awaitable[None]]
) -> None:
    with World() as world:
        world.create_topic(TOPIC)
        world.put(TOPIC, *numbers(0, 6))

        async def main() -> None:
            with suppress(Mistake):
                async with consumer(world, delivery="at-most-once", **protocol) as one:
                    assert await take_two(one) == numbers(0, 2)
                    assert (await one.committed([PLACE]))[PLACE].offset == 6
                    await leave(world, one)
            async with consumer(world, delivery="at-most-once", **protocol) as other:
                assert await read(other, 4) == numbers(2, 6)
                assert await other.poll(100) == []

        world.run(main(), most_seconds=60)
        assert world.leftovers() == []


@pytest.mark.parametrize("leave", [stay, unsubscribe, leave_by_an_error])
@both_protocols
def test_the_same_with_another_portion_on_its_way(
    protocol: dict[str, Any], leave: Callable[[World, aio.Consumer], Awaitable[None]]
) -> None:
    with World() as world:
        world.create_topic(TOPIC, partitions=2)
        world.put(TOPIC, *numbers(0, 6))
        world.put(TOPIC, *numbers(6, 9), partition=1)
        other_place = TopicPartition(TOPIC, 1)

        async def main() -> None:
            def begin(places: list[TopicPartition]) -> None:
                one.pause(other_place)

            with suppress(Mistake):
                async with consumer(world, delivery="at-most-once", on_assigned=begin, **protocol) as one:
                    assert await take_two(one) == numbers(0, 2)
                    one.resume(other_place)
                    await asyncio.sleep(1)  # until it is fetched, too
                    late = world.faults.delay_answer("OffsetCommit", 2.0)
                    while not late.count:
                        assert await one.poll(10) == []
                    await leave(world, one)
            async with consumer(world, delivery="at-most-once", **protocol) as other:
                assert sorted(map(str, await read(other, 7))) == sorted(map(str, numbers(2, 9)))
                assert await other.poll(100) == []

        world.run(main(), most_seconds=60)
        assert world.leftovers() == []


async def stay_away(world: World, one: aio.Consumer) -> None:
    await asyncio.sleep(60)


async def be_cut_off(world: World, one: aio.Consumer) -> None:
    """The group does without it, and it does not know."""
    member_id = one.group_offsets().membership.member_id
    for api in ("Heartbeat", "ConsumerGroupHeartbeat"):
        world.faults.silence(api, times=1_000, when=lambda request: request.member_id == member_id)
    await asyncio.sleep(60)


def message_by_message(one: aio.Consumer, seen: list[bytes | None]) -> Awaitable[None]:
    async def read_them() -> None:
        for _ in range(4):
            async for message in one:
                seen.append(message.value)
                break

    return asyncio.wait_for(read_them(), 20)


async def all_at_once(one: aio.Consumer, seen: list[bytes | None]) -> None:
    seen += [record.value for batch in await one.poll(1_000) for record in batch.records]


@pytest.mark.parametrize("read_on", [message_by_message, all_at_once])
@pytest.mark.parametrize("be_away", [stay_away, be_cut_off])
@both_protocols
def test_who_was_thrown_out_is_handed_out_the_rest_of_its_portion(
    protocol: dict[str, Any], be_away: Callable[..., Awaitable[None]], read_on: Callable[..., Awaitable[None]]
) -> None:
    """It is committed, so the next member begins behind it: else it was lost without any crash."""
    with World() as world:
        world.create_topic(TOPIC)
        world.put(TOPIC, *numbers(0, 6))
        lost: list[TopicPartition] = []

        async def main() -> None:
            patient: dict[str, Any] = {"options": ClientOptions(retry_timeout_ms=600_000)}
            if be_away is stay_away:
                patient["max_poll_interval_ms"] = 2_000
            async with consumer(world, delivery="at-most-once", on_lost=lost.extend, **patient, **protocol) as one:
                seen = await take_two(one)
                async with consumer(world, delivery="at-most-once", **protocol) as other:
                    await be_away(world, one)
                    assert await other.poll(10_000) == []
                    assert other.assignment == {PLACE}
                    assert lost == []
                    await read_on(one, seen)
                    assert seen == numbers(0, 6)
                    world.faults.clear()
                    with suppress(CommitFailed):
                        while not lost:
                            assert await one.poll(1_000) == []
                    world.put(TOPIC, *numbers(6, 9))
                    assert await read(other, 3) == numbers(6, 9)

        world.run(main(), most_seconds=300)


async def pause_and_poll(world: World, one: aio.Consumer) -> None:
    one.pause(PLACE)
    world.faults.clear()
    end = world.now() + 60
    while world.now() < end:
        with suppress(ClientError):
            assert await one.poll(1_000) == []


async def close(world: World, one: aio.Consumer) -> None:
    world.faults.clear()
    await one.close()


@pytest.mark.parametrize("loses", [close, unsubscribe, pause_and_poll, "the answer"])
@both_protocols
def test_what_the_rest_of_a_portion_is_lost_by(protocol: dict[str, Any], loses: Any) -> None:
    """A member that was thrown out can do no more for it."""
    with World() as world:
        world.create_topic(TOPIC)
        world.put(TOPIC, *numbers(0, 6))
        is_answered = loses != "the answer"

        async def main() -> None:
            async with consumer(world, delivery="at-most-once", fetch_wait_ms=1_000, **protocol) as one:
                if is_answered:
                    assert await take_two(one) == numbers(0, 2)
                else:
                    late = world.faults.lose_answer("OffsetCommit")
                    world.faults.error("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", times=1_000)
                    while not late.count:
                        assert await one.poll(10) == []
                await be_cut_off(world, one)
                if is_answered:
                    await loses(world, one)
                world.faults.clear()
                async with consumer(world, delivery="at-most-once", fetch_wait_ms=1_000, **protocol) as other:
                    end = world.now() + 100
                    while world.now() < end:
                        assert await other.poll(1_000) == []
                        if not is_answered:
                            with suppress(ClientError):
                                assert await one.poll(1_000) == []

        world.run(main(), most_seconds=400)


def test_a_record_that_cannot_be_read_does_not_keep_a_lost_partition() -> None:
    def two_fails(value: bytes) -> bytes:
        if value == b"2":
            raise ValueError("two")
        return value

    with World() as world:
        world.create_topic(TOPIC)
        world.put(TOPIC, *numbers(0, 6))
        lost: list[TopicPartition] = []

        async def main() -> None:
            options: dict[str, Any] = {"value": two_fails, "max_poll_interval_ms": 2_000, "on_lost": lost.extend}
            async with consumer(world, delivery="at-most-once", **options) as one:
                assert await take_two(one) == numbers(0, 2)
                await asyncio.sleep(10)
                with pytest.raises(DeserializationFailed):
                    await one.poll(1_000)
                while not lost:
                    assert await one.poll(1_000) == []

        world.run(main(), most_seconds=60)


def test_what_is_committed_already_is_handed_out_beside_a_refused_commit() -> None:
    """Once: then the refusal is told."""
    with World() as world:
        world.create_topic(TOPIC)
        world.put(TOPIC, *numbers(0, 6))

        async def main() -> None:
            async with consumer(world, delivery="at-most-once") as one:
                assert await take_two(one) == numbers(0, 2)
                world.faults.error("OffsetCommit", "GROUP_AUTHORIZATION_FAILED", times=1)
                world.put(TOPIC, *numbers(6, 8))
                assert await read(one, 4) == numbers(2, 6)
                with pytest.raises(ServerError, match="GROUP_AUTHORIZATION_FAILED"):
                    await one.poll(5_000)
                assert await read(one, 2) == numbers(6, 8)

        world.run(main(), most_seconds=60)


@pytest.mark.parametrize("protocol", [{"assignors": ["range"]}, {}, {"group_protocol": "consumer"}])
def test_nor_is_it_lost_when_the_group_gives_the_partition_to_another(protocol: dict[str, Any]) -> None:
    with World() as world:
        world.create_topic(TOPIC, partitions=2)
        for partition in range(2):
            world.put(TOPIC, *numbers(0, 6), partition=partition)

        async def main() -> list[tuple[int, int]]:
            seen: list[tuple[int, int]] = []
            async with consumer(world, delivery="at-most-once", **protocol) as one:
                others = [TopicPartition(TOPIC, index) for index in range(2)]
                while len(await one.committed(others)) < 2:
                    async for message in one:
                        seen.append((message.partition, message.offset))
                        break
                async with consumer(world, delivery="at-most-once", **protocol) as two:
                    await asyncio.sleep(4.0)  # long enough for the group to want one of them, and no longer
                    while len(seen) < 12:
                        for each in (one, two):
                            for batch in await each.poll(200):
                                seen += [(batch.partition, record.offset) for record in batch.records]
            return seen

        assert sorted(world.run(main(), most_seconds=60)) == [
            (index, offset) for index in range(2) for offset in range(6)
        ]


def test_a_message_that_a_handler_fails_at_is_not_handled_again() -> None:
    with World() as world:
        world.create_topic(TOPIC)
        world.put(TOPIC, *numbers(0, 6))

        async def handle(message: Message) -> None:
            handled.append(message.value)
            raise Mistake

        async def main() -> None:
            for _ in range(3):
                with suppress(Mistake):
                    async with consumer(world, delivery="at-most-once") as one:
                        with suppress(Mistake):
                            await one.run(handle, retries=0)
                        await one.run(handle, retries=0)

        handled: list[bytes | None] = []
        world.run(main(), most_seconds=60)
        assert handled == numbers(0, 6)


def test_who_gives_up_unsubscribing_gets_nothing_of_what_is_given_back() -> None:
    with World() as world:
        world.create_topic(TOPIC)
        world.put(TOPIC, *numbers(0, 6))

        async def main() -> None:
            late = world.faults.delay_answer("OffsetCommit", 2.0, times=2)
            seen: list[bytes | None] = []
            async with consumer(world, delivery="at-most-once") as one:
                while not late.count:
                    assert await one.poll(10) == []
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.5):
                        await one.unsubscribe()
                while late.count < 2:
                    seen += [record.value for batch in await one.poll(500) for record in batch.records]
                seen += [record.value for batch in await one.poll(500) for record in batch.records]
            async with consumer(world, delivery="at-most-once") as other:
                seen += await read(other, 6 - len(seen))
                assert await other.poll(500) == []
            assert seen == numbers(0, 6)

        world.run(main(), most_seconds=60)
        assert world.leftovers() == []


@pytest.mark.parametrize("closes_after_seconds", [0.5, 1.9])
def test_who_polls_while_it_is_closed_gets_nothing_of_what_is_given_back(closes_after_seconds: float) -> None:
    with World() as world:
        world.create_topic(TOPIC)
        world.put(TOPIC, *numbers(0, 6))

        async def main() -> None:
            late = world.faults.delay_answer("OffsetCommit", 2.0)
            one = await consumer(world, delivery="at-most-once").open()
            while not late.count:
                assert await one.poll(10) == []
            polling = asyncio.ensure_future(one.poll(10_000))
            await asyncio.sleep(closes_after_seconds)
            await one.close()
            with pytest.raises(RuntimeError, match="closed"):
                await polling
            async with consumer(world, delivery="at-most-once") as other:
                assert await read(other, 6) == numbers(0, 6)

        world.run(main(), most_seconds=60)
        assert world.leftovers() == []
