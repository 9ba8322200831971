"""An idempotent producer on a bad network: nothing lost, nothing doubled, order kept, every record decided."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from ottla.client import ClientError, DeliveryFailed, Sent, aio
from ottla.testing.world import Odds, World

BAD_NETWORK = Odds(
    error=0.04, error_after=0.02, cut=0.02, cut_request=0.02, cut_answer=0.02, lose_answer=0.04, swallow_answer=0.01,
    silence=0.005, delay=0.05, delay_answer=0.05, crash=0.01,
)  # fmt: skip
PARTITIONS = 3


def run(seed: int) -> None:
    with World(seed, odds=BAD_NETWORK) as world:
        world.create_topic("t", partitions=PARTITIONS)
        sent: list[Sent] = []
        world.run(_send(world, sent))
        world.faults.clear()
        world.advance(5)
        _check(world, sent)


async def _send(world: World, sent: list[Sent]) -> None:
    count = world.random.randint(20, 120)
    while True:
        try:
            producer = await aio.Producer(world.bootstrap, linger_ms=world.random.choice([0, 5, 20])).__aenter__()
            break
        except ClientError:
            await asyncio.sleep(1)
    for number in range(count):
        sent.append(producer.send("t", b"%d" % number, partition=number % PARTITIONS))
        if world.random.random() < 0.3:
            await asyncio.sleep(world.random.choice([0, 0.001, 0.02, 0.5]))
    try:
        await producer.close()
    except DeliveryFailed:
        pass


def _check(world: World, sent: list[Sent]) -> None:
    assert world.leftovers() == [], world.trace()
    acknowledged, failed = set(), set()
    for number, one in enumerate(sent):
        assert one.is_done, f"record {number} was never decided\n{world.trace()}"
        try:
            one.result(0)
            acknowledged.add(number)
        except ClientError:
            failed.add(number)
    by_partition: defaultdict[int, list[int]] = defaultdict(list)
    for record in world.written("t"):
        by_partition[record.partition].append(int(record.value or b""))
    for partition, numbers in by_partition.items():
        assert numbers == sorted(set(numbers)), f"partition {partition} has {numbers}\n{world.trace()}"
    written = {number for numbers in by_partition.values() for number in numbers}
    assert not acknowledged - written, f"lost {acknowledged - written}\n{world.trace()}"
