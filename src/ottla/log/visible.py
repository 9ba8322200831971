"""How many records a consumer of committed records would get between two offsets: what a lag is counted in.

Markers are no records, nor is what an aborted transaction wrote, nor what compaction removed. Headers tell that, so
records are decoded only where compaction left a batch with holes that lies across an edge.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Generator, Iterator
from typing import TypeAlias
from weakref import WeakKeyDictionary

from ottla.log.aborted import AbortedRanges
from ottla.log.log import Log
from ottla.log.segment import Segment
from ottla.records.batch import BatchHeader
from ottla.records.codec import decode_keys
from ottla.records.portions import record_portions
from ottla.records.read import Batch, count_of_header

MARKED_BATCHES = 64  # from mark to mark
LOOKED_AT_ONCE = 500  # batches
FIRST_WINDOW = 16  # offsets that are looked at from the end of a log: most often the last can be seen
WIDER = 8
LOOKED_AT_ONCE_BYTES = 1 << 20

Counting: TypeAlias = Generator[None, None, int]
_Place: TypeAlias = tuple[Segment, int, BatchHeader]


def visible_count(log: Log, start_offset: int, end_offset: int) -> int:
    """The records from `start_offset` on and below `end_offset`, which is not above the last stable offset."""
    counting = _physical_count(log, max(start_offset, log.log_start_offset), end_offset)
    while True:
        try:
            next(counting)
        except StopIteration as end:
            count: int = end.value
            return count


def _physical_count(log: Log, start_offset: int, end_offset: int) -> Counting:
    """The same in steps, with what is still in the segments before the start of the log."""
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
                counted = yield from batch.counting_between(start_offset, end_offset)
            count += counted
    return count


def visible_end(log: Log, end_offset: int) -> Counting:
    """The offset behind the last record that a consumer gets below `end_offset`, or where the log starts.

    `end_offset` is not above the last stable offset. In steps: very much may come behind the last record.
    """
    window = FIRST_WINDOW
    while end_offset > log.log_start_offset:
        start_offset = max(end_offset - window, log.log_start_offset)
        found = yield from _last_visible(log, start_offset, end_offset)
        if found is not None:
            return max(found + 1, log.log_start_offset)
        end_offset = start_offset
        window *= WIDER
        yield
    return log.log_start_offset


def _last_visible(log: Log, start_offset: int, end_offset: int) -> Generator[None, None, int | None]:
    aborted = yield from log.segments.aborted_ranges(start_offset, end_offset)
    last: deque[_Place] = deque(maxlen=2)  # all that the last one has may lie behind the end
    looked_at = 0
    for segment in list(log.segments.starting_at(start_offset)):
        if segment.base_offset >= end_offset:
            break
        for position, header in segment.batches(segment.position_of(start_offset)):
            if header.base_offset >= end_offset:
                break
            if header.count and not header.is_control and aborted.find(header) is None:
                last.append((segment, position, header))
            looked_at += 1
            if looked_at % LOOKED_AT_ONCE == 0:
                yield
    for segment, position, header in reversed(last):
        found = yield from _last_record(segment, position, header, end_offset)
        if found is not None:
            return found
    return None


def _last_record(
    segment: Segment, position: int, header: BatchHeader, end_offset: int
) -> Generator[None, None, int | None]:
    """The offset of the last record of a batch below `end_offset`: compaction may have removed those at its end."""
    last_offset = min(header.last_offset, end_offset - 1)
    if header.count == header.last_offset_delta + 1:
        return last_offset
    found = None
    try:
        for portion in record_portions(memoryview(segment.read_batch(position, header.size)), header):
            for offset_delta, _, _ in decode_keys(portion.area, portion.records):
                if header.base_offset + offset_delta > last_offset:
                    return found
                found = header.base_offset + offset_delta
            yield
    except ValueError:  # damaged: nobody can tell
        return last_offset
    return found


class VisibleTally:
    """The same count for many start offsets: a log is looked at once, whoever asks, and only what is new later.

    It is kept by segment, so that retention costs nothing and compaction only what it has rewritten. A segment that
    goes is not held: its file would stay open, and the disk not get its room back.
    """

    def __init__(self, log: Log) -> None:
        self.log = log
        self._tallies: WeakKeyDictionary[Segment, _SegmentTally] = WeakKeyDictionary()

    def counting(self, start_offset: int, end_offset: int) -> Iterator[None]:
        """Look at what was not looked at yet, in steps; `end_offset` is not above the last stable offset."""
        segments = self.log.segments
        for gone in [segment for segment in self._tallies if not self._is_there(segment)]:
            del self._tallies[gone]
        start_offset = max(start_offset, self.log.log_start_offset)
        for segment in list(segments.starting_at(start_offset)):
            if segment.base_offset >= end_offset:
                break
            tally = self._tallies.get(segment)
            if tally is None or not tally.is_good_for(segment, start_offset):
                tally = self._tallies[segment] = _SegmentTally(segment, max(start_offset, segment.base_offset))
            while self._is_there(segment) and (yield from tally.count_on(self.log, segment, end_offset)):
                yield
            yield

    def _is_there(self, segment: Segment) -> bool:
        segments = self.log.segments
        return segments[segments.number_for(segment.base_offset)] is segment

    def between(self, start_offset: int, end_offset: int) -> Generator[None, None, int | None]:
        """The count, where `counting` has come to `end_offset`; None if segments were replaced since.

        In steps: a batch that compaction made holes in may decompress to very much.
        """
        start_offset = max(start_offset, self.log.log_start_offset)
        if start_offset >= end_offset:
            return 0
        count = 0
        for segment in self.log.segments.starting_at(start_offset):
            if segment.base_offset >= end_offset:
                break
            tally = self._tallies.get(segment)
            if tally is None or not tally.is_good_for(segment, start_offset):
                return None
            below_end = yield from tally.below(self.log, end_offset)
            below_start = yield from tally.below(self.log, start_offset)
            count += below_end - below_start
        return count


class _SegmentTally:
    """How many records are visible from some offset of a segment on, with a mark every few batches."""

    __slots__ = ("_counts", "_end_count", "_end_offset", "_end_position", "_marks", "_unmarked")

    def __init__(self, segment: Segment, start_offset: int) -> None:
        self._marks = array("q", [start_offset])
        self._counts = array("q", [0])  # of what is visible before each mark
        self._end_offset = start_offset
        self._end_position = segment.position_of(start_offset)
        self._end_count = 0
        self._unmarked = 0  # batches since the last mark

    def is_good_for(self, segment: Segment, start_offset: int) -> bool:
        """Whether it begins early enough, in a segment that was not cut since."""
        return segment.size_bytes >= self._end_position and self._marks[0] <= max(start_offset, segment.base_offset)

    def count_on(self, log: Log, segment: Segment, end_offset: int) -> Generator[None, None, bool]:
        """Look at some more batches; whether there may be more of them."""
        headers: list[BatchHeader] = []
        end_position = self._end_position
        last_position = end_position + LOOKED_AT_ONCE_BYTES
        for position, header in segment.batches(end_position):
            if header.next_offset > end_offset or len(headers) == LOOKED_AT_ONCE or position > last_position:
                break
            headers.append(header)
            end_position = position + header.size
        if not headers:
            return False
        is_any_transactional = any(header.is_transactional for header in headers)
        bounds = headers[0].base_offset, headers[-1].next_offset
        aborted = AbortedRanges(log.aborted_transactions(*bounds) if is_any_transactional else [])
        counts = [header.count if not header.is_control and aborted.find(header) is None else 0 for header in headers]
        if counts[0] and headers[0].base_offset < self._end_offset:  # it begins before it is counted
            counts[0] = yield from _physical_count(log, self._end_offset, headers[0].next_offset)
        self._end_position = end_position
        for header, count in zip(headers, counts, strict=True):
            self._add(header, count)
        return True

    def _add(self, header: BatchHeader, count: int) -> None:
        if header.last_offset >= self._end_offset:
            self._end_count += count
            self._end_offset = header.next_offset
        self._unmarked += 1
        if self._unmarked == MARKED_BATCHES:
            self._unmarked = 0
            self._marks.append(self._end_offset)
            self._counts.append(self._end_count)

    def below(self, log: Log, offset: int) -> Counting:
        """What is visible from the first mark on and below an offset."""
        if offset >= self._end_offset:
            return self._end_count
        number = bisect_right(self._marks, offset) - 1
        if number < 0:
            return 0
        return self._counts[number] + (yield from _physical_count(log, self._marks[number], offset))
