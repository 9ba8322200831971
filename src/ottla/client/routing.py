"""Records to be written, and which partition each goes to."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from ottla.client.errors import InvalidRecord, ServerError
from ottla.client.metadata import Topic
from ottla.wire.errors import ErrorCode

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_SHIFT = 24
_UINT32 = 0xFFFF_FFFF


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

    def next(self) -> int:
        if not self.available:
            raise ServerError(ErrorCode.LEADER_NOT_AVAILABLE, "no partition has a leader", topic=self.topic.name)
        self.turn += 1
        return self.available[self.turn % len(self.available)]


class Router:
    """The partition given, else that of the key, else one after the other, over those that have a leader."""

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed)
        self._turns: dict[str, _Turns] = {}

    def route(self, topic: Topic, record: NewRecord) -> int:
        count = len(topic.partitions)
        if record.partition is not None:
            if not 0 <= record.partition < count:
                raise InvalidRecord(
                    f"topic {topic.name} has no partition {record.partition}: it has {count}",
                    topic=topic.name,
                    partition=record.partition,
                )
            return record.partition
        if record.key is not None:
            return partition_of_key(record.key, count)
        turns = self._turns.get(topic.name)
        if turns is None or turns.topic is not topic:
            # Not everybody's first record is to go to partition 0.
            first = self._random.randrange(count or 1) if turns is None else turns.turn
            turns = self._turns[topic.name] = _Turns(topic, first)
        return turns.next()
