"""How many records a consumer of committed records would get between two offsets: what a lag is counted in.

Markers are no records, nor is what an aborted transaction wrote, nor what compaction removed. Headers tell that, so
records are decoded only where compaction left a batch with holes that lies across an edge.
"""

from __future__ import annotations

from ottla.log.aborted import AbortedRanges
from ottla.log.log import Log
from ottla.records.read import Batch, count_of_header


def visible_count(log: Log, start_offset: int, end_offset: int) -> int:
    """The records from `start_offset` on and below `end_offset`, which is not above the last stable offset."""
    start_offset = max(start_offset, log.log_start_offset)
    if start_offset >= end_offset:
        return 0
    aborted = AbortedRanges(log.aborted_transactions(start_offset, end_offset))
    count = 0
    for segment in log.segments.starting_at(start_offset):
        for position, header in segment.batches(segment.position_of(start_offset)):
            if header.base_offset >= end_offset:
                return count
            if header.last_offset < start_offset or not header.count or header.is_control:
                continue
            if aborted.find(header) is not None:
                continue
            counted = count_of_header(header, start_offset, end_offset)
            if counted is None:
                batch = Batch(header, memoryview(segment.read_batch(position, header.size)))
                counted = batch.count_between(start_offset, end_offset)
            count += counted
    return count


class VisibleCount:
    """The same count kept up to date while both edges move on: only what they passed is looked at."""

    __slots__ = ("_count", "_end_offset", "_layout_version", "_log", "_start_offset")

    def __init__(self, log: Log) -> None:
        self._log = log
        self._layout_version = -1
        self._start_offset = self._end_offset = self._count = 0

    def between(self, start_offset: int, end_offset: int) -> int:
        log = self._log
        start_offset = max(start_offset, log.log_start_offset)
        layout_version = log.segments.layout_version
        is_moved_on = (
            layout_version == self._layout_version
            and log.log_start_offset <= self._start_offset <= start_offset <= self._end_offset <= end_offset
        )
        if is_moved_on:
            self._count += visible_count(log, self._end_offset, end_offset)
            self._count -= visible_count(log, self._start_offset, start_offset)
        else:
            self._count = visible_count(log, start_offset, end_offset)
        self._layout_version = layout_version
        self._start_offset, self._end_offset = start_offset, max(end_offset, start_offset)
        return self._count
