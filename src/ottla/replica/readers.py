"""Who waits for records of a partition, and what each of them was last told of."""

from __future__ import annotations

import enum
import weakref
from typing import TYPE_CHECKING, Protocol

from ottla.log.errors import LogError

if TYPE_CHECKING:
    from ottla.replica.partition import Partition

MOST_BYTES = 1 << 62


class Bound(enum.Enum):
    """Up to where somebody may read."""

    LOG_END = "log end"  # other replicas
    HIGH_WATERMARK = "high watermark"
    LAST_STABLE_OFFSET = "last stable offset"  # who reads only what is committed


class Waiter(Protocol):
    """Somebody who waits for a partition to move on."""

    def advanced(self, partition: Partition, added_bytes: int) -> None:
        """So much more may be read. Of 0 bytes replicas are told: the high watermark has moved."""


class Reading:
    """What one who waits for records was last told of."""

    __slots__ = ("bound", "high_watermark", "offset", "replica", "written_bytes")

    def __init__(self, bound: Bound, offset: int, high_watermark: int, written_bytes: int | None, replica: int) -> None:
        self.replica = replica  # that waits; below 0 it is none
        self.bound = bound
        self.offset = offset
        self.high_watermark = high_watermark
        self.written_bytes = written_bytes  # at that time, if the log ended at the offset


class Readers:
    """All who wait for records of one partition."""

    __slots__ = ("_owner", "waiting")

    def __init__(self, partition: Partition) -> None:
        self._owner = weakref.ref(partition)  # as that of its writer
        self.waiting: dict[Waiter, Reading] = {}

    @property
    def _partition(self) -> Partition:
        partition = self._owner()
        assert partition is not None
        return partition

    def add(self, waiter: Waiter, bound: Bound, replica: int) -> None:
        offset, partition = self._offset(bound), self._partition
        written_bytes = partition.written_bytes if offset == partition.log.end_offset else None
        self.waiting[waiter] = Reading(bound, offset, partition.machine.high_watermark, written_bytes, replica)

    def tell(self) -> None:
        """Tell each what it may read more than it was told of."""
        partition = self._partition
        high_watermark, end_offset = partition.machine.high_watermark, partition.log.end_offset
        offsets = {bound: self._offset(bound) for bound in Bound}
        written_bytes = {
            bound: partition.written_bytes if offset == end_offset else None for bound, offset in offsets.items()
        }
        for waiter, reading in list(self.waiting.items()):  # there may be thousands
            bound = reading.bound
            offset = offsets[bound]
            if bound is Bound.LOG_END and reading.high_watermark != high_watermark:
                reading.high_watermark = high_watermark
                waiter.advanced(partition, 0)
            if offset > reading.offset and waiter in self.waiting:
                added_bytes = self._added_bytes(reading, offset)
                reading.offset = offset
                reading.written_bytes = written_bytes[bound]
                waiter.advanced(partition, added_bytes)

    def wake(self) -> None:
        """Let everybody look again, as when the partition goes away."""
        for waiter in list(self.waiting):
            waiter.advanced(self._partition, MOST_BYTES)

    def look(self) -> None:
        """Have replicas that are not in sync say that they wait."""
        in_sync = self._partition.machine.in_sync
        for waiter, reading in list(self.waiting.items()):
            if reading.replica >= 0 and reading.replica not in in_sync:
                waiter.advanced(self._partition, 0)

    def tell_replicas_again(self) -> None:
        """The log has another start: replicas are told when the round ends."""
        for reading in self.waiting.values():
            reading.high_watermark = -1

    def _offset(self, bound: Bound) -> int:
        partition = self._partition
        if bound is Bound.HIGH_WATERMARK:
            return partition.machine.high_watermark
        return partition.log.end_offset if bound is Bound.LOG_END else partition.machine.last_stable_offset

    def _added_bytes(self, reading: Reading, offset: int) -> int:
        """How many bytes may be read up to an offset since that was told."""
        log = self._partition.log
        if reading.written_bytes is not None and offset == log.end_offset:
            return self._partition.written_bytes - reading.written_bytes
        start = max(reading.offset, log.log_start_offset)
        try:
            found = log.read(start, MOST_BYTES, offset) if start < offset else None
        except LogError:
            return MOST_BYTES  # who looks again is told what is wrong
        return 0 if found is None else found.size_bytes
