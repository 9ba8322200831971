"""Read, process, write in transactions, on a bad network: each input has one result, whatever fails.

Two workers read what was committed of a topic, and write a result for each record; some by `run`, some by `poll` and a
transaction of their own. Handlers fail, calls are cancelled, workers are killed in the middle and come back under the
same transactional id, brokers crash. At the end there is one committed result for each committed input.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import Any

from ottla.client import ClientError, CommitFailed, ProducerFenced, aio
from ottla.testing.world import Odds, World
from tests.client_sim.consuming import GROUP, OPTIONS, TOPIC, UsersMistake, fill, maybe_fail

BAD_NETWORK = Odds(
    error=0.03, cut=0.015, cut_request=0.01, cut_answer=0.02, lose_answer=0.03, swallow_answer=0.01, silence=0.005,
    delay=0.05, delay_answer=0.05, crash=0.005,
)  # fmt: skip
RESULTS = "results"
PARTITIONS = 3
CHAOS_SECONDS = 15


def run(seed: int) -> None:
    with World(seed) as world:
        world.create_topic(TOPIC, partitions=PARTITIONS)
        world.create_topic(RESULTS, partitions=2)
        world.run(fill(world, PARTITIONS))
        inputs = Counter(b"%d@%d" % (record.partition, record.offset) for record in world.committed(TOPIC))
        protocol: dict[str, Any] = world.random.choice(
            [{"assignors": ["range"]}, {"assignors": ["cooperative-sticky"]}, {"group_protocol": "consumer"}]
        )
        options = protocol | {
            "partition_bytes": world.random.choice([200, 1 << 20]),
            "max_poll_interval_ms": world.random.choice([2_000, 300_000]),
        }
        world.faults.at_random(BAD_NETWORK)
        workers = [Worker(world, options, number) for number in range(2)]
        world.run(_work(workers))
        world.faults.clear()
        world.advance(10)
        world.start()
        world.run(Worker(world, options, 0).drain(sum(inputs.values())), most_seconds=600)
        world.advance(60)
        results = Counter(record.value or b"" for record in world.committed(RESULTS))
        lost, doubled = inputs - results, results - inputs
        assert not lost, f"no result of {sorted(lost)}\n{world.trace()}"
        assert not doubled, f"more than one result of {doubled}\n{world.trace()}"
        assert world.leftovers() == [], f"{world.leftovers()}\n{world.trace()}"


async def _work(workers: list[Worker]) -> None:
    await asyncio.gather(*(worker.live() for worker in workers))


class Worker:
    def __init__(self, world: World, options: dict[str, Any], number: int) -> None:
        self._world = world
        self._options = options
        self._number = number
        self._random = Random(f"worker {world.seed} {number}")
        self._is_kind = False

    async def live(self) -> None:
        end = self._world.now() + CHAOS_SECONDS
        while self._world.now() < end:
            await self._life(end)
            await asyncio.sleep(self._random.uniform(0, 1))

    async def drain(self, count: int) -> None:
        """Nothing goes wrong any more: the rest is done, as soon as the group has forgotten those who were killed."""
        self._is_kind = True
        while len(self._world.committed(RESULTS)) < count:
            await self._life(self._world.now() + self._random.choice([5, 100]))

    async def _life(self, end: float) -> None:
        """From the start of the program to its end, which may be sudden."""
        producer = aio.Producer(
            self._world.bootstrap, transactional_id=f"worker-{self._number}", transaction_timeout_ms=10_000,
            linger_ms=0, options=OPTIONS,
        )  # fmt: skip
        consumer = aio.Consumer(
            self._world.bootstrap, TOPIC, group=GROUP, delivery="exactly-once", heartbeat_ms=200,
            session_timeout_ms=6_000, fetch_wait_ms=50, options=OPTIONS, **self._options,
        )  # fmt: skip
        try:
            await producer.open()
            await consumer.open()
            while self._world.now() < end:
                await self._do_something(consumer, producer)
        except (UsersMistake, ClientError):
            pass
        finally:
            if not self._is_kind and self._random.random() < 0.5:
                self._world.network.cut_all()  # a program that is killed says good-bye to nobody
            await consumer.close(self._random.choice([0.0, 30.0]))
            await _close(producer)

    async def _do_something(self, consumer: aio.Consumer, producer: aio.Producer) -> None:
        way = self._random.choice([self._run, self._poll])
        most_seconds = 5.0 if self._is_kind else self._random.choice([0.001, 0.01, 0.1, 0.5, 3])
        try:
            async with asyncio.timeout(most_seconds):
                await way(consumer, producer)
        except TimeoutError:
            pass
        except ProducerFenced:
            raise
        except ClientError:
            if self._random.random() < 0.3:
                raise

    def _send(self, producer: aio.Producer, partition: int, offset: int) -> None:
        value = b"%d@%d" % (partition, offset)
        producer.send(RESULTS, value, partition=self._random.randrange(2))

    async def _run(self, consumer: aio.Consumer, producer: aio.Producer) -> None:
        async def handle(message: Any) -> None:
            self._send(producer, message.partition, message.offset)
            if not self._is_kind:
                if self._random.random() < 0.3:
                    await asyncio.sleep(self._random.choice([0, 0.01, 0.3]))
                maybe_fail(self._random, 0.03)

        try:
            await consumer.run(handle, retries=0, producer=producer)
        except UsersMistake:
            pass  # `run` comes back to the batch by itself

    async def _poll(self, consumer: aio.Consumer, producer: aio.Producer) -> None:
        """As the page on delivery shows it."""
        for _ in range(self._random.randint(1, 5)):
            batches = await consumer.poll(200)
            try:
                async with producer.transaction() as transaction:
                    for batch in batches:
                        for record in batch.records:
                            self._send(producer, batch.partition, record.offset)
                    if not self._is_kind:
                        maybe_fail(self._random, 0.1)
                    await transaction.send_offsets(consumer)
            except BaseException as error:
                consumer.core.rewind_all()  # as `rewind` does, without waiting: it may be cancelled here
                if not isinstance(error, CommitFailed | UsersMistake):
                    raise


async def _close(producer: aio.Producer) -> None:
    try:
        await producer.close(30)
    except ClientError:
        pass
