"""What a user of the producer notices under failure, each in a simulated world (ottla.testing.world)."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

from ottla.client import (
    EARLIEST,
    AtTime,
    BufferFull,
    ClientError,
    ClientOptions,
    ClientQuota,
    CommitFailed,
    Delivery,
    DeliveryFailed,
    DeliveryTimedOut,
    GroupOffsets,
    InvalidRecord,
    Membership,
    NewRecord,
    NewTopic,
    Offset,
    ProducerClosed,
    Resource,
    ResourceKind,
    ServerError,
    TopicPartition,
    TransactionUnresolved,
    UnknownTopicOrPartition,
    aio,
)
from ottla.client.network.address import Address
from ottla.client.network.cluster import Cluster
from ottla.records.build import build_batch
from ottla.testing.world import FaultKind, RequestFault, World, every_cancellation

IMPATIENT = ClientOptions(request_timeout_ms=1_000, retry_timeout_ms=3_000)


def values(world: World, topic: str = "t") -> list[bytes | None]:
    return [record.value for record in world.committed(topic)]


@pytest.fixture(params=[1, 2])
def version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Of transactions: what the cluster has in force."""

    async def features(_: Cluster) -> dict[str, int]:
        return {"transaction.version": request.param}

    monkeypatch.setattr(Cluster, "features", features)
    return int(request.param)


# One bad record.


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"partition": "0"}, "a partition is an int, not str"),
        ({"partition": -1}, "from 0 on"),
        ({"partition": True}, "a partition is an int, not bool"),
        ({"key": "text"}, "a key is bytes, not str"),
        ({"timestamp_ms": "now"}, "a timestamp is an int of milliseconds since 1970, not str"),
        ({"timestamp_ms": 1 << 70}, "at most 63 bits"),
        ({"headers": {"a": b"b"}}, r"not a dict: use list\(d.items\(\)\)"),
        ({"headers": [("a", "b")]}, "the value of header 'a' is bytes, not str"),
        ({"headers": [(b"a", b"b")]}, "the name of a header is a str, not bytes"),
        ({"headers": [("a",)]}, "pairs"),
        ({"headers": 7}, "pairs"),
    ],
)
@pytest.mark.parametrize("spread", ["round-robin", "sticky"])
def test_what_is_wrong_is_said_in_the_line_of_the_caller_and_all_else_goes_on(
    options: dict[str, Any], says: str, spread: Any
) -> None:
    with World() as world:
        world.create_topic("t", partitions=2)

        async def main() -> None:
            async with aio.Producer(world.bootstrap, spread=spread) as producer:
                producer.send("t", b"before")
                with pytest.raises(InvalidRecord, match=says):
                    producer.send("t", b"bad", **options)
                with pytest.raises(InvalidRecord, match=says):
                    await producer.send_many("t", [b"good", NewRecord(b"bad", **options)])
                producer.send("t", b"after")
                await producer.flush(10)

        world.run(main())
        assert sorted(map(str, values(world))) == ["b'after'", "b'before'"]


def test_a_partition_that_is_not_there_fails_its_record_alone() -> None:
    with World() as world:
        world.create_topic("t")
        world.create_topic("other")

        async def main() -> None:
            async with aio.Producer(world.bootstrap) as producer:
                sent = [producer.send("t", b"%d" % number) for number in range(50)]
                bad = producer.send("t", b"bad", partition=7)
                sent += [producer.send("other", b"%d" % number) for number in range(50)]
                with pytest.raises(InvalidRecord, match="has no partition 7"):
                    await bad
                for one in sent:
                    await one

        world.run(main())
        assert (len(values(world)), len(values(world, "other"))) == (50, 50)


def test_a_record_that_is_refused_each_time_costs_no_epoch_and_no_neighbour() -> None:
    with World() as world:
        world.create_topic("t", config={"cleanup.policy": "compact"})

        async def main() -> None:
            async with aio.Producer(world.bootstrap, linger_ms=0) as producer:
                for number in range(20):
                    bad = producer.send("t", b"no key")
                    good = producer.send("t", b"good", key=b"%d" % number)
                    with pytest.raises(ServerError, match="without key"):
                        await bad
                    await good

        world.run(main())
        assert {(record.value, record.producer_epoch) for record in world.written("t")} == {(b"good", 0)}
        assert len(world.written("t")) == 20


def test_a_record_that_no_broker_takes_is_refused_by_its_size() -> None:
    with World() as world:
        world.create_topic("t")

        async def main() -> None:
            async with aio.Producer(world.bootstrap, max_request_bytes=10_000) as producer:
                with pytest.raises(InvalidRecord, match="larger than max_request_bytes") as raised:
                    producer.send("t", bytes(10_001))
                assert not raised.value.is_retriable
                with pytest.raises(InvalidRecord, match="larger than max_request_bytes"):
                    await producer.send_many("t", [b"small", bytes(10_001)])
                await producer.send("t", bytes(8_000))

        world.run(main())
        assert len(values(world)) == 1


def test_a_callback_is_called_for_a_topic_that_is_not_there() -> None:
    with World(settings={"auto.create.topics.enable": "false"}) as world:
        told: list[Delivery] = []

        async def main() -> None:
            async with aio.Producer(world.bootstrap) as producer:
                producer.send("nowhere", b"x", on_delivery=told.append)
                await producer.flush()

        world.run(main())
        assert [type(delivery.error) for delivery in told] == [UnknownTopicOrPartition]


# Who is told.


def test_to_ask_for_one_record_hides_nothing_of_its_neighbours() -> None:
    with World() as world:
        world.create_topic("t")
        world.faults.error("Produce", "INVALID_RECORD")

        async def main() -> None:
            async with aio.Producer(world.bootstrap) as producer:
                sent = [producer.send("t", b"%d" % number) for number in range(5)]
                with pytest.raises(ServerError):
                    await sent[0]
                with pytest.raises(DeliveryFailed, match="4 records were not written"):
                    await producer.flush()

        world.run(main())


def test_whoever_stopped_waiting_was_not_told() -> None:
    with World() as world:
        world.create_topic("t")
        world.faults.delay("Produce", 2)
        world.faults.error("Produce", "INVALID_RECORD")

        async def main() -> None:
            async with aio.Producer(world.bootstrap) as producer:
                await producer.send("t", b"slow")
                sent = producer.send("t", b"refused")
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(_wait(sent), 0.0001)
                with pytest.raises(DeliveryFailed, match="1 records were not written"):
                    await producer.flush()

        world.run(main())


def test_nor_was_who_stopped_waiting_for_many() -> None:
    with World() as world:
        world.create_topic("t")

        async def main() -> None:
            async with aio.Producer(world.bootstrap, delivery_timeout_ms=3_000) as producer:
                world.stop()
                batch = bytes(build_batch([b"a", b"b"], timestamp=0))
                for writing in (
                    producer.send_many("t", [b"1", b"2", b"3"]),
                    producer.send_batches([(TopicPartition("t", 0), batch)]),
                ):
                    with pytest.raises(TimeoutError):
                        await asyncio.wait_for(writing, 1)
                with pytest.raises(DeliveryFailed, match="5 records were not written"):
                    await producer.flush()
                world.start()

        world.run(main(), most_seconds=60)


async def _wait(sent: Any) -> None:
    await sent


def test_a_closed_loop_keeps_nobody_from_being_told() -> None:
    """Somebody awaited a record on a loop of his own, and is gone."""
    with World() as world:
        world.create_topic("t")

        async def main() -> None:
            async with aio.Producer(world.bootstrap) as producer:
                sent = producer.send("t", b"x")
                loop = asyncio.SelectorEventLoop()
                thread = threading.Thread(target=lambda: loop.run_until_complete(_briefly(sent)))
                thread.start()
                thread.join()
                loop.close()
                assert (await sent).offset == 0

        world.run(main())


async def _briefly(sent: Any) -> None:
    waiting = asyncio.ensure_future(_wait(sent))
    await asyncio.sleep(0)
    waiting.cancel()


def test_close_that_is_cancelled_at_any_moment_decides_every_record_and_leaves_nothing() -> None:
    def scenario(k: int) -> bool:
        with World(7) as world:
            world.create_topic("t", partitions=2)
            world.faults.delay("Produce", 1, times=2)
            producer = aio.Producer(world.bootstrap)
            world.run(producer.open())

            begun = []

            async def call() -> None:
                begun.append(True)
                await producer.close()

            sent = [world.run(_send(producer, number)) for number in range(4)]
            is_over = world.run_cancelled(call(), k)
            if not begun:  # who never asked to close has not closed
                world.run(producer.close())
            assert [one.is_done for one in sent] == [True] * 4
            for one in sent:
                try:
                    one.result(0)
                except ProducerClosed:
                    assert not is_over
            world.advance(10)
            assert world.leftovers() == []
            return is_over

    assert every_cancellation(scenario) > 3


async def _send(producer: aio.Producer, number: int) -> Any:
    return producer.send("t", b"%d" % number, partition=number % 2)


def test_a_delivery_timeout_holds_while_the_broker_is_silent() -> None:
    with World() as world:
        world.create_topic("t")

        async def main() -> None:
            options = ClientOptions(request_timeout_ms=4_000)
            async with aio.Producer(world.bootstrap, delivery_timeout_ms=2_000, options=options) as producer:
                await producer.send("t", b"before")
                world.faults.silence("Produce")
                started = world.now()
                with pytest.raises(DeliveryTimedOut):
                    await producer.send("t", b"late")
                assert world.now() - started < 3
                await asyncio.sleep(3)
                await producer.send("t", b"after")

        world.run(main())
        assert values(world) in ([b"before", b"after"], [b"before", b"late", b"after"])


def test_without_acknowledgement_a_connection_that_takes_nothing_is_replaced() -> None:
    """It is half open: what is written to it waits in the kernel, and nobody ever tells."""
    with World() as world:
        world.create_topic("t")

        async def main() -> None:
            async with aio.Producer(world.bootstrap, acks="0", linger_ms=0, options=IMPATIENT) as producer:
                await producer.send("t", b"first")
                world.faults.silence("Produce")
                for _ in range(3):
                    await producer.send("t", b"x" * 50_000)
                await producer.send("t", b"last")
                await asyncio.sleep(0.1)

        world.run(main())
        found = values(world)
        assert (found[0], found[-1]) == (b"first", b"last")


def test_close_with_a_timeout_says_what_was_not_written() -> None:
    with World() as world:
        world.create_topic("t")

        async def main() -> None:
            producer = await aio.Producer(world.bootstrap).open(5)
            world.stop()
            sent = producer.send("t", b"x")
            with pytest.raises(DeliveryFailed, match="1 records were not written"):
                await producer.close(2)
            with pytest.raises(ProducerClosed):
                await sent
            await producer.close()
            with pytest.raises(RuntimeError, match="closed"):
                producer.send("t", b"y")

        world.run(main())
        assert world.now() < 10


def test_send_many_waits_for_room_no_longer_than_it_may() -> None:
    with World() as world:
        world.create_topic("t")

        async def main() -> None:
            producer = aio.Producer(world.bootstrap, buffer_bytes=1_000, batch_bytes=500, max_block_ms=1_500)
            await producer.open()
            world.stop()
            producer.send("t", bytes(2_000))
            started = world.now()
            with pytest.raises(BufferFull):
                await producer.send_many("t", [b"x"])
            assert 1 < world.now() - started < 2
            with pytest.raises(DeliveryFailed):
                await producer.close(1)

        world.run(main())


def test_send_many_does_not_wait_for_another_topic_in_trouble_when_there_is_room() -> None:
    with World() as world:
        for name in ("stuck", "t"):
            world.create_topic(name)
        stuck_id = world.broker.topics.by_name["stuck"].topic_id
        world.faults.error(
            "Produce", "NOT_LEADER_OR_FOLLOWER", times=1_000_000,
            when=lambda request: any(topic.topic_id == stuck_id for topic in request.topic_data),
        )  # fmt: skip

        async def main() -> None:
            producer = aio.Producer(world.bootstrap, buffer_bytes=1_000, linger_ms=0, max_block_ms=20_000)
            await producer.open()
            producer.send("stuck", bytes(900))
            await asyncio.sleep(0.1)
            first = asyncio.ensure_future(producer.send_many("t", [bytes(500)]))
            await asyncio.sleep(0)
            started = world.now()
            await producer.send_many("t", [b"x"])
            assert world.now() - started < 5
            await first
            with pytest.raises(DeliveryFailed):
                await producer.close(1)

        world.run(main())


def test_a_topic_that_is_deleted_holds_nothing_up() -> None:
    with World(settings={"auto.create.topics.enable": "false"}) as world:
        for name in ("t", "gone"):
            world.create_topic(name)

        async def main() -> None:
            async with aio.Producer(world.bootstrap) as producer, aio.Admin(world.bootstrap) as admin:
                await producer.send("gone", b"x")
                await admin.delete_topics(["gone"])
                lost = producer.send("gone", b"y")
                await producer.send("t", b"z")
                with pytest.raises(UnknownTopicOrPartition):
                    await lost

        world.run(main())
        assert world.now() < 10


def test_a_broker_that_is_away_costs_next_to_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ottla.client")
    with World() as world:
        world.create_topic("t", partitions=300)

        async def main() -> int:
            options = ClientOptions(retry_timeout_ms=200_000)
            async with aio.Producer(world.bootstrap, options=options) as producer:
                await producer.send_many("t", [NewRecord(b"", partition=index) for index in range(300)])
                world.stop()
                for index in range(300):
                    producer.send("t", b"x", partition=index)
                await asyncio.sleep(2)
                before = world.steps
                await asyncio.sleep(60)
                cost = world.steps - before
                world.start()
            return cost

        assert world.run(main()) < 60 * 40  # rounds of the loop in a minute
        assert len(values(world)) == 600
    outages = [record.message for record in caplog.records if "cannot reach" in record.message]
    assert len(outages) == 1
    assert any("can be reached again" in record.message for record in caplog.records)


def test_a_producer_id_without_epochs_left_is_replaced() -> None:
    with World() as world:
        world.create_topic("t")

        async def main() -> None:
            async with aio.Producer(world.bootstrap, linger_ms=0) as producer:
                await producer.send("t", b"0")
                sender = producer._sender
                assert sender is not None
                [queue] = sender._queues.values()
                queue.identity = sender.identity = sender.identity._replace(epoch=32767)
                queue.next_sequence = queue._expected_sequence = 0
                await producer.send("t", b"1")
                world.faults.error("Produce", "OUT_OF_ORDER_SEQUENCE_NUMBER")
                await producer.send("t", b"2")
                await producer.send("t", b"3")

        world.run(main(), most_seconds=60)
        assert values(world) == [b"0", b"1", b"2", b"3"]
        assert len({record.producer_id for record in world.written("t")}) == 2


# Transactions.


async def _opened(world: World, **options: Any) -> aio.Producer:
    return await aio.Producer(world.bootstrap, transactional_id="w", options=IMPATIENT, **options).open()


def test_an_abort_that_does_not_reach_the_coordinator_is_done_before_the_next_begins(version: int) -> None:
    with World() as world:
        world.create_topic("t")

        async def main() -> None:
            producer = await _opened(world)
            world.faults.silence("EndTxn", times=8)
            with pytest.raises(ZeroDivisionError):
                await _fail(producer)
            with pytest.raises(TransactionUnresolved) as raised:
                await producer.transaction().__aenter__()
            assert raised.value.is_retriable
            world.faults.clear()
            async with producer.transaction():
                await producer.send("t", b"committed")
            await producer.close()

        world.run(main())
        assert values(world) == [b"committed"]


@pytest.mark.parametrize("kind", ["lose_answer", "swallow_answer", "cut_answer", "crash", "silence", "cut"])
def test_a_lost_answer_to_the_commit_is_asked_for_until_it_is_known(version: int, kind: str) -> None:
    with World() as world:
        world.create_topic("t")

        async def main() -> None:
            producer = await _opened(world)
            getattr(world.faults, kind)("EndTxn")
            for number in range(3):
                async with producer.transaction():
                    producer.send("t", b"%d" % number)
            await producer.close()

        world.run(main())
        assert values(world) == [b"0", b"1", b"2"]


def test_a_commit_without_an_answer_is_unknown_and_no_failure(version: int) -> None:
    with World() as world:
        world.create_topic("t")

        async def main() -> None:
            producer = await _opened(world)
            world.faults.swallow_answer("EndTxn", times=8)
            with pytest.raises(TransactionUnresolved, match="outcome is unknown, and is still being asked for"):
                async with producer.transaction():
                    producer.send("t", b"perhaps")
            world.faults.clear()
            async with producer.transaction():
                producer.send("t", b"next")
            await producer.close()

        world.run(main())
        assert values(world) == [b"perhaps", b"next"]


def test_a_transaction_that_is_cancelled_at_any_moment_is_whole_or_not_there_and_the_next_one_works(
    version: int,
) -> None:
    def scenario(k: int) -> bool:
        with World(3) as world:
            world.create_topic("t", partitions=2)
            producer = world.run(_opened(world))

            async def call(first: int) -> None:
                async with producer.transaction():
                    for number in range(first, first + 4):
                        producer.send("t", b"%d" % number, partition=number % 2)

            is_over = world.run_cancelled(call(0), k)
            world.run(call(4))
            world.run(producer.close())
            found = sorted(int(value or b"") for value in values(world))
            assert found in ([0, 1, 2, 3, 4, 5, 6, 7], [4, 5, 6, 7])
            assert not is_over or len(found) == 8
            assert world.leftovers() == []
            return is_over

    assert every_cancellation(scenario) > 8


def test_whoever_catches_a_failed_commit_of_offsets_commits_nothing(version: int) -> None:
    with World() as world:
        world.create_topic("t")
        stranger = GroupOffsets(Membership("g", 5, "stranger"), {TopicPartition("t", 0): Offset(1)})

        async def main() -> None:
            producer = await _opened(world)
            with pytest.raises(CommitFailed):
                await _catch_failed_offsets(producer, stranger)
            async with producer.transaction():
                producer.send("t", b"next")
            await producer.close()

        world.run(main())
        assert values(world) == [b"next"]


def test_what_comes_while_a_transaction_is_committed_is_refused(version: int) -> None:
    with World() as world:
        world.create_topic("t")

        async def main() -> None:
            producer = await _opened(world)
            world.faults.delay("Produce", 0.5)

            async def intrude() -> None:
                await asyncio.sleep(0.2)
                with pytest.raises(RuntimeError, match="being committed"):
                    producer.send("t", b"too late")

            intruder = asyncio.ensure_future(intrude())
            async with producer.transaction():
                producer.send("t", b"in time")
            await intruder
            await producer.close()

        world.run(main())
        assert values(world) == [b"in time"]


async def _fail(producer: aio.Producer) -> None:
    async with producer.transaction():
        await producer.send("t", b"aborted")
        raise ZeroDivisionError


async def _catch_failed_offsets(producer: aio.Producer, offsets: GroupOffsets) -> None:
    async with producer.transaction() as transaction:
        producer.send("t", b"without offsets")
        with pytest.raises(CommitFailed):
            await transaction.send_offsets(offsets)


async def _catch(producer: aio.Producer) -> None:
    async with producer.transaction():
        await producer.send("t", b"good", key=b"k")
        with pytest.raises(ServerError):
            await producer.send("t", b"bad")


def test_a_record_that_fails_fails_its_transaction_although_it_was_asked_for(version: int) -> None:
    with World() as world:
        world.create_topic("t", config={"cleanup.policy": "compact"})

        async def main() -> None:
            producer = await _opened(world)
            with pytest.raises(ServerError, match="without key"):
                await _catch(producer)
            await producer.close()

        world.run(main())
        assert values(world) == []


# Other things.


def test_a_partitioner_chooses_and_its_mistakes_are_the_records(caplog: pytest.LogCaptureFixture) -> None:
    def choose(topic: str, key: bytes | None, count: int) -> int | None:
        return None if key is None else int(key) % count

    with World() as world:
        world.create_topic("t", partitions=3)

        async def main() -> None:
            async with aio.Producer(world.bootstrap, partitioner=choose) as producer:
                sent = [producer.send("t", b"x", key=b"%d" % number) for number in range(6)]
                bad = producer.send("t", b"x", key=b"no number")
                assert [(await one).partition for one in sent] == [0, 1, 2, 0, 1, 2]
                with pytest.raises(InvalidRecord, match="the partitioner failed"):
                    await bad
                assert (await producer.send("t", b"x", key=b"1", partition=2)).partition == 2
                await producer.send("t", b"x")

        world.run(main())


def test_statistics_count_what_happened() -> None:
    with World() as world:
        world.create_topic("t")
        world.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER")

        async def main() -> None:
            async with aio.Producer(world.bootstrap) as producer:
                await producer.send_many("t", [b"x"] * 10)
                with pytest.raises(ClientError):
                    await producer.send("t", b"x", partition=9)
                found = producer.statistics()
                assert (found.records_written, found.records_failed, found.batches_written) == (10, 1, 1)
                assert (found.requests, found.retries, found.buffered_bytes) == (2, 1, 0)
                assert found.request_seconds > 0

        world.run(main())


def test_each_record_has_its_own_time_although_several_wait_for_an_answer() -> None:
    """The answer takes longer than all of them have, and nothing else happens."""
    with World() as world:
        world.create_topic("t")

        async def main() -> None:
            async with aio.Producer(world.bootstrap, linger_ms=0, delivery_timeout_ms=3_000) as producer:
                await producer.send("t", b"0")
                world.faults.add("Produce", RequestFault(FaultKind.SILENCE), times=10)

                async def seconds_of_one() -> float:
                    sent, started = producer.send("t", b"x"), world.now()
                    with pytest.raises(DeliveryTimedOut):
                        await sent
                    return world.now() - started

                asked = []
                for _ in range(4):
                    asked.append(asyncio.ensure_future(seconds_of_one()))
                    await asyncio.sleep(0.5)
                assert await asyncio.gather(*asked) == pytest.approx([3.0] * 4, abs=0.01)

        world.run(main(), most_seconds=100)


def test_a_dead_controller_is_looked_for_again() -> None:
    with World() as world:

        async def main() -> None:
            async with aio.Admin(world.bootstrap) as admin:
                view = admin._cluster._view
                [node_id] = view.brokers
                view.brokers[7] = Address("127.0.0.1", 1)
                view.controller_id = 7
                await admin.create_topics([NewTopic("t")])
                assert view.controller_id == node_id

        world.run(main())


def test_what_an_administrator_reads_is_asked_again() -> None:
    with World() as world:
        world.create_topic("t")

        async def main() -> None:
            async with aio.Admin(world.bootstrap) as admin:
                for api in (
                    "Metadata",
                    "DescribeCluster",
                    "DescribeConfigs",
                    "DescribeClientQuotas",
                    "DescribeLogDirs",
                ):
                    world.faults.lose_answer(api)
                assert [topic.name for topic in await admin.describe_topics(["t"])] == ["t"]
                assert len((await admin.describe_cluster()).brokers) == 1
                assert await admin.describe_configs([Resource(ResourceKind.TOPIC, "t")])
                assert await admin.describe_quotas() == []
                assert len(await admin.describe_log_dirs()) == 1

        world.run(main())


def test_records_quotas_folders_and_offsets_of_a_time() -> None:
    with World() as world:
        world.create_topic("t", partitions=2)
        place = TopicPartition("t", 0)

        async def main() -> None:
            async with aio.Producer(world.bootstrap) as producer, aio.Admin(world.bootstrap) as admin:
                for number in range(4):
                    await producer.send("t", b"x", partition=0, timestamp_ms=1_000 * number)
                assert await admin.find_offsets("t", AtTime(1_500)) == {0: 2, 1: 0}
                assert await admin.delete_records({place: 3}) == {place: 3}
                assert await admin.find_offsets("t", EARLIEST) == {0: 3, 1: 0}
                assert await admin.delete_records({place: -1}) == {place: 4}
                with pytest.raises(ServerError, match="OFFSET_OUT_OF_RANGE"):
                    await admin.delete_records({place: 99})
                [[folder]] = (await admin.describe_log_dirs(partitions=[place])).values()
                assert [one.partition for one in folder.partitions] == [place]
                await admin.alter_quotas({"client-id": "x"}, {"producer_byte_rate": 1e6})
                assert await admin.describe_quotas({"client-id": "x"}) == [
                    ClientQuota({"client-id": "x"}, {"producer_byte_rate": 1e6})
                ]
                await admin.alter_quotas({"client-id": "x"}, {"producer_byte_rate": None})
                assert await admin.describe_quotas() == []

        world.run(main())


def test_while_no_broker_answers_nobody_has_said_that_there_is_no_such_topic() -> None:
    """A topic has its moment to become known after an outage, too."""

    async def main() -> None:
        async with aio.Producer(world.bootstrap) as producer:
            world.stop()
            sent = producer.send("late", b"x")
            await asyncio.sleep(5)
            world.start()
            await asyncio.sleep(0.4)
            world.create_topic("late")
            assert (await sent).offset == 0

    with World() as world:
        world.run(main())
