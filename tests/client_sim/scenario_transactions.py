"""Transactions on a bad network: all or nothing, and nobody is told that something failed which is committed.

Some end by an exception, some are cancelled at any moment, some coordinators answer too late. What a user is told is
kept with the numbers that it sent; then the markers in the log say what is true.
"""

from __future__ import annotations

import asyncio
from unittest import mock

from ottla.client import ClientError, ClientOptions, ProducerFenced, TransactionUnresolved, aio
from ottla.client.network.cluster import Cluster
from ottla.testing.world import Odds, World

BAD_NETWORK = Odds(
    error=0.04, cut=0.02, cut_request=0.02, cut_answer=0.03, lose_answer=0.05, swallow_answer=0.02, silence=0.01,
    delay=0.05, delay_answer=0.05, crash=0.01,
)  # fmt: skip
PARTITIONS = 3
OPTIONS = ClientOptions(request_timeout_ms=3_000, retry_timeout_ms=10_000)


class OwnMistake(Exception):
    """Of the user, in the middle of a transaction."""


class History:
    def __init__(self) -> None:
        self.committed: list[int] = []
        self.aborted: list[int] = []
        self.unknown: list[int] = []
        self.sizes: dict[int, int] = {}


def run(seed: int) -> None:
    with World(seed, odds=BAD_NETWORK, settings={"transaction.max.timeout.ms": "900000"}) as world:
        version = world.random.choice([1, 2])
        world.create_topic("t", partitions=PARTITIONS)
        history = History()
        with mock.patch.object(Cluster, "features", _features(version)):
            world.run(_work(world, history))
        world.faults.clear()
        world.advance(5)
        _check(world, history)


def _features(version: int) -> object:
    async def features(self: Cluster) -> dict[str, int]:
        await self._any_connection()
        return {"transaction.version": version}

    return features


async def _work(world: World, history: History) -> None:
    while True:
        producer = aio.Producer(
            world.bootstrap, transactional_id="writer", transaction_timeout_ms=600_000, options=OPTIONS
        )
        try:
            await producer.open()
            break
        except ClientError:
            await asyncio.sleep(1)
    for number in range(world.random.randint(4, 12)):
        try:
            await _one(world, producer, number, history)
        except ProducerFenced:
            break
    # A last one that succeeds: everything before is settled by then.
    world.faults.clear()
    number = 1000
    while number not in history.committed and number < 1010:
        number += 1
        try:
            await _one(world, producer, number, history, is_kind=True)
        except ProducerFenced:
            break
        if number in history.committed:
            break
    await producer.close(30)


async def _one(world: World, producer: aio.Producer, number: int, history: History, *, is_kind: bool = False) -> None:
    count = world.random.randint(1, 8)
    outcome = "commit" if is_kind else world.random.choice(["commit", "commit", "commit", "raise", "cancel"])
    history.sizes[number] = count
    task = asyncio.ensure_future(_transaction(world, producer, number, count, raises=outcome == "raise"))
    if outcome == "cancel":
        await asyncio.sleep(world.random.choice([0, 0.001, 0.005, 0.01, 0.05, 1, 5]))
        task.cancel()
    try:
        await task
        history.committed.append(number)
    except OwnMistake:
        history.aborted.append(number)
    except (TransactionUnresolved, asyncio.CancelledError):
        history.unknown.append(number)
    except ProducerFenced as error:
        (history.unknown if "not known" in str(error) else history.aborted).append(number)
        raise
    except ClientError:
        history.aborted.append(number)


async def _transaction(world: World, producer: aio.Producer, number: int, count: int, *, raises: bool) -> None:
    async with producer.transaction():
        for index in range(count):
            producer.send("t", b"%d-%d" % (number, index), partition=index % PARTITIONS)
            if world.random.random() < 0.2:
                await asyncio.sleep(0.01)
        if raises:
            raise OwnMistake


def _check(world: World, history: History) -> None:
    assert world.leftovers() == [], f"{world.leftovers()}\n{world.trace()}"
    seen: dict[int, list[int]] = {}
    order: dict[int, list[tuple[int, int]]] = {}
    for record in world.committed("t"):
        number, index = (int(part) for part in (record.value or b"").split(b"-"))
        seen.setdefault(number, []).append(index)
        order.setdefault(record.partition, []).append((number, index))
    for number, indexes in seen.items():
        whole = list(range(history.sizes[number]))
        assert sorted(indexes) == whole, f"transaction {number} is torn or doubled: {indexes}\n{world.trace()}"
    for partition, places in order.items():
        assert places == sorted(places), f"partition {partition} is out of order: {places}\n{world.trace()}"
    assert not set(history.committed) - set(seen), f"lost {set(history.committed) - set(seen)}\n{world.trace()}"
    wrong = set(history.aborted) & set(seen)
    assert not wrong, f"told to have failed, and committed: {wrong}\n{world.trace()}"
