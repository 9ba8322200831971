"""What a follower got from its leader: batches that must go on where its log ends."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from ottla.log.errors import CorruptLog, StaleLeaderEpoch, UnexpectedOffset
from ottla.records.batch import CONTROL, PREFIX, PREFIX_SIZE, BatchHeader, CorruptBatch, check_batch
from ottla.records.build import ControlMarker, read_marker

LARGEST_EPOCH = 2**31 - 1


class ReplicatedBatch(NamedTuple):
    position: int
    header: BatchHeader
    marker: ControlMarker | None


def checked_batches(
    records: memoryview,
    next_offset: int,
    leader_epoch: int,
    most_epoch: int = LARGEST_EPOCH,
    *,
    begins_log: bool = False,
) -> list[ReplicatedBatch]:
    """The whole batches in `records`; raises if one is not as it must be.

    Epochs never fall, and none is above that of the leader who gave them. A cut batch at the end is left out, as a
    fetch may end within one. `begins_log`: the first batch may hold `next_offset`, for a log may start within one.
    """
    checked: list[ReplicatedBatch] = []
    position = 0
    while position < len(records):
        try:
            header = check_batch(records, position)
        except CorruptBatch as error:
            if position and len(records) - position < _announced_bytes(records, position):
                break
            raise CorruptLog(f"records at offset {next_offset}: {error}") from None
        is_start = begins_log and not checked and header.last_offset >= next_offset
        if header.base_offset < next_offset and not is_start:
            raise UnexpectedOffset(f"offset {header.base_offset} came, {next_offset} was due")
        if header.leader_epoch < leader_epoch:
            raise StaleLeaderEpoch(f"offset {header.base_offset} is of epoch {header.leader_epoch}, not {leader_epoch}")
        if header.leader_epoch > most_epoch:
            raise StaleLeaderEpoch(f"offset {header.base_offset} is of epoch {header.leader_epoch} behind {most_epoch}")
        marker = None
        if header.attributes & CONTROL and header.producer_id >= 0 and header.count:  # compaction may have emptied it
            marker = read_marker(records[position : position + header.size])
        checked.append(ReplicatedBatch(position, header, marker))
        leader_epoch = header.leader_epoch
        position += header.size
        next_offset = header.next_offset
    return checked


def runs_of(batches: list[ReplicatedBatch]) -> Iterator[list[ReplicatedBatch]]:
    """Batches of one epoch that come one behind the other."""
    for _, run in itertools.groupby(batches, key=lambda batch: batch.header.leader_epoch):
        yield list(run)


def _announced_bytes(records: memoryview, position: int) -> int:
    """How many bytes the batch at `position` says it has."""
    if len(records) - position < PREFIX_SIZE:
        return PREFIX_SIZE
    length: int = PREFIX.unpack_from(records, position)[1]
    return length + PREFIX_SIZE
