"""Brokers that say what no broker says: answers with bytes garbled, rows left out, numbers that cannot be.

Nothing hangs, nothing is taken for done that was not, and what is raised is a ClientError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.client import (
    LATEST,
    ClientError,
    ClientOptions,
    MalformedAnswer,
    ServerError,
    TopicPartition,
    TransactionUnresolved,
    UnsupportedByBroker,
    aio,
)
from ottla.client.network.cluster import Cluster
from ottla.testing.world import World

IMPATIENT = ClientOptions(request_timeout_ms=1_000, retry_timeout_ms=3_000)
APIS = (
    "ApiVersions", "Metadata", "InitProducerId", "Produce", "FindCoordinator", "AddPartitionsToTxn", "AddOffsetsToTxn",
    "TxnOffsetCommit", "EndTxn", "JoinGroup", "SyncGroup", "Heartbeat", "ConsumerGroupHeartbeat", "LeaveGroup",
    "OffsetFetch", "ListOffsets", "Fetch",
)  # fmt: skip
ATTEMPTS = 20
SEEDS = 4


def in_version(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def features(self: Cluster) -> dict[str, int]:
        await self._any_connection()
        return {"transaction.version": version}

    monkeypatch.setattr(Cluster, "features", features)


class User:
    """Copies a topic in transactions, and goes on after each error."""

    def __init__(self, world: World, protocol: str) -> None:
        self._world = world
        self._protocol: Any = protocol
        self.errors: list[ClientError] = []

    async def _try(self, call: Callable[[], Any]) -> bool:
        try:
            await call()
        except ClientError as error:
            self.errors.append(error)
            return False
        return True

    async def work(self) -> None:
        address = self._world.bootstrap
        consumer = aio.Consumer(
            address, "t", group="g", delivery="exactly-once", group_protocol=self._protocol, heartbeat_ms=100,
            options=IMPATIENT,
        )  # fmt: skip
        producer = aio.Producer(address, transactional_id="x", options=IMPATIENT)
        for client in (consumer, producer):
            for _ in range(ATTEMPTS):
                if await self._try(client.open):
                    break
        for _ in range(ATTEMPTS):
            if not await self._try(lambda: self._copy(consumer, producer)):
                await self._try(consumer.rewind)
        await self._try(consumer.close)
        await self._try(lambda: producer.close(10))

    async def _copy(self, consumer: aio.Consumer, producer: aio.Producer) -> None:
        batches = await consumer.poll(300)
        async with producer.transaction() as transaction:
            for batch in batches:
                for record in batch.records:
                    producer.send("copies", record.value)
            await transaction.send_offsets(consumer)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("api", APIS)
def test_garbled_answers_hold_nobody_up(api: str, protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(SEEDS):
        with World(seed) as world:
            in_version(1 + seed % 2, monkeypatch)
            world.create_topic("t", partitions=2)
            world.create_topic("copies")
            for number in range(6):
                world.put("t", b"%d" % number, partition=number % 2)
            world.faults.garble(api, times=world.random.randint(1, 3), after=world.random.randint(0, 2))
            world.run(User(world, protocol).work(), most_seconds=3_000)
            world.advance(100)
            assert world.leftovers() == []
            copies = sorted(record.value or b"" for record in world.committed("copies"))
            assert len(copies) == len(set(copies)), f"seed {seed}: {copies}"


# What is left out is not done.


async def copy(consumer: aio.Consumer, producer: aio.Producer) -> None:
    async with producer.transaction() as transaction:
        producer.send("copies", b"1")
        await transaction.send_offsets(consumer)


@pytest.mark.parametrize("version", [1, 2])
def test_offsets_that_the_answer_leaves_out_are_not_in_the_transaction(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_version(version, monkeypatch)
    with World() as world:
        world.create_topic("t", partitions=2)
        world.create_topic("copies")
        for partition in range(2):
            world.put("t", b"1", partition=partition)

        def leave_out(answer: Any) -> None:
            del answer.topics[0].partitions[0]

        world.faults.alter("TxnOffsetCommit", leave_out)

        async def main() -> None:
            async with (
                aio.Producer(world.bootstrap, transactional_id="x") as producer,
                aio.Consumer(world.bootstrap, "t", group="g", delivery="exactly-once") as consumer,
            ):
                seen: set[int] = set()
                while len(seen) < 2:
                    seen |= {batch.partition for batch in await consumer.poll()}
                with pytest.raises(ServerError, match="UNKNOWN_SERVER_ERROR"):
                    await copy(consumer, producer)

        world.run(main())
        assert world.committed("copies") == []


def test_partitions_that_the_answer_leaves_out_are_not_in_the_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    in_version(1, monkeypatch)
    with World() as world:
        world.create_topic("t")

        def leave_out(answer: Any) -> None:
            answer.results_by_topic_v3_and_below = []

        world.faults.alter("AddPartitionsToTxn", leave_out)

        async def main() -> None:
            async with aio.Producer(world.bootstrap, transactional_id="x") as producer:
                with pytest.raises(ServerError, match="UNKNOWN_SERVER_ERROR"):
                    async with producer.transaction():
                        producer.send("t", b"1")
                async with producer.transaction():
                    producer.send("t", b"2")

        world.run(main())
        assert [record.value for record in world.committed("t")] == [b"2"]


def leave_out_rows(answer: Any) -> None:
    for group in answer.groups:
        group.topics = []


def leave_out_groups(answer: Any) -> None:
    answer.groups = []


@pytest.mark.parametrize("change", [leave_out_rows, leave_out_groups])
def test_a_partition_without_an_answer_is_not_one_without_an_offset(change: Callable[[Any], None]) -> None:
    """It would be read from the end, and what comes before would never be seen."""
    with World() as world:
        world.create_topic("t")
        world.put("t", b"0", b"1", b"2")
        place = TopicPartition("t", 0)

        async def main() -> list[bytes]:
            options: Any = {"group": "g", "start": LATEST, "auto_commit": False, "options": IMPATIENT}
            async with aio.Consumer(world.bootstrap, **options) as first:
                await first.assign([place])
                await first.commit({place: 1})
            world.faults.alter("OffsetFetch", change)
            async with aio.Consumer(world.bootstrap, **options) as second:
                with pytest.raises(MalformedAnswer, match="leaves"):
                    await second.assign([place])
                seen: list[bytes] = []
                while not seen:
                    seen = [record.value for batch in await second.poll() for record in batch.records]
                return seen

        assert world.run(main()) == [b"1", b"2"]


def test_a_coordinator_that_is_left_out_is_a_malformed_answer() -> None:
    with World() as world:

        def leave_out(answer: Any) -> None:
            answer.coordinators = []

        world.faults.alter("FindCoordinator", leave_out)

        async def main() -> None:
            producer = aio.Producer(world.bootstrap, transactional_id="x")
            with pytest.raises(MalformedAnswer, match="leaves it out"):
                await producer.open()
            async with producer:
                pass

        world.run(main())
        assert world.leftovers() == []


# Codes that say nothing.


@pytest.mark.parametrize("code", ["UNKNOWN_SERVER_ERROR", 999])
@pytest.mark.parametrize("version", [1, 2])
def test_a_commit_that_is_answered_with_nonsense_is_asked_for_again(
    version: int, code: str | int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was made; whoever is told that it failed would send all of it again."""
    in_version(version, monkeypatch)
    with World() as world:
        world.create_topic("t")

        async def main() -> None:
            async with aio.Producer(world.bootstrap, transactional_id="x", options=IMPATIENT) as producer:
                world.faults.error_after("EndTxn", code)
                async with producer.transaction():
                    producer.send("t", b"1")
                world.faults.error("EndTxn", code, times=1_000)
                with pytest.raises(TransactionUnresolved):
                    async with producer.transaction():
                        producer.send("t", b"2")
                world.faults.clear()
                async with producer.transaction():
                    producer.send("t", b"3")

        world.run(main())
        assert [record.value for record in world.committed("t")] == [b"1", b"2", b"3"]


@pytest.mark.parametrize("code", ["OUT_OF_ORDER_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID", "INVALID_PRODUCER_EPOCH"])
def test_a_broker_that_refuses_all_numbers_is_not_overrun(code: str) -> None:
    with World() as world:
        world.create_topic("t")
        refused = world.faults.error("Produce", code, times=1 << 30)

        async def main() -> None:
            async with aio.Producer(world.bootstrap, options=IMPATIENT) as producer:
                with pytest.raises(ClientError):
                    await producer.send("t", b"1")

        world.run(main())
        assert refused.count < 20


# Old brokers.


def test_what_an_old_broker_cannot_say_is_unsupported() -> None:
    with World() as world:
        world.create_topic("t")

        def is_old(answer: Any) -> None:
            for row in answer.api_keys:
                if row.api_key == 2:  # ListOffsets
                    row.min_version, row.max_version = 1, 1

        world.faults.alter("ApiVersions", is_old, times=100)

        async def main() -> None:
            async with aio.Reader(world.bootstrap, "t") as reader:
                with pytest.raises(UnsupportedByBroker, match="isolation_level"):
                    await reader.poll()

        world.run(main())
        assert world.leftovers() == []
