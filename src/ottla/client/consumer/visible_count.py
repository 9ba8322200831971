"""How many records a reader of committed records would get between two offsets, whoever the brokers are.

No request of the protocol tells it. So what lies between is fetched, and only the headers of batches are read.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ottla.client.consumer.fetch import FetchLimits, Wanted, fetch
from ottla.client.consumer.fetched_data import FetchedData
from ottla.client.errors import ClientError, ServerError
from ottla.client.group.offsets import TopicPartition
from ottla.client.network.cluster import Cluster
from ottla.client.offsets import EARLIEST, Isolation, find_offsets
from ottla.wire.errors import ErrorCode

Advance: TypeAlias = Callable[[TopicPartition, int], None]
"""Is told how many offsets of a partition were passed."""

_LIMITS = FetchLimits(partition_bytes=4 << 20, fetch_bytes=32 << 20)


@dataclass
class _Counting:
    place: TopicPartition
    offset: int
    end_offset: int
    advance: Advance
    count: int = 0

    @property
    def is_done(self) -> bool:
        return self.offset >= self.end_offset

    def move_to(self, offset: int) -> None:
        offset = min(offset, self.end_offset)
        if offset > self.offset:
            self.advance(self.place, offset - self.offset)
            self.offset = offset

    def take(self, data: FetchedData) -> None:
        self.count += sum(batch.count_between(self.offset, self.end_offset) for batch in data.visible())
        self.move_to(data.next_offset)


async def count_visible(
    cluster: Cluster, ranges: Mapping[TopicPartition, tuple[int, int]], advance: Advance = lambda *_: None
) -> dict[TopicPartition, int]:
    """From the first offset of each range on, below the second, which is not above the last stable offset.

    Leaders are asked at the same time, each for all its partitions at once.
    """
    countings = [_Counting(place, *edges, advance) for place, edges in ranges.items()]

    async def attempt() -> None:
        by_leader: defaultdict[int, list[_Counting]] = defaultdict(list)
        for one in countings:
            if not one.is_done:
                by_leader[(await cluster.partition(*one.place)).leader_id].append(one)
        results = await asyncio.gather(
            *(_ask(cluster, leader_id, asked) for leader_id, asked in by_leader.items()), return_exceptions=True
        )
        for error in results:
            if error is not None:
                for one in countings:
                    cluster.forget(one.place.topic)
                raise error

    while not all(one.is_done for one in countings):
        await cluster.retry(attempt)
    return {one.place: one.count for one in countings}


async def _ask(cluster: Cluster, leader_id: int, asked: Iterable[_Counting]) -> None:
    countings = {one.place: one for one in asked}
    wanted = [await _wanted(cluster, one) for one in countings.values()]
    answer = await fetch(cluster, leader_id, wanted, isolation=Isolation.READ_COMMITTED, limits=_LIMITS, wait_ms=0)
    moved = False
    trouble: ClientError | None = None
    for one, portion in answer:
        counting = countings[TopicPartition(one.topic, one.partition)]
        before = counting.offset
        if isinstance(portion, ClientError):
            if not isinstance(portion, ServerError) or portion.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                trouble = portion
                continue
            await _skip_what_is_gone(cluster, counting)
        else:
            counting.take(portion)
        moved = moved or counting.offset > before
    if trouble is not None:
        raise trouble
    if answer and not moved:  # a broker that throttles leaves all of them out
        # An answer has room for one batch at least, so there is none: compaction has removed all up to the end.
        for counting in countings.values():
            counting.move_to(counting.end_offset)


async def _wanted(cluster: Cluster, one: _Counting) -> Wanted:
    topic, index = one.place
    partition = await cluster.partition(topic, index)
    return Wanted(topic, (await cluster.topic(topic)).topic_id, index, one.offset, partition.leader_epoch)


async def _skip_what_is_gone(cluster: Cluster, counting: _Counting) -> None:
    """Retention has moved the start meanwhile, and what nobody can read is no lag."""
    topic, partition = counting.place
    counting.move_to((await find_offsets(cluster, topic, [partition], EARLIEST))[partition])
