"""Partitions and offsets as users give them: what cannot be is refused before anything is asked or changed."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.client import EARLIEST, GroupOffsets, Membership, Message, Offset, Reader, TopicPartition, aio
from ottla.client.consumer import start_offsets
from ottla.testing.world import World

PLACE = TopicPartition("t", 0)

NO_PLACES = [
    ("t", TypeError, r"a partition is a TopicPartition\(topic, number\), not 't'"),
    (5, TypeError, r"a partition is a TopicPartition\(topic, number\), not 5"),
    (None, TypeError, r"a partition is a TopicPartition\(topic, number\), not None"),
    ((0, "t"), TypeError, "a partition is a TopicPartition"),
    (("t", 0, 5), TypeError, "a partition is a TopicPartition"),
    (("t", "0"), TypeError, "a partition is an int, not '0'"),
    (("t", True), TypeError, "a partition is an int, not True"),
    (("t", -1), ValueError, r"a partition is a number from 0 to 2\*\*31 - 1, not -1"),
    (("t", 1 << 31), ValueError, "a partition is a number from 0 to"),
    (("t\udc80", 0), ValueError, "a topic has up to 249 of the characters"),
    (("..", 0), ValueError, "a topic is not called '..'"),
]
NO_LISTS = [
    (PLACE, r"partitions are a list of TopicPartition, not .*; for one: \[TopicPartition\(...\)\]"),
    ("t-0", "partitions are a list of TopicPartition, not 't-0'"),
    (5, "partitions are a list of TopicPartition, not 5"),
]
NO_OFFSETS = [
    ("0", TypeError, "an offset is an int, not '0'"),
    (None, TypeError, "an offset is an int, not None"),
    (-1, ValueError, "an offset is a number from 0 to"),
    (Offset("0"), TypeError, "an offset is an int, not '0'"),  # type: ignore[arg-type]
    (Offset(0, 5), TypeError, "metadata is a str, not 5"),  # type: ignore[arg-type]
    (Offset(0, "x" * 40_000), ValueError, "metadata has at most 32,767 bytes"),
    (Offset(0, leader_epoch="0"), TypeError, "a leader epoch is an int, not '0'"),  # type: ignore[arg-type]
    (Offset(0, leader_epoch=1 << 31), ValueError, "a leader epoch is a number from 0 to"),
]


@pytest.mark.parametrize(("given", "kind", "says"), NO_PLACES)
def test_no_partition(given: Any, kind: type[Exception], says: str) -> None:
    with World() as world:
        world.create_topic("t")
        world.put("t", b"0")

        async def main() -> None:
            async with aio.Admin(world.bootstrap) as admin, aio.Consumer(world.bootstrap, group="g") as one:
                await one.assign([PLACE])
                for call in (
                    lambda: one.assign([PLACE, given]), lambda: one.seek(given, EARLIEST),
                    lambda: one.committed([given]), lambda: one.commit({given: 1}),
                    lambda: admin.elect_leaders([given]),
                    lambda: admin.alter_partition_reassignments({given: [0]}),
                    lambda: admin.list_partition_reassignments([given]),
                    lambda: admin.list_group_offsets("g", [given]), lambda: admin.alter_group_offsets("g", {given: 1}),
                    lambda: admin.delete_group_offsets("g", [given]), lambda: admin.group_lags("g", [given]),
                    lambda: admin.count_records({given: (0, 1)}), lambda: admin.delete_records({given: 1}),
                    lambda: admin.describe_log_dirs(partitions=[given]),
                ):  # fmt: skip
                    with pytest.raises(kind, match=says):
                        await call()
                for do in (one.pause, one.resume, one.position):
                    with pytest.raises(kind, match=says):
                        do(given)
                batches = aio.BatchReader(world.bootstrap)
                with pytest.raises(kind, match=says):
                    batches.assign({given: 0})
                with pytest.raises(kind, match=says):
                    batches.drop([given])
                assert one.assignment == {PLACE}
                assert [batch.next_offset for batch in await one.poll(1_000)] == [1]
                assert await admin.find_offsets("t", EARLIEST) == {0: 0}

        world.run(main())


@pytest.mark.parametrize(("given", "says"), NO_LISTS)
def test_no_list_of_partitions(given: Any, says: str) -> None:
    with World() as world:
        world.create_topic("t")

        async def main() -> None:
            async with aio.Admin(world.bootstrap) as admin, aio.Consumer(world.bootstrap, group="g") as one:
                await one.assign([PLACE])
                for call in (one.assign, one.committed, admin.elect_leaders):
                    with pytest.raises(TypeError, match=says):
                        await call(given)
                assert one.assignment == {PLACE}

        world.run(main())


@pytest.mark.parametrize(("given", "kind", "says"), NO_OFFSETS)
def test_no_offset(given: Any, kind: type[Exception], says: str) -> None:
    with World() as world:
        world.create_topic("t")

        async def main() -> None:
            async with (
                aio.Admin(world.bootstrap) as admin,
                aio.Consumer(world.bootstrap, group="g") as one,
                aio.Producer(world.bootstrap, transactional_id="x") as producer,
            ):
                await one.assign([PLACE])
                with pytest.raises(kind, match=says):
                    await one.commit({PLACE: given})
                with pytest.raises(kind, match=says):
                    await admin.alter_group_offsets("g", {PLACE: given})
                if isinstance(given, Offset):
                    with pytest.raises(kind, match=says):
                        async with producer.transaction() as transaction:
                            await transaction.send_offsets(GroupOffsets(Membership("g"), {PLACE: given}))
                elif given != -1:  # of which all is deleted
                    with pytest.raises(kind, match=says):
                        await admin.delete_records({PLACE: given})
                async with producer.transaction() as transaction:
                    await transaction.send_offsets(GroupOffsets(Membership("g"), {PLACE: Offset(0)}))
                assert await admin.list_group_offsets("g") == {PLACE: Offset(0)}

        world.run(main())


def test_pairs_and_all_kinds_of_lists_are_partitions() -> None:
    with World() as world:
        world.create_topic("t", partitions=2)

        async def main() -> None:
            async with aio.Admin(world.bootstrap) as admin, aio.Consumer(world.bootstrap, group="g") as one:
                await one.assign(("t", index) for index in range(2))  # type: ignore[misc]
                assert one.assignment == {PLACE, TopicPartition("t", 1)}
                assert one.position(("t", 0)) == 0  # type: ignore[arg-type]
                await one.commit({("t", 0): 5})  # type: ignore[dict-item]
                assert await admin.list_group_offsets("g", {PLACE: None}) == {PLACE: Offset(5)}

        world.run(main())


@pytest.mark.parametrize(
    ("given", "kind", "says"),
    [("01", TypeError, r"partitions are a list of numbers, not '01'; for one: \['01'\]"),
     (5, TypeError, "partitions are a list of numbers, not 5"), (["0"], TypeError, "a partition is an int, not '0'"),
     ([-1], ValueError, "a partition is a number"), ([[0]], TypeError, "a partition is an int")],
)  # fmt: skip
def test_no_numbers_of_partitions(given: Any, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        Reader("localhost:1", "t", partitions=given)
    with World() as world:
        world.create_topic("t")

        async def main() -> None:
            async with aio.Admin(world.bootstrap) as admin:
                with pytest.raises(kind, match=says):
                    await admin.find_offsets("t", EARLIEST, given)

        world.run(main())


def test_handlers_may_be_plain_functions() -> None:
    with World() as world:
        world.create_topic("t")
        world.put("t", b"0", b"1")

        async def main() -> None:
            async with aio.Consumer(world.bootstrap, "t", group="g") as one:
                with pytest.raises(TypeError, match="handler is a function, not 5"):
                    await one.run(5)  # type: ignore[arg-type]

                def handle(message: Message) -> None:
                    handled.append(message.value)
                    if len(handled) == 2:
                        one.stop()

                await one.run(handle)

        handled: list[bytes | None] = []
        world.run(main())
        assert handled == [b"0", b"1"]


def test_a_mistake_in_the_background_is_raised_to_who_waits_for_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    async def mistaken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(start_offsets, "ask_for_offsets", mistaken)
    with World() as world:
        world.create_topic("t")

        async def main() -> None:
            async with aio.Consumer(world.bootstrap, group="g") as one:
                for _ in range(2):
                    with pytest.raises(ZeroDivisionError):
                        await one.assign([PLACE])

        world.run(main(), most_seconds=30)
