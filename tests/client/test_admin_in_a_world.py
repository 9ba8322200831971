"""What an administrator only reads is asked again, whichever of its requests is lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

import pytest

from ottla.client import EARLIEST, ClientOptions, Resource, ResourceKind, ServerError, TopicPartition, aio
from ottla.testing.world import World

OPTIONS = ClientOptions(request_timeout_ms=2_000, retry_timeout_ms=20_000)
READS: dict[str, Callable[[aio.Admin], Awaitable[Any]]] = {
    "list_topics": lambda admin: admin.list_topics(),
    "describe_topics": lambda admin: admin.describe_topics(["t"]),
    "find_offsets": lambda admin: admin.find_offsets("t", EARLIEST),
    "describe_configs": lambda admin: admin.describe_configs([Resource(ResourceKind.TOPIC, "t")]),
    "describe_cluster": lambda admin: admin.describe_cluster(),
    "list_partition_reassignments": lambda admin: admin.list_partition_reassignments(),
    "list_groups": lambda admin: admin.list_groups(),
    "describe_groups": lambda admin: admin.describe_groups(["g"]),
    "list_group_offsets": lambda admin: admin.list_group_offsets("g"),
    "group_lags": lambda admin: admin.group_lags("g"),
    "count_records": lambda admin: admin.count_records({TopicPartition("t", 0): (0, 2)}),
    "list_transactions": lambda admin: admin.list_transactions(),
    "describe_transaction": lambda admin: admin.describe_transaction("tx"),
    "describe_producers": lambda admin: admin.describe_producers("t"),
    "describe_log_dirs": lambda admin: admin.describe_log_dirs(),
    "describe_quotas": lambda admin: admin.describe_quotas(),
}


async def fill(world: World) -> None:
    async with aio.Producer(world.bootstrap, transactional_id="tx") as producer, producer.transaction():
        await producer.send_many("t", [b"x", b"y"])
    async with aio.Consumer(world.bootstrap, "t", group="g") as consumer:
        async for message in consumer:
            if message.offset == 1:
                break


@pytest.mark.parametrize("name", READS)
def test_whichever_answer_is_lost_or_whether_the_broker_is_away(name: str) -> None:
    with World() as world:
        world.create_topic("t")
        world.run(fill(world))

        async def ask(lost: int | None) -> tuple[Any, int]:
            async with aio.Admin(world.bootstrap, OPTIONS) as admin:
                rule = world.faults.lose_answer("*", after=1_000 if lost is None else lost)
                try:
                    return await READS[name](admin), rule.count
                finally:
                    rule.cancel()

        expected, _ = world.run(ask(None))
        for lost in count():
            found, was_lost = world.run(ask(lost), most_seconds=100)
            assert found == expected
            if not was_lost:
                assert lost >= 1
                break

        async def ask_one_that_crashes() -> None:
            async with aio.Admin(world.bootstrap, OPTIONS) as admin:
                world.crash(3)
                await READS[name](admin)

        world.run(ask_one_that_crashes(), most_seconds=100)


def test_a_group_whose_deletion_was_not_answered_is_deleted_all_the_same() -> None:
    with World() as world:
        world.create_topic("t")
        world.run(fill(world))

        async def main() -> None:
            async with aio.Admin(world.bootstrap, OPTIONS) as admin:
                await admin.alter_group_offsets("doomed", {TopicPartition("t", 0): 1})
                lost = world.faults.lose_answer("DeleteGroups")
                assert await admin.delete_groups(["doomed"]) == ["doomed"]
                assert lost.count == 1
                with pytest.raises(ServerError) as refused:
                    await admin.delete_groups(["doomed"])
                assert refused.value.name == "GROUP_ID_NOT_FOUND"

        world.run(main(), most_seconds=100)
