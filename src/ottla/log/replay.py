"""Finding the producers of a log again, from a snapshot and the batches behind it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.log.behind_rot import batches_around
from ottla.log.producers import CompletedTransaction
from ottla.records.batch import CONTROL, BatchHeader
from ottla.records.build import read_marker

if TYPE_CHECKING:
    from ottla.log.log import Log
    from ottla.log.segment import Segment

NEVER = 1 << 62


def rebuild_producers(log: Log, up_to_offset: int = NEVER, *, goes_around_rot: bool = False) -> None:
    """Find the producers from the newest snapshot and the batches behind it, below an offset."""
    log.producers.clear()
    start = log.snapshots.restore(log.producers)
    _replay_from(log, log.log_start_offset if start is None else start, up_to_offset, goes_around_rot)
    log.producers.replicated(log.high_watermark)


def _replay_from(log: Log, start: int, up_to_offset: int, goes_around_rot: bool) -> None:
    if start >= up_to_offset:
        return
    for segment in log.segments.starting_at(start):
        batches = batches_around if goes_around_rot else _batches
        for position, header in batches(segment, start):
            if header.base_offset >= up_to_offset:
                return
            replay(log, segment, position, header)
            if header.next_offset >= up_to_offset:
                return  # what comes next may not be a batch


def _batches(segment: Segment, offset: int) -> Iterator[tuple[int, BatchHeader]]:
    return segment.batches(segment.position_of(offset))


def replay(log: Log, segment: Segment, position: int, header: BatchHeader) -> CompletedTransaction | None:
    """Let the producers know of a batch that is in the log; the transaction it ends, if it ends one."""
    if header.producer_id < 0 or header.producer_epoch < 0:
        return None
    if not header.attributes & CONTROL:
        log.producers.appended(header, header.base_offset)
    elif header.count:  # compaction may have emptied the marker of a transaction that is gone
        marker = read_marker(segment.read_batch(position, header.size))
        return log.producers.marked(header, header.base_offset, marker)
    return None
