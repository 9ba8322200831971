"""Records to be written, and which partition each goes to."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any, NamedTuple, TypeAlias

from ottla.client.errors import ClientError, InvalidRecord, ServerError
from ottla.client.network.metadata import Topic
from ottla.client.producer.chunk import Chunk, Indexes
from ottla.records.key_hash import NO_KEY, partitions_of_keys
from ottla.wire.errors import ErrorCode

Partitioner: TypeAlias = Callable[[str, bytes | None, int], int | None]
"""Of a topic, a key and the number of partitions: which one. None leaves it to the producer."""
Spread: TypeAlias = dict[int, Indexes]
"""The numbers of records in their chunk, by partition."""


class NewRecord(NamedTuple):
    """A record as its producer gives it. Without a timestamp it gets the time it is sent at."""

    value: Any
    key: Any = None
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
    partition before it is the next one's turn. 0: one record. `partitioner` is asked first, where none is given.
    """

    def __init__(self, seed: int | None = None, sticky_bytes: int = 0, partitioner: Partitioner | None = None) -> None:
        self._random = random.Random(random.getrandbits(64) if seed is None else seed)
        self._sticky_bytes = sticky_bytes
        self._partitioner = partitioner
        self._turns: dict[str, _Turns] = {}

    def spread(self, topic: Topic, chunk: Chunk) -> tuple[Spread, dict[int, ClientError]]:
        """Where the records go, and why some have no place. A retriable error, and nothing is changed, if none can."""
        given, errors = chunk.partitions, {}
        if given is not None:
            errors = self._check_partitions(topic, given)
        if self._partitioner is not None:
            given = self._ask_partitioner(self._partitioner, topic, chunk, given, errors)
        if chunk.keys is None and given is None:
            return self._spread_evenly(topic, chunk), errors
        found: defaultdict[int, list[int]] = defaultdict(list)
        count = len(topic.partitions)
        keyed = partitions_of_keys(chunk.keys, count) if chunk.keys is not None else repeat(NO_KEY)
        turns = self._turns_of(topic)
        for index, (chosen, of_key) in enumerate(zip(given or repeat(None), keyed, strict=False)):
            if index == chunk.count:
                break
            if index not in errors:
                partition = of_key if chosen is None else chosen
                found[turns.next() if partition == NO_KEY else partition].append(index)
        return dict(found), errors

    def _ask_partitioner(
        self, partitioner: Partitioner, topic: Topic, chunk: Chunk, given: list[int | None] | None,
        errors: dict[int, ClientError],
    ) -> list[int | None]:  # fmt: skip
        """A mistake of it is that record's error."""
        count = len(topic.partitions)
        chosen: list[int | None] = list(given) if given is not None else [None] * chunk.count
        for index in range(chunk.count):
            if chosen[index] is not None:
                continue
            key = None if chunk.keys is None else chunk.keys[index]
            try:
                partition: Any = partitioner(topic.name, key, count)
            except (Exception, SystemExit) as error:
                errors[index] = InvalidRecord(f"the partitioner failed: {error!r}", topic=topic.name)
                continue
            if partition is not None and not (isinstance(partition, int) and 0 <= partition < count):
                errors[index] = InvalidRecord(
                    f"the partitioner chose {partition!r}: topic {topic.name} has {count} partitions", topic=topic.name
                )
            chosen[index] = partition
        return chosen

    def _spread_evenly(self, topic: Topic, chunk: Chunk) -> Spread:
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

    def _check_partitions(self, topic: Topic, partitions: list[int | None]) -> dict[int, ClientError]:
        return {
            index: error
            for index, partition in enumerate(partitions)
            if partition is not None and (error := no_partition(topic, partition)) is not None
        }


def no_partition(topic: Topic, partition: int) -> InvalidRecord | None:
    """Why a record cannot go to a partition: the topic has none of this number."""
    count = len(topic.partitions)
    if 0 <= partition < count:
        return None
    return InvalidRecord(
        f"topic {topic.name} has no partition {partition}: it has {count}", topic=topic.name, partition=partition
    )
