"""A log that has lost what was read, and has other records in its place: who has read it is told, or goes back."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.client import EARLIEST, LATEST, ClientOptions, LogTruncated, Offset, ServerError, TopicPartition, aio
from ottla.client.consumer.leader_epochs import UNKNOWN, LeaderEpochs
from ottla.controller.changes import ChangedStates
from ottla.testing.world import World

PLACE = TopicPartition("t", 0)
OPTIONS = ClientOptions(request_timeout_ms=3_000, retry_timeout_ms=10_000, metadata_age_ms=500)


def elect(world: World, end_offset: int | None = None) -> None:
    """A new leader, without what comes from an offset on, if one is given."""
    broker = world.broker
    partition = broker.topics.partition(*PLACE)
    assert partition is not None
    states = broker.controller.cluster.states["t"]
    after = states[0]._replace(leader_epoch=states[0].leader_epoch + 1, partition_epoch=states[0].partition_epoch + 1)
    if end_offset is not None:
        partition.truncate(end_offset, broker.clock_ms())
    broker.controller.cluster.replay(ChangedStates({"t": {0: after}}))
    partition.apply(
        leader_id=partition.node_id,
        leader_epoch=after.leader_epoch,
        partition_epoch=partition.partition_epoch + 1,
        replicas=[partition.node_id],
        in_sync=[partition.node_id],
        now_ms=broker.clock_ms(),
    )


def filled(world: World) -> None:
    world.create_topic("t")
    world.put("t", b"0", b"1", b"2")
    elect(world)
    for number in range(3, 6):
        world.put("t", b"%d" % number)


async def read(consumer: aio.Consumer | aio.Reader, count: int) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    while len(found) < count:
        for batch in await consumer.poll(1_000):
            found += [(record.offset, record.value) for record in batch.records]
    return found


OTHERS = [(4, b"other 4"), (5, b"other 5"), (6, b"other 6")]


def rewrite(world: World) -> None:
    """As many records as were there, and one more: no offset is out of range."""
    elect(world, 4)
    world.put("t", b"other 4", b"other 5", b"other 6")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_consumer_goes_back_to_where_the_log_parted(protocol: Any, caplog: pytest.LogCaptureFixture) -> None:
    with World() as world:
        filled(world)

        async def main() -> list[tuple[int, bytes]]:
            async with aio.Consumer(
                world.bootstrap, "t", group="g", group_protocol=protocol, start=LATEST, options=OPTIONS
            ) as consumer:
                while PLACE not in consumer.assignment:
                    await consumer.poll(100)
                await consumer.seek(PLACE, 0)
                await read(consumer, 6)
                rewrite(world)
                return await read(consumer, 3)

        assert world.run(main()) == OTHERS
        assert "not in the log any more from 4 on" in caplog.text


def test_without_a_start_it_is_an_error_until_somebody_seeks() -> None:
    with World() as world:
        filled(world)

        async def main() -> list[tuple[int, bytes]]:
            async with aio.Consumer(world.bootstrap, group="g", start=None, options=OPTIONS) as consumer:
                await consumer.commit({PLACE: 0})
                await consumer.assign([PLACE])
                await read(consumer, 6)
                rewrite(world)
                for _ in range(2):
                    with pytest.raises(LogTruncated) as truncated:
                        await read(consumer, 1)
                await consumer.seek(PLACE, truncated.value.offset)
                return await read(consumer, 3)

        assert world.run(main()) == OTHERS


@pytest.mark.parametrize("is_empty", [True, False], ids=["nothing was written since", "others were written"])
def test_what_is_committed_says_in_which_epoch_it_was_read(is_empty: bool) -> None:
    """Whoever goes on from there, another day, is told as well."""
    with World() as world:
        filled(world)

        async def first() -> None:
            async with aio.Consumer(world.bootstrap, "t", group="g", options=OPTIONS) as consumer:
                await read(consumer, 6)
            async with aio.Consumer(world.bootstrap, group="g", options=OPTIONS) as consumer:
                assert await consumer.committed([PLACE]) == {PLACE: Offset(6, leader_epoch=1)}

        async def second() -> list[tuple[int, bytes]]:
            async with aio.Consumer(world.bootstrap, "t", group="g", start=LATEST, options=OPTIONS) as consumer:
                if is_empty:
                    while consumer.assignment != {PLACE} or consumer.position(PLACE) != 4:
                        await consumer.poll(100)
                    world.put("t", *(value for _, value in OTHERS))
                return await read(consumer, 3)

        world.run(first())
        if is_empty:
            elect(world, 4)
        else:
            rewrite(world)
        assert world.run(second()) == OTHERS


@pytest.mark.parametrize("reset", [None, EARLIEST, LATEST])
def test_a_reader_is_told_or_goes_back(reset: Any) -> None:
    with World() as world:
        filled(world)

        async def main() -> list[tuple[int, bytes]]:
            async with aio.Reader(world.bootstrap, "t", reset=reset, options=OPTIONS) as reader:
                await read(reader, 6)
                rewrite(world)
                return await read(reader, 3)

        if reset is None:
            with pytest.raises(LogTruncated, match="up to offset 6 is not in the log any more from 4 on") as raised:
                world.run(main())
            assert raised.value.offset == 4
        else:
            assert world.run(main()) == OTHERS


@pytest.mark.parametrize("begins", ["at the start", "at an offset of another day", "at a bare offset"])
def test_a_reader_of_batches_is_told_each_time_and_reads_the_others_on(begins: str) -> None:
    other = TopicPartition("other", 0)

    async def read_batches(reader: aio.BatchReader, count: int) -> list[tuple[int, bytes | None]]:
        found: list[tuple[int, bytes | None]] = []
        while len(found) < count:
            for data in await reader.poll(1_000):
                for batch in data.visible():
                    found += [(record.offset, record.value) for record in batch.records(data.fetch_offset)]
        return found

    with World() as world:
        filled(world)
        world.create_topic("other")

        async def main() -> list[tuple[int, bytes | None]]:
            async with aio.BatchReader(world.bootstrap, options=OPTIONS) as reader:
                if begins == "at the start":
                    reader.assign({PLACE: 0, other: 0})
                    await read_batches(reader, 6)
                    rewrite(world)
                elif begins == "at an offset of another day":
                    rewrite(world)
                    reader.assign({PLACE: Offset(6, leader_epoch=1), other: 0})
                else:
                    rewrite(world)
                    reader.assign({PLACE: 6, other: 0})
                    return await read_batches(reader, 1)
                for _ in range(2):
                    with pytest.raises(
                        LogTruncated, match="up to offset 6 is not in the log any more from 4 on"
                    ) as told:
                        await read_batches(reader, 1)
                    assert (told.value.topic, told.value.partition) == PLACE
                world.put("other", b"as before")
                assert await read_batches(reader, 1) == [(0, b"as before")]
                reader.assign({PLACE: Offset(told.value.offset, leader_epoch=told.value.epoch)})
                return await read_batches(reader, 3)

        assert world.run(main()) == (OTHERS[2:] if begins == "at a bare offset" else OTHERS)


def test_a_reader_of_batches_is_told_of_an_offset_that_is_gone_whatever_epoch_it_gives() -> None:
    with World() as world:
        filled(world)

        async def main() -> None:
            async with aio.BatchReader(world.bootstrap, options=OPTIONS) as reader:
                reader.assign({PLACE: Offset(3, leader_epoch=0)})
                partition = world.broker.topics.partition(*PLACE)
                assert partition is not None
                partition.log.advance_log_start(5)
                with pytest.raises(ServerError, match="offset 3 is not in the partition"):
                    await reader.poll(5_000)

        world.run(main())


def test_a_new_leader_that_has_everything_is_read_on() -> None:
    with World() as world:
        filled(world)

        async def main() -> list[tuple[int, bytes]]:
            async with aio.Reader(world.bootstrap, "t", options=OPTIONS) as reader:
                await read(reader, 6)
                elect(world)
                elect(world)
                world.put("t", b"6")
                return await read(reader, 1)

        assert world.run(main()) == [(6, b"6")]


# The machine.


def test_the_epoch_of_the_record_before_an_offset() -> None:
    epochs = LeaderEpochs()
    assert epochs.before(5) == UNKNOWN
    epochs.begin(2)
    epochs.took([(5, 2), (8, 4)])
    epochs.took([(10, 4)])
    assert [epochs.before(offset) for offset in (5, 8, 9, 20)] == [2, 2, 4, 4]
    epochs.took([(12, 5)])
    epochs.forget_before(12)
    assert [epochs.before(offset) for offset in (12, 13)] == [4, 5]
    epochs.cut(12)
    assert epochs.to_check(7) == 4


def test_each_leader_is_told_once() -> None:
    epochs = LeaderEpochs()
    assert epochs.to_check(3) == UNKNOWN
    epochs.took([(0, 3)])
    epochs.checked(3)
    assert epochs.to_check(3) == UNKNOWN
    assert epochs.to_check(4) == 3
    epochs.checked(4)
    assert epochs.to_check(4) == UNKNOWN
    assert epochs.to_check(2) == UNKNOWN  # what is known of the cluster is old


@pytest.mark.parametrize(
    ("epoch", "offset", "before"), [(5, 20, 5), (4, 12, 4), (3, 8, 2), (2, 8, 2), (1, 8, 1)],
)  # fmt: skip
def test_where_two_logs_part_is_where_the_first_epoch_begins_that_one_of_them_does_not_have(
    epoch: int, offset: int, before: int
) -> None:
    epochs = LeaderEpochs()
    epochs.begin(2)
    epochs.took([(8, 4), (12, 5)])
    parted = epochs.parted(LogTruncated("t", 0, 25, 20, epoch))
    assert (parted.offset, parted.epoch, parted.read_offset) == (offset, before, 25)
