"""Where recovery may begin in the middle of a segment, with the indexes as they were when the log reached that place.

Up to there the indexes were on the disk. Behind it they may hold anything. If somebody has changed the files, all of
it may be wrong: then there is no such place, and the segment is read from its start.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.log.errors import CorruptLog
from ottla.log.segment import Segment
from ottla.records.batch import ATTRIBUTES_AT, HEADER_SIZE, MAGIC, BatchHeader, read_header
from ottla.records.checksum import crc32c


def resume_at(segment: Segment, offset: int, are_aborts_known: Callable[[], bool]) -> int | None:
    """Where the batch of `offset` starts, and the indexes cut to what lies before it; None where that is not sure.

    `are_aborts_known` is asked when the indexes can be used.
    """
    offsets, times = segment.offset_index, segment.time_index
    if not (segment.aborted.is_sound and offsets.is_rising() and times.is_rising()):
        return None
    last_offset, indexed_position = offsets.last_before(offset) or (None, 0)
    try:
        position = _walk(segment, indexed_position, last_offset, offset)
        if position is None or not (_knows_time(segment, offset) and are_aborts_known()):
            return None
    except CorruptLog:
        return None
    segment.cut_indexes(offset, position - indexed_position)
    return position


def _walk(segment: Segment, start: int, last_offset: int | None, offset: int) -> int | None:
    """From the last batch in the index to where `offset` starts; None if the one does not lead to the other."""
    next_offset, end = segment.base_offset, start
    for position, header in segment.batches(start):
        if position == start and last_offset not in (None, header.last_offset):
            return None
        if header.base_offset < next_offset or position - start > segment.index_interval_bytes:
            return None
        if not _is_sound(segment, position, header):
            return None
        next_offset, end = header.next_offset, position + header.size
        if next_offset >= offset:
            break
    if next_offset != offset or end > segment.size_bytes or _is_earlier(segment, end, offset):
        return None
    return end


def _is_earlier(segment: Segment, position: int, offset: int) -> bool:
    """Whether a sound batch from before `offset` starts there: then one before it lies about its offsets.

    What is torn says nothing.
    """
    head = segment.file.read(position, HEADER_SIZE)
    if len(head) < HEADER_SIZE:
        return False
    header = read_header(head)
    return header.base_offset < offset and _is_sound(segment, position, header)


def _is_sound(segment: Segment, position: int, header: BatchHeader) -> bool:
    if header.magic != MAGIC or not HEADER_SIZE <= header.size <= segment.size_bytes - position:
        return False
    return crc32c(memoryview(segment.read_batch(position, header.size))[ATTRIBUTES_AT:]) == header.crc


def _knows_time(segment: Segment, offset: int) -> bool:
    """Whether the last entry before `offset` in the time index is that of a batch."""
    entry = segment.time_index.last_before(offset)
    if entry is None:
        return (segment.first_timestamp() or 0) <= 0
    timestamp, last_offset = entry
    found = segment.locate(last_offset)
    if found is None:
        return False
    _, header = next(segment.batches(found[0]))
    return (header.max_timestamp, header.last_offset) == (timestamp, last_offset)
