"""What a user of the consumer notices under failure, each in a simulated world (ottla.testing.world)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from ottla.client import ClientError, ClientOptions, CommitFailed, MalformedAnswer, TopicPartition, aio
from ottla.testing.simulation.broker_machine import FOLDER
from ottla.testing.world import FaultKind, RequestFault, World
from tests.client_sim.consuming import GROUP, TOPIC, committed_offsets

IMPATIENT = ClientOptions(request_timeout_ms=1_000, retry_timeout_ms=3_000)
PLACE = TopicPartition(TOPIC, 0)
PROTOCOLS: dict[str, dict[str, Any]] = {"classic": {}, "consumer": {"group_protocol": "consumer"}}
both_protocols = pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS)


def consumer(world: World, topics: str | None = TOPIC, **options: Any) -> aio.Consumer:
    chosen: dict[str, Any] = {"group": GROUP, "heartbeat_ms": 200, "fetch_wait_ms": 50, "session_timeout_ms": 6_000}
    return aio.Consumer(world.bootstrap, topics, **chosen | options)


def spy(world: World, api: str, look: Callable[[Any], None]) -> None:
    """See each request of an API."""

    def when(request: Any) -> bool:
        look(request)
        return False

    world.faults.add(api, RequestFault(FaultKind.PASS), times=1_000_000, when=when)


def count(world: World, api: str) -> list[int]:
    """How often an API is called from now on: in the one place of the list."""
    counted = [0]

    def look(_: Any) -> None:
        counted[0] += 1

    spy(world, api, look)
    return counted


def commits(world: World) -> list[int]:
    """The offsets of partition 0 that are asked to be committed."""
    asked: list[int] = []
    spy(
        world,
        "OffsetCommit",
        lambda request: asked.extend(
            row.committed_offset
            for topic in request.topics
            for row in topic.partitions
            if (topic.name, row.partition_index) == PLACE
        ),
    )
    return asked


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


async def read(one: aio.Consumer, records: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    while len(found) < records:
        for batch in await one.poll(1_000):
            found += [record.value for record in batch.records]
    return found


# Offsets.


@both_protocols
def test_a_commit_that_a_mere_rejoin_overtakes_succeeds(protocol: dict[str, Any]) -> None:
    with World() as world:
        world.create_topic(TOPIC)
        world.create_topic("other")
        world.put(TOPIC, *numbers(0, 10))

        async def main() -> None:
            async with consumer(world, **protocol) as one:
                assert len(await read(one, 10)) == 10
                world.faults.delay("OffsetCommit", 4)
                commit = asyncio.ensure_future(one.commit())
                async with consumer(world, "other", **protocol) as two:
                    reading = asyncio.ensure_future(two.poll(6_000))
                    while not commit.done():
                        await one.poll(100)
                    await commit
                    await reading
                assert one.assignment == {PLACE}

        world.run(main())
        assert committed_offsets(world)[PLACE] == 10


def test_commits_by_the_clock_never_go_back() -> None:
    """Not even when one is refused in a rebalance, and what it wanted to commit is old by then."""
    with World() as world:
        world.create_topic(TOPIC)
        asked = commits(world)
        world.faults.error("OffsetCommit", "REBALANCE_IN_PROGRESS", times=3, after=1)
        world.faults.delay("OffsetCommit", 1, times=2, after=1)

        async def main() -> None:
            async with consumer(world, auto_commit_ms=100) as one:
                for first in range(0, 100, 5):
                    world.put(TOPIC, *numbers(first, first + 5))
                    await read(one, 5)
                    await one.poll(100)

        world.run(main())
        assert asked == sorted(asked)
        assert committed_offsets(world)[PLACE] == 100


@both_protocols
def test_who_is_told_of_partitions_finds_their_positions(protocol: dict[str, Any]) -> None:
    with World() as world:
        world.create_topic(TOPIC)
        world.put(TOPIC, b"one")
        world.faults.error("OffsetFetch", "COORDINATOR_LOAD_IN_PROGRESS", times=3)
        found: list[int] = []

        async def main() -> None:
            def told(given: list[TopicPartition]) -> None:
                found.extend(one.position(partition) for partition in given)

            one = consumer(world, on_assigned=told, **protocol)
            async with one:
                while not found:
                    await one.poll(100)

        world.run(main(), most_seconds=60)
        assert found == [0]


@both_protocols
@pytest.mark.parametrize(
    "code", ["COORDINATOR_LOAD_IN_PROGRESS", "UNSTABLE_OFFSET_COMMIT", "GROUP_AUTHORIZATION_FAILED"]
)
def test_offsets_that_cannot_be_asked_for_are_told_and_asked_for_on(code: str, protocol: dict[str, Any]) -> None:
    with World() as world:
        world.create_topic(TOPIC)
        world.put(TOPIC, b"one")
        refused = world.faults.error("OffsetFetch", code, times=1_000)

        async def main() -> None:
            async with consumer(world, options=IMPATIENT, **protocol) as one:
                end = world.now() + 20
                errors = []
                while world.now() < end:
                    try:
                        assert await one.poll(500) == []
                    except ClientError as error:
                        errors.append(error)
                assert code in str(errors[0])
                assert one.assignment == {PLACE}
                refused.cancel()
                with suppress(ClientError):  # one that was kept for the next call
                    await one.poll(2_000)
                one.core.rewind_all()
                assert await read(one, 1) == [b"one"]

        world.run(main(), most_seconds=60)


# Topics that go.


@both_protocols
def test_a_deleted_topic_holds_nothing_up(protocol: dict[str, Any]) -> None:
    with World() as world:
        for topic in ("t-1", "t-2"):
            world.create_topic(topic)
            world.put(topic, b"one", b"two")

        async def main() -> tuple[int, float]:
            one = consumer(world, None, pattern="t-.*", auto_commit_ms=100, **protocol)
            await one.open()
            assert len(await read(one, 4)) == 4
            async with aio.Admin(world.bootstrap) as admin:
                await admin.delete_topics(["t-1"])
            asked = count(world, "Metadata")
            world.put("t-2", b"three")
            assert await read(one, 1) == [b"three"]
            end = world.now() + 10
            while world.now() < end:
                await one.poll(500)
            assert committed_offsets(world)[TopicPartition("t-2", 0)] == 3
            assert one.assignment == {TopicPartition("t-2", 0)}
            asked_in_ten_seconds = asked[0]
            begun = world.now()
            await one.close()
            return asked_in_ten_seconds, world.now() - begun

        asked, seconds = world.run(main())
        assert asked <= 30
        assert seconds < 1
        assert world.leftovers() == []


# A broker that is away.


@both_protocols
def test_a_broker_that_is_away_costs_next_to_nothing_and_is_told(protocol: dict[str, Any]) -> None:
    partitions = 300
    with World() as world:
        world.create_topic(TOPIC, partitions=partitions)
        world.put(TOPIC, b"before")

        async def main() -> int:
            options = ClientOptions(retry_timeout_ms=20_000)
            async with consumer(world, options=options, **protocol) as one:
                assert await read(one, 1) == [b"before"]
                world.stop()
                before, end = world.steps, world.now() + 60
                errors = 0
                while world.now() < end:
                    try:
                        await one.poll(1_000)
                    except ClientError:
                        errors += 1
                cost = world.steps - before
                assert errors >= 2  # each time that retry_timeout_ms has passed
                world.start()
                for index in range(0, partitions, 100):
                    world.put(TOPIC, b"after", partition=index)
                found: list[bytes | None] = []
                while len(found) < partitions // 100:
                    try:
                        found += await read(one, 1)
                    except ClientError:
                        pass
            return cost

        assert world.run(main(), most_seconds=300) < 60 * 40  # rounds of the loop in a minute


# A user who is slow.


@both_protocols
def test_nothing_of_what_is_lost_is_handed_out_after_a_nap(protocol: dict[str, Any]) -> None:
    with World() as world:
        world.create_topic(TOPIC)
        world.put(TOPIC, *numbers(0, 2_000))
        lost: list[TopicPartition] = []

        async def main() -> None:
            async with (
                consumer(world, max_poll_interval_ms=2_000, on_lost=lost.extend, **protocol) as slow,
                consumer(world, **protocol) as other,
            ):
                seen: list[int] = []

                async def nap() -> None:
                    async for message in slow:
                        seen.append(message.offset)
                        if message.offset == 0:
                            await asyncio.sleep(10)

                napping = asyncio.ensure_future(nap())
                while not seen:
                    await asyncio.sleep(0.1)
                assert len(await read(other, 2_000)) == 2_000  # it has the partition now
                end = world.now() + 20
                while world.now() < end:
                    await other.poll(500)
                napping.cancel()
                assert seen == [0]
                assert lost == [PLACE]

        world.run(main())


# Damage.


def damage(world: World, batch: int) -> None:
    """Flip a bit of a value in a batch, counted from 0, of the topic's log."""
    folder = f"{FOLDER}/{TOPIC}-0"
    [path] = [f"{folder}/{name}" for name in world.files.sizes(folder) if name.endswith(".log")]
    data = world.files.read_all(path)
    at = 0
    for _ in range(batch):
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    size = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    world.files.flip_bit(path, at + size - 2, 0)


def _put_batches(world: World) -> None:
    world.create_topic(TOPIC)
    for first in range(0, 9, 3):
        world.put(TOPIC, *numbers(first, first + 3))
    damage(world, 1)


@pytest.mark.parametrize("way", ["poll", "messages", "batches", "arrow"])
def test_sound_records_come_before_a_damaged_batch_and_nothing_behind_it_is_committed(way: str) -> None:
    with World() as world:
        _put_batches(world)

        async def take(one: aio.Consumer) -> list[int]:
            if way == "poll":
                return [record.offset for batch in await one.poll(500) for record in batch.records]
            if way == "messages":
                async for message in one:
                    return [message.offset]
            if way == "batches":
                async for batch in one.batches():
                    return [record.offset for record in batch.records]
            async for table in one.arrow_batches():
                return [int(offset) for offset in table.column("offset").to_pylist()]
            return []

        async def main() -> None:
            async with consumer(world, auto_commit_ms=50) as one:
                found: list[int] = []
                errors = 0
                while errors < 3:
                    try:
                        found += await take(one)
                    except MalformedAnswer as error:
                        assert "a damaged batch at or behind offset 3" in str(error)  # noqa: PT017
                        errors += 1
                assert found == [0, 1, 2]
                await asyncio.sleep(1)
                assert committed_offsets(world)[PLACE] == 3
                await one.seek(PLACE, 6)
                while len(found) < 6:
                    found += await take(one)
                assert found == [0, 1, 2, 6, 7, 8]

        world.run(main(), most_seconds=100)


def test_a_reader_gives_what_is_sound_and_then_tells_of_the_damage() -> None:
    with World() as world:
        _put_batches(world)

        async def take(reader: aio.Reader, found: list[int]) -> None:
            while True:
                for batch in await reader.poll(500):
                    found += [record.offset for record in batch.records]

        async def main() -> None:
            async with aio.Reader(world.bootstrap, TOPIC) as reader:
                found: list[int] = []
                for _ in range(2):
                    with pytest.raises(MalformedAnswer, match="at or behind offset 3"):
                        await take(reader, found)
                    assert reader.offsets == {0: 3}
                assert found == [0, 1, 2]

        world.run(main(), most_seconds=100)


# Exactly once.


def test_a_transaction_without_its_offsets_does_nothing_of_what_came_with_it() -> None:
    """Several partitions came in one answer, and the offsets of the first batch are refused: none is skipped, none is
    done twice."""
    with World() as world:
        world.create_topic(TOPIC, partitions=3)
        world.create_topic("results")
        for index in range(3):
            world.put(TOPIC, *(b"%d-%d" % (index, number) for number in range(3)), partition=index)
        refused = world.faults.error("TxnOffsetCommit", "ILLEGAL_GENERATION")

        async def main() -> None:
            async with (
                aio.Producer(world.bootstrap, transactional_id="one") as producer,
                consumer(world, delivery="exactly-once") as one,
            ):

                async def handle(message: Any) -> None:
                    producer.send("results", message.value)

                running = asyncio.ensure_future(one.run(handle, producer=producer))
                await asyncio.sleep(30)
                one.stop()
                await running

        world.run(main())
        assert refused.count == 1
        results = sorted(record.value or b"" for record in world.committed("results"))
        assert results == sorted(record.value or b"" for record in world.committed(TOPIC))


def test_offsets_that_are_refused_by_a_lost_member_abort_the_transaction() -> None:
    with World() as world:
        world.create_topic(TOPIC)
        world.create_topic("results")
        world.put(TOPIC, b"one")

        async def put(producer: aio.Producer, one: aio.Consumer, value: bytes) -> None:
            async with producer.transaction() as transaction:
                producer.send("results", value)
                await transaction.send_offsets(one)

        async def main() -> None:
            async with (
                aio.Producer(world.bootstrap, transactional_id="one") as producer,
                consumer(world, delivery="exactly-once", max_poll_interval_ms=1_000) as one,
            ):
                assert await read(one, 1) == [b"one"]
                await asyncio.sleep(5)  # too slow: it is no member any more
                with pytest.raises(CommitFailed):
                    await put(producer, one, b"early")
                await one.rewind()
                assert await read(one, 1) == [b"one"]
                await put(producer, one, b"one")

        world.run(main())
        assert [record.value for record in world.committed("results")] == [b"one"]
        assert committed_offsets(world)[PLACE] == 1


# Ends.


def test_whoever_waits_for_records_of_a_consumer_that_is_closed_is_told() -> None:
    with World() as world:
        world.create_topic(TOPIC)

        async def main() -> None:
            one = await consumer(world).open()
            waiting = asyncio.ensure_future(one.poll(3_000_000))
            await asyncio.sleep(1)
            await one.close()
            with pytest.raises(RuntimeError, match="this consumer is closed"):
                await waiting

        world.run(main(), most_seconds=60)
        assert world.leftovers() == []


@pytest.mark.parametrize(
    "place",
    ["consumer.start_offsets.ask_for_offsets", "consumer.fetcher.fetch", "network.cluster.Cluster.refresh"],
)
def test_a_bug_in_the_background_is_told_and_not_waited_for(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object, **__: object) -> dict[int, int]:
        raise KeyError("a bug")

    with World() as world:
        world.create_topic(TOPIC)
        world.faults.error("Fetch", "NOT_LEADER_OR_FOLLOWER", times=100)  # so topics are asked for again

        async def main() -> None:
            async with consumer(world) as one:
                while "refresh" in place and not one.assignment:  # to become a member it is needed, too
                    await one.poll(100)
                monkeypatch.setattr(f"ottla.client.{place}", broken)
                with pytest.raises(KeyError, match="a bug"):
                    await read(one, 1)

        world.run(main(), most_seconds=60)
        assert world.steps < 2_000


# Memory.


@pytest.mark.parametrize(("partitions", "partition_bytes"), [(1, 100_000), (50, 15_000)])
def test_what_is_held_stays_within_buffer_bytes_and_every_partition_has_its_turn(
    partitions: int, partition_bytes: int
) -> None:
    """One batch may be over it: a broker gives the first whole, however little was asked for."""
    batch_bytes, buffer_bytes = 10_000, 200_000
    records = 150 // partitions
    with World() as world:
        world.create_topic(TOPIC, partitions=partitions)
        for index in range(partitions):
            for _ in range(records):
                world.put(TOPIC, bytes(batch_bytes), partition=index)
        held: list[int] = []

        async def main() -> None:
            async with consumer(world, partition_bytes=partition_bytes, buffer_bytes=buffer_bytes) as one:
                world.event_loop.before_step = lambda: held.append(one.statistics().held_bytes)
                seen: list[int] = []
                async for message in one:
                    seen.append(message.partition)
                    await asyncio.sleep(0.01)  # slow: what is fetched ahead piles up
                    if len(seen) == partitions * records:
                        break
                world.event_loop.before_step = None
                assert len(set(seen[: len(seen) // 2])) == partitions

        world.run(main())
        assert buffer_bytes // 2 < max(held) <= buffer_bytes + batch_bytes


def test_a_poll_takes_no_longer_than_it_may_although_offsets_cannot_be_committed() -> None:
    """What is given up is committed before, as long as that may help; and nothing of it is handed out meanwhile."""
    with World() as world:
        world.create_topic(TOPIC, partitions=2)
        world.put(TOPIC, *numbers(0, 4))
        eager: dict[str, Any] = {"assignors": ["range"], "auto_commit_ms": 100_000}

        async def main() -> None:
            async with consumer(world, **eager) as first:
                await read(first, 4)
                await first.poll(0)
                refused = world.faults.error("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", times=1_000)
                async with consumer(world, **eager) as second:
                    while not refused.count:
                        await first.poll(10)
                    for _ in range(10):
                        started = world.now()
                        assert await first.poll(300) == []
                        assert world.now() - started <= 0.301
                    refused.cancel()
                    while len(first.assignment) != 1 or len(second.assignment) != 1:
                        await first.poll(50)
                        await second.poll(50)
                    assert committed_offsets(world)[PLACE] == 4

        world.run(main(), most_seconds=100)
