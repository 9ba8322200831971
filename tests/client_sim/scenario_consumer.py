"""A group of consumers on a bad network: nothing hidden, nothing lost, nothing committed that was not finished.

Users read in every way, stop in the middle, pause, cancel, are slow, fail and come back; brokers crash; transactions
were committed and aborted in what they read. Each keeps its own order. At most once, nothing comes twice, as long as no
user goes back.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from ottla.client import ClientError, TopicPartition, aio
from ottla.testing.world import Odds, World
from tests.client_sim.consuming import GROUP, OPTIONS, TOPIC, History, UsersMistake, fill, maybe_fail, opened

BAD_NETWORK = Odds(
    error=0.04, error_after=0.02, cut=0.02, cut_request=0.01, cut_answer=0.02, lose_answer=0.03, swallow_answer=0.01,
    silence=0.005, delay=0.05, delay_answer=0.05, crash=0.005,
)  # fmt: skip
PARTITIONS = 3
CHAOS_SECONDS = 40


def run(seed: int) -> None:
    with World(seed) as world:
        world.create_topic(TOPIC, partitions=PARTITIONS)
        world.run(fill(world, PARTITIONS))
        history = History(world)
        options = choose(world.random)
        delivery = options["delivery"]
        world.faults.at_random(BAD_NETWORK)
        if delivery == "at-least-once":
            history.watch_commits()
        users = [User(world, history, options, number) for number in range(world.random.choice([1, 2, 2]))]
        world.run(_live(users))
        world.faults.clear()
        world.advance(10)
        if not world.is_up:
            world.start()
        if delivery == "at-least-once":
            history.check_committed(history.finished, "finished")
            world.run(User(world, history, options | {"max_poll_interval_ms": 300_000}, 9).drain(), most_seconds=300)
            history.check_all_seen()
            history.check_committed(history.finished, "finished")
        assert world.leftovers() == [], f"{world.leftovers()}\n{world.trace()}"


def choose(random: Random) -> dict[str, Any]:
    protocol: dict[str, Any] = random.choice(
        [
            {"assignors": ["range"]},
            {"assignors": ["sticky"]},
            {"assignors": ["cooperative-sticky"]},
            {"group_protocol": "consumer"},
            {"group_protocol": "consumer"},
        ]
    )
    return protocol | {
        "delivery": random.choice(["at-least-once", "at-least-once", "at-least-once", "at-most-once"]),
        "auto_commit_ms": random.choice([20, 200, 5_000]),
        "heartbeat_ms": 200,
        "session_timeout_ms": 6_000,
        "max_poll_interval_ms": random.choice([1_000, 300_000]),
        "partition_bytes": random.choice([200, 1 << 20]),
        "buffer_bytes": random.choice([1_000, 64 << 20]),
        "fetch_wait_ms": random.choice([20, 500]),
        "options": OPTIONS,
    }


async def _live(users: list[User]) -> None:
    await asyncio.gather(*(user.live() for user in users))


class User:
    def __init__(self, world: World, history: History, options: dict[str, Any], number: int) -> None:
        self._world = world
        self._history = history
        self._options = options
        self._random = Random(f"user {world.seed} {number}")
        self._in_hand: list[tuple[int, list[int]]] = []

    async def live(self) -> None:
        """Comes and goes until the time is over."""
        end = self._world.now() + CHAOS_SECONDS
        while self._world.now() < end:
            consumer = await opened(self._make)
            self._in_hand.clear()
            try:
                async with consumer:
                    while self._world.now() < end:
                        await self._do_something(consumer)
                        await asyncio.sleep(self._random.choice([0.01, 0.1]))
                        maybe_fail(self._random, 0.03)
                    self._finish()
            except (UsersMistake, ClientError):
                self._in_hand.clear()
            if self._options["delivery"] == "at-least-once":
                self._history.check_committed(self._history.finished, "finished")
            await asyncio.sleep(self._random.uniform(0, 1))

    def _make(self) -> aio.Consumer:
        return aio.Consumer(self._world.bootstrap, TOPIC, group=GROUP, **self._options)

    async def _do_something(self, consumer: aio.Consumer) -> None:
        ways = [
            self._poll, self._read_messages, self._read_batches, self._pause, self._dawdle, self._commit,
            self._resubscribe,
        ]  # fmt: skip
        if not self._is_at_most_once:
            ways += [self._run, self._go_back]
        try:
            async with asyncio.timeout(self._random.choice([0.001, 0.05, 0.5, 3])):
                await self._random.choice(ways)(consumer)
        except TimeoutError:
            pass
        except ClientError:
            if self._random.random() < 0.3:
                raise

    def _finish(self) -> None:
        for partition, offsets in self._in_hand:
            self._history.finish(partition, offsets)
        self._in_hand.clear()

    @property
    def _is_at_most_once(self) -> bool:
        return bool(self._options["delivery"] == "at-most-once")

    def _take(self, partition: int, records: list[Any]) -> None:
        offsets = [record.offset for record in records]
        assert offsets == sorted(offsets)
        if self._is_at_most_once:
            self._history.check_new(partition, offsets)
        self._history.give(partition, records)
        self._in_hand.append((partition, offsets))

    async def _poll(self, consumer: aio.Consumer) -> None:
        for _ in range(self._random.randint(1, 5)):
            self._finish()
            for batch in await consumer.poll(self._random.choice([0, 10, 300])):
                self._take(batch.partition, batch.records)

    async def _read_messages(self, consumer: aio.Consumer) -> None:
        most = self._random.randint(1, 15)
        self._finish()
        async for message in consumer:
            self._take(message.partition, [message])
            most -= 1
            if not most:
                return
            if self._random.random() < 0.2:
                await asyncio.sleep(self._random.choice([0, 0.01, 0.5]))
            self._finish()

    async def _read_batches(self, consumer: aio.Consumer) -> None:
        most = self._random.randint(1, 5)
        self._finish()
        async for batch in consumer.batches():
            self._take(batch.partition, batch.records)
            most -= 1
            if not most:
                return
            self._finish()

    async def _run(self, consumer: aio.Consumer) -> None:
        """A handler that fails now and then: what it failed at comes again."""
        most = self._random.randint(1, 10)

        async def handle(message: Any) -> None:
            nonlocal most
            self._take(message.partition, [message])
            await asyncio.sleep(self._random.choice([0, 0, 0.01, 0.3]))
            most -= 1
            if not most or self._random.random() < 0.1:
                self._in_hand.clear()
                raise UsersMistake
            self._finish()

        self._finish()
        try:
            await consumer.run(handle, retries=0)
        except UsersMistake:
            pass
        finally:
            self._in_hand.clear()

    async def _pause(self, consumer: aio.Consumer) -> None:
        for one in sorted(consumer.assignment):
            (consumer.pause if self._random.random() < 0.4 else consumer.resume)(one)

    async def _dawdle(self, consumer: aio.Consumer) -> None:
        await asyncio.sleep(self._random.choice([0, 0.1, 2.5]))

    async def _go_back(self, consumer: aio.Consumer) -> None:
        """To what is committed, or to the beginning, while fetches are on their way."""
        self._in_hand.clear()
        if self._random.random() < 0.5:
            await consumer.rewind()
        for one in sorted(consumer.assignment):
            await consumer.seek(one, 0)

    async def _resubscribe(self, consumer: aio.Consumer) -> None:
        """Leaves in the middle, and comes back as another member, if it is not cancelled in between."""
        if self._random.random() < 0.3:
            self._in_hand.clear()  # what is not finished by now is nobody's
            await consumer.unsubscribe()
            await asyncio.sleep(self._random.choice([0, 0, 0.5]))
        await consumer.subscribe(TOPIC)

    async def _commit(self, consumer: aio.Consumer) -> None:
        self._finish()  # that is what it says
        await consumer.commit()

    async def drain(self) -> None:
        """Read on until everything is seen, or nothing comes any more."""
        consumer = await opened(self._make)
        async with consumer:
            idle_since = self._world.now()
            while self._world.now() - idle_since < 60:
                self._finish()
                batches = await consumer.poll(500)
                for batch in batches:
                    self._take(batch.partition, batch.records)
                    idle_since = self._world.now()
                lags = consumer.lag()  # of those that have news
                if not batches and lags.keys() == _all() and not any(lags.values()):
                    break
            self._finish()


def _all() -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(TOPIC, index) for index in range(PARTITIONS))
