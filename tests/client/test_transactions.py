"""Transactions whose block is left in unusual ways: committed whole, or not at all, and its user is told which."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from ottla.client import GroupOffsets, Membership, Offset, ProducerFenced, TopicPartition, TransactionAborted, aio
from ottla.testing.world import World

TOPIC, GROUP = "t", "g"
OFFSETS = GroupOffsets(Membership(GROUP), {TopicPartition(TOPIC, 0): Offset(7)})


@pytest.fixture
def world() -> Iterator[World]:
    with World() as made:
        made.create_topic(TOPIC)
        yield made


async def closed_inside(world: World, error: Exception | None = None) -> None:
    producer = await aio.Producer(world.bootstrap, transactional_id="x").open()
    async with producer.transaction():
        producer.send(TOPIC, b"1")
        await producer.close()
        if error is not None:
            raise error


async def left_early(producer: aio.Producer, sending: list[asyncio.Task[None]]) -> None:
    async with producer.transaction() as transaction:
        producer.send(TOPIC, b"1")
        sending.append(asyncio.create_task(transaction.send_offsets(OFFSETS)))
        await asyncio.sleep(0)


def test_a_producer_that_is_closed_inside_has_aborted_the_transaction(world: World) -> None:
    async def main() -> None:
        with pytest.raises(TransactionAborted, match="the producer was closed in the middle of a transaction"):
            await closed_inside(world)

    world.run(main(), most_seconds=60)
    assert not world.committed(TOPIC)


def test_and_does_not_hide_what_leaves_the_block(world: World) -> None:
    async def main() -> None:
        with pytest.raises(ZeroDivisionError):
            await closed_inside(world, ZeroDivisionError())

    world.run(main(), most_seconds=60)
    assert not world.committed(TOPIC)


def test_a_transaction_needs_a_producer_that_is_open(world: World) -> None:
    """Of one that is closed, nobody would send what is in it, and the end of its block would wait for ever."""

    async def transact(producer: aio.Producer) -> None:
        async with producer.transaction():
            producer.send(TOPIC, b"1")

    async def main() -> None:
        producer = aio.Producer(world.bootstrap, transactional_id="x")
        with pytest.raises(RuntimeError, match="the producer is not open"):
            await transact(producer)
        await producer.open()
        await transact(producer)
        await producer.close()
        for _ in range(2):
            with pytest.raises(RuntimeError, match="this producer is closed"):
                await transact(producer)
            with pytest.raises(RuntimeError, match="this producer is closed"):
                producer.send(TOPIC, b"2")

    world.run(main(), most_seconds=60)
    assert len(world.committed(TOPIC)) == 1


def test_no_transaction_begins_while_the_producer_is_closed(world: World) -> None:
    async def main() -> None:
        producer = await aio.Producer(world.bootstrap, transactional_id="x").open()
        await producer.transaction().__aenter__()
        producer.send(TOPIC, b"1")
        closing = asyncio.create_task(producer.close())
        refused = 0
        while not closing.done():
            with pytest.raises(RuntimeError, match=r"producer is closed|there is a transaction already"):
                await producer.transaction().__aenter__()
            refused += 1
            await asyncio.sleep(0.0001)
        assert refused > 1
        with pytest.raises(RuntimeError, match="this producer is closed"):
            producer.send(TOPIC, b"2")

    world.run(main(), most_seconds=60)
    assert not world.committed(TOPIC)


def test_offsets_that_nobody_has_waited_for_are_not_left_out(world: World) -> None:
    """A commit beside them could come first, and the results would be there without their offsets."""

    async def main() -> None:
        async with aio.Producer(world.bootstrap, transactional_id="x") as producer, aio.Admin(world.bootstrap) as admin:
            sending: list[asyncio.Task[None]] = []
            with pytest.raises(TransactionAborted, match="its offsets were still being sent"):
                await left_early(producer, sending)
            await asyncio.gather(*sending, return_exceptions=True)
            assert await admin.list_group_offsets(GROUP) == {}
            async with producer.transaction() as transaction:
                producer.send(TOPIC, b"2")
                await transaction.send_offsets(OFFSETS)
            assert await admin.list_group_offsets(GROUP) == OFFSETS.offsets

    world.run(main(), most_seconds=60)
    assert [record.value for record in world.committed(TOPIC)] == [b"2"]


async def too_slow(producer: aio.Producer, last: str) -> None:
    """What is done last finds that the coordinator has aborted the transaction long ago."""
    async with producer.transaction() as transaction:
        await producer.send(TOPIC, b"too late")
        await asyncio.sleep(60)
        if last == "send":
            producer.send(TOPIC, b"later still")
        elif last == "send_offsets":
            await transaction.send_offsets(OFFSETS)


@pytest.mark.parametrize("last", ["commit", "send", "send_offsets"])
def test_a_transaction_that_was_open_for_too_long_is_told_as_aborted_and_the_next_one_works(
    world: World, last: str
) -> None:
    async def main() -> None:
        async with aio.Producer(world.bootstrap, transactional_id="x", transaction_timeout_ms=1000) as producer:
            with pytest.raises(TransactionAborted, match="within transaction_timeout_ms=1000"):
                await too_slow(producer, last)
            async with producer.transaction():
                producer.send(TOPIC, b"next")

    world.run(main())
    assert [record.value for record in world.committed(TOPIC)] == [b"next"]


def test_one_that_another_producer_has_ended_is_fenced_when_it_sends_offsets(world: World) -> None:
    async def overtaken(producer: aio.Producer) -> None:
        async with producer.transaction() as transaction:
            await producer.send(TOPIC, b"first")
            async with aio.Producer(world.bootstrap, transactional_id="x"):
                await transaction.send_offsets(OFFSETS)

    async def main() -> None:
        async with aio.Producer(world.bootstrap, transactional_id="x") as producer:
            for _ in range(2):
                with pytest.raises(ProducerFenced):
                    await overtaken(producer)

    world.run(main())
    assert world.committed(TOPIC) == []


def test_who_goes_on_in_a_transaction_whose_offsets_came_too_late_commits_nothing(world: World) -> None:
    async def careless(producer: aio.Producer) -> None:
        async with producer.transaction() as transaction:
            await producer.send(TOPIC, b"too late")
            await asyncio.sleep(60)
            with pytest.raises(TransactionAborted):
                await transaction.send_offsets(OFFSETS)

    async def main() -> None:
        async with aio.Producer(world.bootstrap, transactional_id="x", transaction_timeout_ms=1000) as producer:
            with pytest.raises(TransactionAborted, match="within transaction_timeout_ms=1000"):
                await careless(producer)

    world.run(main())
    assert world.committed(TOPIC) == []
