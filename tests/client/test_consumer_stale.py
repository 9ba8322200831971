"""Answers that come when the consumer is elsewhere by now: none of them moves it, and nothing is committed by them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ottla.client import ClientOptions, CommitFailed, TopicPartition, aio
from ottla.testing.world import World, every_cancellation

PLACE = TopicPartition("t", 0)
PATIENT = ClientOptions(request_timeout_ms=20_000, retry_timeout_ms=60_000)
PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {"assignors": ["range"]},
    "cooperative": {},
    "consumer": {"group_protocol": "consumer"},
}
protocols = pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS.keys())


def filled(world: World, partitions: int = 1) -> None:
    world.create_topic("t", partitions=partitions)
    for partition in range(partitions):
        world.put("t", *(b"%d" % number for number in range(6)), partition=partition)


async def offsets_of(consumer: aio.Consumer) -> list[int]:
    while True:
        for batch in await consumer.poll(1_000):
            return [record.offset for record in batch.records]


def test_an_offset_that_was_not_there_says_nothing_of_the_one_sought_since() -> None:
    with World() as world:
        filled(world)

        async def main() -> list[int]:
            async with aio.Consumer(world.bootstrap, options=PATIENT) as consumer:
                await consumer.assign([PLACE])
                await offsets_of(consumer)
                late = world.faults.delay_answer("Fetch", 2.0)
                await consumer.seek(PLACE, 1_000)
                waiting = asyncio.ensure_future(consumer.poll(1_000))
                while not late.count:
                    await asyncio.sleep(0.01)
                await waiting
                await consumer.seek(PLACE, 6)  # nothing is there yet
                await consumer.poll(3_000)
                world.put("t", b"6")
                return await offsets_of(consumer)

        assert world.run(main()) == [6]


def test_records_that_were_asked_for_before_are_not_handed_out() -> None:
    with World() as world:
        filled(world)

        async def main() -> list[int]:
            async with aio.Consumer(world.bootstrap, options=PATIENT) as consumer:
                late = world.faults.delay_answer("Fetch", 2.0)
                await consumer.assign([PLACE])
                while not late.count:
                    await asyncio.sleep(0.01)
                await consumer.seek(PLACE, 4)
                return await offsets_of(consumer)

        assert world.run(main()) == [4, 5]


def test_a_rewind_goes_to_what_is_committed_when_it_is_asked_for() -> None:
    """Another one was asked for before, and its answer is late: somebody has committed since."""
    with World() as world:
        filled(world)

        async def main() -> list[int]:
            async with (
                aio.Consumer(world.bootstrap, group="g", auto_commit=False, options=PATIENT) as consumer,
                aio.Consumer(world.bootstrap, group="g", auto_commit=False, options=PATIENT) as other,
            ):
                await other.assign([PLACE])
                await consumer.assign([PLACE])
                await consumer.commit({PLACE: 1})
                await offsets_of(consumer)
                late = world.faults.delay_answer("OffsetFetch", 2.0)
                rewinding = asyncio.ensure_future(consumer.rewind())
                while not late.count:
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.1)
                await other.commit({PLACE: 4})
                rewinding.cancel()
                await asyncio.gather(rewinding, return_exceptions=True)
                await consumer.rewind()
                return await offsets_of(consumer)

        assert world.run(main()) == [4, 5]


@protocols
def test_what_is_lost_while_it_is_committed_is_another_members_to_commit(protocol: dict[str, Any]) -> None:
    """The commit is tried again and again; meanwhile its member is thrown out, and joins under another generation."""
    with World() as world:
        filled(world, partitions=2)
        sent: list[tuple[str, int]] = []
        lost: list[list[TopicPartition]] = []

        def note(request: Any) -> bool:
            sent.append((request.member_id, request.generation_id_or_member_epoch))
            return True

        async def main() -> None:
            async with aio.Consumer(
                world.bootstrap, "t", group="g", auto_commit=False, heartbeat_ms=100, on_lost=lost.append,
                options=PATIENT, **protocol,
            ) as consumer:  # fmt: skip
                await offsets_of(consumer)
                world.faults.error("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", times=1 << 30, when=note)
                committing = asyncio.ensure_future(consumer.commit())
                while not sent:
                    await asyncio.sleep(0.01)
                code = "FENCED_MEMBER_EPOCH" if "group_protocol" in protocol else "UNKNOWN_MEMBER_ID"
                world.faults.error("ConsumerGroupHeartbeat" if "group_protocol" in protocol else "Heartbeat", code)
                while not lost:
                    await consumer.poll(100)
                with pytest.raises(CommitFailed):
                    await committing
                count = len(sent)
                while not consumer.assignment:
                    await consumer.poll(100)
                assert len(sent) == count

        world.run(main(), most_seconds=200)
        assert len(set(sent)) == 1, f"committed as {set(sent)}"


@protocols
def test_who_unsubscribes_is_told_and_is_out_of_the_group_whenever_it_is_cancelled(protocol: dict[str, Any]) -> None:
    def scenario(k: int) -> bool:
        with World(5) as world:
            filled(world)
            told: list[list[TopicPartition]] = []
            consumer = aio.Consumer(
                world.bootstrap, "t", group="g", heartbeat_ms=100, on_revoked=told.append, **protocol
            )

            async def begin() -> None:
                await consumer.open()
                await offsets_of(consumer)
                await consumer.poll(0)

            async def leave() -> None:
                await consumer.unsubscribe()

            world.run(begin())
            is_over = world.run_cancelled(leave(), k + 1)  # before the first it has not begun
            world.advance(2)  # the session would last for 45
            assert told == [[PLACE]]
            assert consumer.assignment == frozenset()

            async def others() -> int:
                async with aio.Admin(world.bootstrap) as admin:
                    [group] = await admin.describe_groups(["g"])
                    return len(group.members)

            assert world.run(others()) == 0
            world.run(consumer.close())
            world.advance(60)
            assert world.leftovers() == []
            return is_over

    assert every_cancellation(scenario) > 2


def test_what_is_in_hand_when_it_is_unsubscribed_comes_again() -> None:
    with World() as world:
        filled(world)

        async def main() -> int:
            async with aio.Consumer(world.bootstrap, "t", group="g") as consumer:
                async for message in consumer:
                    if message.offset == 3:
                        break
                await consumer.unsubscribe()
            async with aio.Consumer(world.bootstrap, "t", group="g") as another:
                return (await offsets_of(another))[0]

        assert world.run(main()) == 3


@protocols
def test_offsets_of_what_the_user_does_not_know_yet_are_not_sent(protocol: dict[str, Any]) -> None:
    """Where it begins is known before its user is told; until then another may get it, and commit."""
    with World() as world:
        filled(world)
        known: list[dict[TopicPartition, Any]] = []

        async def main() -> None:
            async with aio.Consumer(
                world.bootstrap, "t", group="g", delivery="exactly-once", on_assigned=note, **protocol
            ) as consumer:
                users.append(consumer)
                await offsets_of(consumer)
                known.append(dict(consumer.group_offsets().offsets))

        users: list[aio.Consumer] = []

        def note(partitions: list[TopicPartition]) -> None:
            [consumer] = users
            assert consumer.position(partitions[0]) == 0
            known.append(dict(consumer.group_offsets().offsets))

        world.run(main())
        assert [[place.partition for place in offsets] for offsets in known] == [[], [0]]
