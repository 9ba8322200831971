"""Places in partitions: the first, the last, one by time, and the offsets that they have."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from enum import Enum, IntEnum
from typing import NamedTuple, TypeAlias

from ottla.client.checks import check_offset
from ottla.client.errors import ClientError, MalformedAnswer, ServerError
from ottla.client.network.cluster import Cluster
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

_CONSUMER = -1  # in place of a replica's id
_NOT_FOUND = -1


class Isolation(IntEnum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class Edge(Enum):
    """The ends of a partition, by the number that stands for them where a timestamp is asked for."""

    EARLIEST = -2
    LATEST = -1


EARLIEST = Edge.EARLIEST
LATEST = Edge.LATEST


class AtTime(NamedTuple):
    """The first record that is not older; where there is none, the end."""

    timestamp_ms: int


Position: TypeAlias = int | Edge | AtTime
"""An offset, or what stands for one."""


def check_position(position: object) -> None:
    """None, which is no position, is nobody's mistake here."""
    if isinstance(position, AtTime):
        if isinstance(position.timestamp_ms, bool) or not isinstance(position.timestamp_ms, int):
            raise TypeError(f"a time is an int of milliseconds since 1970, not {position.timestamp_ms!r}")
        check_offset(max(position.timestamp_ms, 0))
    elif position is not None and not isinstance(position, Edge):
        check_offset(position)


async def find_offsets(
    cluster: Cluster,
    topic: str,
    partitions: Iterable[int],
    position: Position,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> dict[int, int]:
    """The offsets of a position by partition. The end is where the next record comes, or, committed, may be read.

    What has failed is asked for again alone, as long as that may help.
    """
    check_position(position)
    wanted = list(partitions)
    found: dict[int, int] = {}

    async def attempt() -> None:
        missing = [index for index in wanted if index not in found]
        answered = await ask_for_offsets(cluster, topic, missing, position, isolation)
        found.update((index, offset) for index, offset in answered.items() if isinstance(offset, int))
        for offset in answered.values():
            if isinstance(offset, ClientError):
                raise offset

    await cluster.retry(attempt)
    return {index: found[index] for index in wanted}


async def ask_for_offsets(
    cluster: Cluster, topic: str, partitions: list[int], position: Position, isolation: Isolation
) -> dict[int, int | ClientError]:
    """One attempt: the offset of each partition, or what is wrong with it."""
    match position:
        case Edge():
            return await _ask_leaders(cluster, topic, partitions, position.value, isolation)
        case AtTime(timestamp_ms):
            found = await _ask_leaders(cluster, topic, partitions, max(timestamp_ms, 0), isolation)
            missing = [partition for partition, offset in found.items() if offset == _NOT_FOUND]
            if missing:
                found |= await _ask_leaders(cluster, topic, missing, LATEST.value, isolation)
            return found
    return dict.fromkeys(partitions, position)


async def _ask_leaders(
    cluster: Cluster, topic: str, partitions: list[int], timestamp: int, isolation: Isolation
) -> dict[int, int | ClientError]:
    """Each leader is asked for its own partitions, at the same time."""
    found: dict[int, int | ClientError] = {}
    by_leader: defaultdict[int, list[int]] = defaultdict(list)
    try:
        await cluster.topic(topic)  # once for all: one that is not there is waited for, for a moment
    except ClientError as error:
        return dict.fromkeys(partitions, error)
    for index in partitions:
        try:
            by_leader[(await cluster.partition(topic, index)).leader_id].append(index)
        except ClientError as error:
            found[index] = error

    async def ask(leader_id: int, indexes: list[int]) -> None:
        try:
            answered = await _ask(cluster, leader_id, topic, indexes, timestamp, isolation)
        except ClientError as error:
            found.update(dict.fromkeys(indexes, error))
        else:
            found.update({index: answered.get(index, _left_out(topic, index)) for index in indexes})

    await asyncio.gather(*(ask(leader_id, indexes) for leader_id, indexes in by_leader.items()))
    if any(isinstance(offset, ClientError) for offset in found.values()):
        cluster.forget(topic)
    return found


def _left_out(topic: str, index: int) -> MalformedAnswer:
    return MalformedAnswer("the answer to ListOffsets leaves out a partition", topic=topic, partition=index)


async def _ask(
    cluster: Cluster, leader_id: int, topic: str, indexes: list[int], timestamp: int, isolation: Isolation
) -> dict[int, int | ServerError]:
    asked = [ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in indexes]
    request = ListOffsetsRequest(
        replica_id=_CONSUMER,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=topic, partitions=asked)],
        timeout_ms=cluster.options.request_timeout_ms,
    )
    answer = await cluster.ask(leader_id, request, ListOffsetsResponse)
    return {
        row.partition_index: ServerError(row.error_code, topic=topic, partition=row.partition_index)
        if row.error_code
        else row.offset
        for answered in answer.topics
        for row in answered.partitions
    }
