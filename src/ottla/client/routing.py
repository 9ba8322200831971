"""Records to be written, and which partition each goes to."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from itertools import repeat
from typing import NamedTuple

from ottla.client.chunk import Chunk, Indexes
from ottla.client.errors import InvalidRecord, ServerError
from ottla.client.metadata import Topic
from ottla.wire.errors import ErrorCode

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_SHIFT = 24
_UINT32 = 0xFFFF_FFFF
_MOST_HASHES = 10_000  # of keys that come again and again


class NewRecord(NamedTuple):
    """A record as its producer gives it. Without a timestamp it gets the time it is sent at."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


def murmur2(data: bytes) -> int:
    """Kafka's hash of keys: 32 bits, unsigned."""
    size = len(data)
    hashed = _SEED ^ size
    whole = size & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * _MULTIPLIER & _UINT32
        word = (word ^ word >> _SHIFT) * _MULTIPLIER & _UINT32
        hashed = hashed * _MULTIPLIER & _UINT32 ^ word
    if whole < size:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _UINT32
    hashed = (hashed ^ hashed >> 13) * _MULTIPLIER & _UINT32
    return hashed ^ hashed >> 15


def partition_of_key(key: bytes, partition_count: int) -> int:
    """Where Kafka's own producers write a key, so that all writers agree."""
    return (murmur2(key) & 0x7FFF_FFFF) % partition_count


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
        self._random = random.Random(seed)
        self._sticky_bytes = sticky_bytes
        self._turns: dict[str, _Turns] = {}
        self._hashes: dict[bytes, int] = {}

    def spread(self, topic: Topic, chunk: Chunk) -> dict[int, Indexes]:
        """The numbers of the records by partition. InvalidRecord, and nothing is changed, if one has none."""
        if chunk.partitions is not None:
            self._check_partitions(topic, chunk.partitions)
        if chunk.keys is None and chunk.partitions is None:
            return self._spread_evenly(topic, chunk)
        found: defaultdict[int, list[int]] = defaultdict(list)
        count = len(topic.partitions)
        keys = chunk.keys or repeat(None)
        partitions = chunk.partitions or repeat(None)
        turns = self._turns_of(topic)
        for index, (partition, key) in enumerate(zip(partitions, keys, strict=False)):
            if index == chunk.count:
                break
            if partition is None:
                partition = turns.next() if key is None else (self._hash(key) & 0x7FFF_FFFF) % count
            found[partition].append(index)
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

    def _hash(self, key: bytes) -> int:
        found = self._hashes.get(key)
        if found is None:
            if len(self._hashes) >= _MOST_HASHES:
                self._hashes.clear()
            found = self._hashes[key] = murmur2(key)
        return found

    def _check_partitions(self, topic: Topic, partitions: list[int | None]) -> None:
        count = len(topic.partitions)
        for partition in partitions:
            if partition is not None and not 0 <= partition < count:
                raise InvalidRecord(
                    f"topic {topic.name} has no partition {partition}: it has {count}",
                    topic=topic.name,
                    partition=partition,
                )
