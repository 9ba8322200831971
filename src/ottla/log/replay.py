"""Finding the producers of a log again, from a snapshot and the batches behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.log.producers import CompletedTransaction
from ottla.records.batch import CONTROL, BatchHeader
from ottla.records.build import read_marker

if TYPE_CHECKING:
    from ottla.log.log import Log
    from ottla.log.segment import Segment

NEVER = 1 << 62


def rebuild_producers(log: Log, up_to_offset: int = NEVER) -> None:
    """Find the producers from the newest snapshot and the batches behind it, below an offset."""
    log.producers.clear()
    start = log.snapshots.restore(log.producers)
    _replay_from(log, log.log_start_offset if start is None else start, up_to_offset)
    log.producers.replicated(log.high_watermark)


def _replay_from(log: Log, start: int, up_to_offset: int) -> None:
    if start >= up_to_offset:
        return
    for segment in log.segments.starting_at(start):
        for position, header in segment.batches(segment.position_of(start)):
            if header.base_offset >= up_to_offset:
                return
            replay(log, segment, position, header)
            if header.next_offset >= up_to_offset:
                return  # what comes next may not be a batch


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
