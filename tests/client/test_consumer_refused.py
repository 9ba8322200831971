"""Every error code of every API that a consumer calls, and codes that nobody knows: nothing is lost, nothing hidden, no
partition stays unread. What does not pass is told; whoever goes on after it reads everything."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from ottla.client import ClientError, ClientOptions, aio
from ottla.testing.world import World
from ottla.wire.errors import ErrorCode
from tests.client_sim.consuming import GROUP, TOPIC, committed_offsets

PARTITIONS = 2
RECORDS = 5
OPTIONS = ClientOptions(request_timeout_ms=2_000, retry_timeout_ms=5_000)
UNKNOWN_CODE = 30_000
CODES = [int(code) for code in ErrorCode if code] + [UNKNOWN_CODE]
CLASSIC: dict[str, Any] = {"assignors": ["range"]}
NEW: dict[str, Any] = {"group_protocol": "consumer"}
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("Metadata", CLASSIC),
    ("FindCoordinator", CLASSIC),
    ("JoinGroup", CLASSIC),
    ("SyncGroup", CLASSIC),
    ("Heartbeat", CLASSIC),
    ("LeaveGroup", CLASSIC),
    ("ConsumerGroupHeartbeat", NEW),
    ("OffsetFetch", CLASSIC),
    ("OffsetCommit", CLASSIC),
    ("OffsetCommit", NEW),
    ("OffsetCommit", {"delivery": "at-most-once"}),
    ("ListOffsets", CLASSIC),
    ("Fetch", CLASSIC),
]
FATAL = {ErrorCode.FENCED_INSTANCE_ID}  # for a member: another has taken its place


@pytest.mark.parametrize(("api", "options"), CALLS, ids=[f"{api}-{'-'.join(map(str, o))}" for api, o in CALLS])
def test_each_code_twice(api: str, options: dict[str, Any]) -> None:
    for code in CODES:
        _refuse_twice(api, code, options)


def _refuse_twice(api: str, code: int, options: dict[str, Any]) -> None:
    with World(code) as world:
        world.create_topic(TOPIC, partitions=PARTITIONS)
        for partition in range(PARTITIONS):
            world.put(TOPIC, *(b"%d" % number for number in range(RECORDS)), partition=partition)
        rule = world.faults.error(api, code, times=2, after=0 if api in ("LeaveGroup", "OffsetCommit") else 1)
        seen: Counter[tuple[int, int]] = Counter()
        name = f"{api} {code}"
        world.run(_read_all(world, seen, options, name), most_seconds=200)
        assert len(seen) == PARTITIONS * RECORDS, name
        if options.get("delivery") == "at-most-once":
            assert set(seen.values()) == {1}, name
        world.advance(30)
        assert world.leftovers() == [], name
        assert rule.count, f"{name} was never asked for"
        for place, offset in committed_offsets(world).items():
            assert {(place.partition, index) for index in range(offset)} <= set(seen), name


async def _read_all(
    world: World, seen: Counter[tuple[int, int]], options: dict[str, Any], name: str
) -> None:
    errors: list[ClientError] = []
    for _ in range(4):  # a program that is started again when its consumer cannot go on
        consumer = aio.Consumer(
            world.bootstrap, TOPIC, group=GROUP, heartbeat_ms=200, fetch_wait_ms=50, auto_commit_ms=100,
            options=OPTIONS, **options,
        )  # fmt: skip
        try:
            await consumer.open()
        except ClientError as error:
            errors.append(error)
            continue
        try:
            if await _read(world, consumer, seen, errors):
                return
        finally:
            await consumer.close()
    raise AssertionError(f"{name}: not read after {errors}")


async def _read(
    world: World, consumer: aio.Consumer, seen: Counter[tuple[int, int]], errors: list[ClientError]
) -> bool:
    """Goes on after any error that is not for ever; whether all was seen."""
    end = world.now() + 40
    quiet_polls = 0
    while world.now() < end:
        try:
            batches = await consumer.poll(200)
        except ClientError as error:
            errors.append(error)
            if getattr(error, "code", 0) in FATAL and len(errors) > 3:
                return False
            continue
        seen.update((batch.partition, record.offset) for batch in batches for record in batch.records)
        quiet_polls = 0 if batches else quiet_polls + 1
        if len(seen) == PARTITIONS * RECORDS and quiet_polls > 3:
            return True
    return False
