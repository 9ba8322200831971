"""Records to be written, and which partition each goes to."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from itertools import repeat
from typing import NamedTuple

from ottla.client.errors import InvalidRecord, ServerError
from ottla.client.network.metadata import Topic
from ottla.client.producer.chunk import Chunk, Indexes
from ottla.records.key_hash import NO_KEY, partitions_of_keys
from ottla.wire.errors import ErrorCode


class NewRecord(NamedTuple):
    """A record as its producer gives it. Without a timestamp it gets the time it is sent at."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class _Turns:
    """Whose turn it is among the partitions that can take records, as long as the topic is as it was."""

    def __init__(self, topic: Topic, first: int) -> None:
        self.topic = topic
        self.available = [partition.index for partition in topic.partitions if partition.has_leader]
        self.turn = first
        self.sent_bytes = 0
        """To the partition whose turn it is, where turns are long."""

    def next(self) -> int:
        self.check()
        self.turn += 1
        return self.available[self.turn % len(self.available)]

    def check(self) -> None:
        if not self.available:
            raise ServerError(ErrorCode.LEADER_NOT_AVAILABLE, "no partition has a leader", topic=self.topic.name)


class Router:
    """The partition given, else that of the key, else one after the other, over those that have a leader.

    `sticky_bytes` makes the turns of records without a key longer: as many bytes as that, at least, to one
    partition before it is the next one's turn. 0: one record.
    """

    def __init__(self, seed: int | None = None, sticky_bytes: int = 0) -> None:
        self._random = random.Random(random.getrandbits(64) if seed is None else seed)
        self._sticky_bytes = sticky_bytes
        self._turns: dict[str, _Turns] = {}

    def spread(self, topic: Topic, chunk: Chunk) -> dict[int, Indexes]:
        """The numbers of the records by partition. InvalidRecord, and nothing is changed, if one has none."""
        if chunk.partitions is not None:
            self._check_partitions(topic, chunk.partitions)
        if chunk.keys is None and chunk.partitions is None:
            return self._spread_evenly(topic, chunk)
        found: defaultdict[int, list[int]] = defaultdict(list)
        count = len(topic.partitions)
        keyed = partitions_of_keys(chunk.keys, count) if chunk.keys is not None else repeat(NO_KEY)
        turns = self._turns_of(topic)
        for index, (given, of_key) in enumerate(zip(chunk.partitions or repeat(None), keyed, strict=False)):
            if index == chunk.count:
                break
            partition = of_key if given is None else given
            found[turns.next() if partition == NO_KEY else partition].append(index)
        return dict(found)

    def _spread_evenly(self, topic: Topic, chunk: Chunk) -> dict[int, Indexes]:
        """By slices of the chunk: nothing is done for each record."""
        turns = self._turns_of(topic)
        turns.check()
        count = len(turns.available)
        if self._sticky_bytes:
            turns.sent_bytes += chunk.size_bytes
            partition = turns.available[turns.turn % count]
            if turns.sent_bytes >= self._sticky_bytes:
                turns.sent_bytes = 0
                turns.turn += 1
            return {partition: range(chunk.count)}
        first = turns.turn + 1
        turns.turn += chunk.count
        return {
            turns.available[(first + number) % count]: range(number, chunk.count, count)
            for number in range(min(count, chunk.count))
        }

    def _turns_of(self, topic: Topic) -> _Turns:
        turns = self._turns.get(topic.name)
        if turns is None or turns.topic is not topic:
            # Not everybody's first record is to go to partition 0.
            first = self._random.randrange(len(topic.partitions) or 1) if turns is None else turns.turn
            turns = self._turns[topic.name] = _Turns(topic, first)
        return turns

    def _check_partitions(self, topic: Topic, partitions: list[int | None]) -> None:
        count = len(topic.partitions)
        for partition in partitions:
            if partition is not None and not 0 <= partition < count:
                raise InvalidRecord(
                    f"topic {topic.name} has no partition {partition}: it has {count}",
                    topic=topic.name,
                    partition=partition,
                )
