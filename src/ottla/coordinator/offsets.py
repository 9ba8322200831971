"""The offsets that groups have committed, and those that wait for the end of a transaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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

    def latest(self, group_id: str) -> Mapping[PartitionKey, Committed]:
        """What was last written for each partition, be it in a transaction that is still open."""
        latest = dict(self.of_group(group_id))
        for producer_id in self._producers.get(group_id, ()):
            for partition, pending in self._pending[producer_id][group_id].items():
                known = latest.get(partition)
                if known is None or known.order < pending.order:
                    latest[partition] = pending
        return latest

    def has_pending(self, group_id: str) -> bool:
        return bool(self._producers.get(group_id))

    # Replay

    def put(self, group_id: str, partition: PartitionKey, value: OffsetCommitValue, producer_id: int) -> None:
        self._order += 1
        committed = Committed(value, self._order)
        if producer_id < 0:
            self._committed.setdefault(group_id, {})[partition] = committed
        else:
            self._pending.setdefault(producer_id, {}).setdefault(group_id, {})[partition] = committed
            self._producers.setdefault(group_id, set()).add(producer_id)

    def remove(self, group_id: str, partition: PartitionKey) -> None:
        """Forget what was committed, and what a transaction would commit later."""
        offsets = self._committed.get(group_id)
        if offsets is not None:
            offsets.pop(partition, None)
            if not offsets:
                del self._committed[group_id]
        for producer_id in list(self._producers.get(group_id, ())):
            pending = self._pending[producer_id][group_id]
            pending.pop(partition, None)
            if not pending:
                self._end(producer_id, group_id)

    def end_transaction(self, producer_id: int, is_commit: bool) -> None:
        for group_id, pending in list(self._pending.get(producer_id, {}).items()):
            self._end(producer_id, group_id)
            if is_commit:
                offsets = self._committed.setdefault(group_id, {})
                for partition, committed in pending.items():
                    known = offsets.get(partition)
                    if known is None or known.order < committed.order:
                        offsets[partition] = committed

    def _end(self, producer_id: int, group_id: str) -> None:
        groups = self._pending[producer_id]
        del groups[group_id]
        if not groups:
            del self._pending[producer_id]
        producers = self._producers[group_id]
        producers.discard(producer_id)
        if not producers:
            del self._producers[group_id]
