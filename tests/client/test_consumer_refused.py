"""Every error code of every API that a consumer calls, and one that nobody knows: nothing is lost, nothing hidden, no
partition stays unread. Whoever goes on after an error reads everything.

The codes that mean something to a consumer, in each run; all that there are with OTTLA_EVERY_CODE=1.
"""

from __future__ import annotations

import os
import re
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
ALL_CODES = [int(code) for code in ErrorCode if code] + [UNKNOWN_CODE]
# Others are all one to a client: an error that does not pass.
TELLING_CODES = [
    code
    for code in ErrorCode
    if code
    and (code.retriable or re.search("MEMBER|GROUP|INSTANCE|GENERATION|EPOCH|OFFSET|UNKNOWN|CORRUPT", code.name))
]
CODES = ALL_CODES if os.environ.get("OTTLA_EVERY_CODE") else [*TELLING_CODES, UNKNOWN_CODE]
CLASSIC: dict[str, Any] = {"assignors": ["range"]}
NEW: dict[str, Any] = {"group_protocol": "consumer"}
CALLS: list[tuple[str, int, dict[str, Any]]] = [
    ("Metadata", 1, CLASSIC),
    ("FindCoordinator", 0, CLASSIC),
    ("JoinGroup", 0, CLASSIC),
    ("JoinGroup", 1, CLASSIC),
    ("SyncGroup", 0, CLASSIC),
    ("Heartbeat", 1, CLASSIC),
    ("LeaveGroup", 0, CLASSIC),
    ("ConsumerGroupHeartbeat", 0, NEW),
    ("ConsumerGroupHeartbeat", 2, NEW),
    ("OffsetFetch", 0, CLASSIC),
    ("OffsetCommit", 0, CLASSIC),
    ("OffsetCommit", 0, NEW),
    ("OffsetCommit", 0, {"delivery": "at-most-once"}),
    ("ListOffsets", 0, CLASSIC),
    ("Fetch", 0, CLASSIC),
    ("Fetch", 1, NEW),
]
"""An API, how many of its requests pass before, and the options of the consumer."""
FATAL = {ErrorCode.FENCED_INSTANCE_ID}  # for a member: another has taken its place


@pytest.mark.parametrize(("api", "after", "options"), CALLS)
def test_each_code_twice(api: str, after: int, options: dict[str, Any]) -> None:
    for code in CODES:
        _refuse_twice(api, code, after, options)


def _refuse_twice(api: str, code: int, after: int, options: dict[str, Any]) -> None:
    with World(code) as world:
        world.create_topic(TOPIC, partitions=PARTITIONS)
        for partition in range(PARTITIONS):
            world.put(TOPIC, *(b"%d" % number for number in range(RECORDS)), partition=partition)
        rule = world.faults.error(api, code, times=2, after=after)
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


async def _read_all(world: World, seen: Counter[tuple[int, int]], options: dict[str, Any], name: str) -> None:
    errors: list[ClientError] = []
    for _ in range(4):  # a program that is started again when its consumer cannot go on
        consumer = aio.Consumer(
            world.bootstrap, TOPIC, group=GROUP, heartbeat_ms=200, session_timeout_ms=6_000,
            fetch_wait_ms=50, auto_commit_ms=100, options=OPTIONS, **options,
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
