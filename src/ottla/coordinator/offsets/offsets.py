"""The offsets that groups have committed, and those that wait for the end of a transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from ottla.wire.messages.offset_and_group_records import OffsetCommitValue

PartitionKey: TypeAlias = tuple[str, int]
"""A topic's name and the number of a partition."""

NO_OFFSETS: Mapping[PartitionKey, Committed] = {}


class Committed(NamedTuple):
    value: OffsetCommitValue
    order: int  # counts what was written: of two for the same partition, the later written counts


class Offsets:
    def __init__(self) -> None:
        self._committed: dict[str, dict[PartitionKey, Committed]] = {}
        self._pending: dict[int, dict[str, dict[PartitionKey, Committed]]] = {}  # by producer id and group
        self._producers: dict[str, set[int]] = {}  # of the transactions that wrote offsets of a group
        self._by_topic: dict[str, dict[str, int]] = {}  # how many of these a group has for a topic
        self._order = 0

    def of_group(self, group_id: str) -> Mapping[PartitionKey, Committed]:
        return self._committed.get(group_id, NO_OFFSETS)

    def groups(self) -> list[str]:
        return list(self._committed)

    def is_pending(self, group_id: str, partition: PartitionKey) -> bool:
        """Whether a transaction that is still open has an offset for it."""
        producers = self._producers.get(group_id)
        if not producers:
            return False
        return any(partition in self._pending[producer_id][group_id] for producer_id in producers)

    def pending(self, group_id: str) -> Iterator[PartitionKey]:
        """The partitions with offsets in open transactions."""
        for producer_id in self._producers.get(group_id, ()):
            yield from self._pending[producer_id][group_id]

    def groups_with(self, topic: str) -> list[str]:
        """The groups with offsets for a topic, be it in open transactions."""
        return list(self._by_topic.get(topic, ()))

    def partitions(self, group_id: str) -> list[PartitionKey]:
        """All partitions that a group has offsets for, be it in open transactions."""
        committed = self.of_group(group_id)
        if group_id not in self._producers:
            return list(committed)
        return list(dict.fromkeys([*committed, *self.pending(group_id)]))

    def latest(self, group_id: str, partition: PartitionKey) -> Committed | None:
        """What was last written for a partition, be it in a transaction that is still open."""
        latest = self.of_group(group_id).get(partition)
        for producer_id in self._producers.get(group_id, ()):
            pending = self._pending[producer_id][group_id].get(partition)
            if pending is not None and (latest is None or latest.order < pending.order):
                latest = pending
        return latest

    def pending_with(self, producer_id: int, group_id: str, partitions: Iterable[PartitionKey]) -> int:
        """How many offsets the open transaction of a producer has here when it has committed these too."""
        pending = self._pending.get(producer_id, {})
        known = pending.get(group_id, {})
        return sum(map(len, pending.values())) + sum(partition not in known for partition in partitions)

    def has_pending(self, group_id: str) -> bool:
        return bool(self._producers.get(group_id))

    # Replay

    def put(
        self, group_id: str, partition: PartitionKey, value: OffsetCommitValue, producer_id: int
    ) -> Committed | None:
        """What was there before, of the same transaction if it is one."""
        self._order += 1
        committed = Committed(value, self._order)
        if producer_id < 0:
            offsets = self._committed.setdefault(group_id, {})
        else:
            offsets = self._pending.setdefault(producer_id, {}).setdefault(group_id, {})
            self._producers.setdefault(group_id, set()).add(producer_id)
        before = offsets.get(partition)
        if before is None:
            self._count(group_id, partition[0], 1)
        offsets[partition] = committed
        return before

    def take_back(self, group_id: str, partition: PartitionKey, producer_id: int, before: Committed | None) -> None:
        """Undo what was last put."""
        offsets = self._committed[group_id] if producer_id < 0 else self._pending[producer_id][group_id]
        if before is not None:
            offsets[partition] = before
            return
        del offsets[partition]
        self._count(group_id, partition[0], -1)
        if not offsets:
            if producer_id < 0:
                del self._committed[group_id]
            else:
                self._end(producer_id, group_id)

    def remove(self, group_id: str, partition: PartitionKey) -> None:
        """Forget what was committed, and what a transaction would commit later."""
        offsets = self._committed.get(group_id)
        if offsets is not None and partition in offsets:
            del offsets[partition]
            self._count(group_id, partition[0], -1)
            if not offsets:
                del self._committed[group_id]
        for producer_id in list(self._producers.get(group_id, ())):
            pending = self._pending[producer_id][group_id]
            if partition in pending:
                del pending[partition]
                self._count(group_id, partition[0], -1)
                if not pending:
                    self._end(producer_id, group_id)

    def end_transaction(self, producer_id: int, is_commit: bool) -> None:
        for group_id, pending in list(self._pending.get(producer_id, {}).items()):
            self._end(producer_id, group_id)
            for partition, committed in pending.items():
                self._count(group_id, partition[0], -1)
                if is_commit:
                    self._commit(group_id, partition, committed)

    def _commit(self, group_id: str, partition: PartitionKey, committed: Committed) -> None:
        offsets = self._committed.setdefault(group_id, {})
        known = offsets.get(partition)
        if known is None:
            self._count(group_id, partition[0], 1)
        if known is None or known.order < committed.order:
            offsets[partition] = committed

    def _count(self, group_id: str, topic: str, change: int) -> None:
        groups = self._by_topic.setdefault(topic, {})
        count = groups.get(group_id, 0) + change
        if count:
            groups[group_id] = count
        else:
            del groups[group_id]
            if not groups:
                del self._by_topic[topic]

    def _end(self, producer_id: int, group_id: str) -> None:
        groups = self._pending[producer_id]
        del groups[group_id]
        if not groups:
            del self._pending[producer_id]
        producers = self._producers[group_id]
        producers.discard(producer_id)
        if not producers:
            del self._producers[group_id]
