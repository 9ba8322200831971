"""Whether the small files of a log say what its batches say.

Kafka's formats have no checksum for indexes, leader epochs and aborted transactions, so a flipped bit in them may go
unnoticed. But each entry says something about a batch, and the batch can be read. Where the two differ, the batch is
right, and the file is made again from the batches.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.log.aborted import AbortedTransaction
from ottla.log.epochs import LeaderEpochs
from ottla.log.errors import CorruptLog
from ottla.log.segment import Segment
from ottla.log.segments import Segments
from ottla.records.batch import HEADER_SIZE, BatchHeader, CorruptBatch, read_header
from ottla.records.build import read_marker


def index_fits(segment: Segment) -> bool:
    """Whether the indexes can be those of the segment, by their last entries."""
    offsets, times = segment.offset_index, segment.time_index
    if not segment.aborted.is_sound:
        return False
    if len(offsets):
        relative_offset, position = offsets.raw_entry(len(offsets) - 1)
        before = offsets.raw_entry(len(offsets) - 2)[1] if len(offsets) > 1 else -1
        if relative_offset < 0 or not before < position < segment.size_bytes:
            return False
    elif not _may_lack_index(segment):
        return False
    if len(times):
        timestamp, relative_offset = times.raw_entry(len(times) - 1)
        largest_before = times.raw_entry(len(times) - 2)[0] if len(times) > 1 else -1
        if not largest_before < timestamp or relative_offset < 0:
            return False
        if timestamp > 0:
            return True  # else it may be zeros where the data did not arrive
    return (segment.first_timestamp() or 0) <= 0


def _may_lack_index(segment: Segment) -> bool:
    """Whether the segment is too short for an entry in its offset index."""
    if segment.size_bytes <= segment.index_interval_bytes:
        return True
    try:
        return all(position <= segment.index_interval_bytes for position, _ in segment.batches())
    except CorruptLog:
        return False


def epochs_fit(epochs: LeaderEpochs, segments: Segments, start_offset: int, end_offset: int) -> bool:
    """Whether all batches from one offset up to another are of the epochs that the file gives them.

    Epochs never fall from batch to batch. So what lies between two batches of one epoch is of it, too, and only the
    batches around each beginning have to be looked at.
    """
    if start_offset >= end_offset:
        return True  # and what is there may be torn
    starts = [start_offset, *(start for _, start in epochs.entries if start_offset < start < end_offset)]
    try:
        headers = [_last_before(segments, offset) for offset in (*starts, end_offset)]
        headers += [_first_from(segments, offset) for offset in starts]
    except CorruptLog:
        return False
    return all(
        header.leader_epoch == epochs.epoch_at(max(header.base_offset, start_offset))
        for header in headers
        if header is not None and start_offset <= header.last_offset < end_offset
    )


def _last_before(segments: Segments, offset: int) -> BatchHeader | None:
    """The last batch that ends before an offset. What lies behind that is not looked at: it may be torn."""
    for number in range(segments.number_for(offset - 1), -1, -1):
        segment, found = segments[number], None
        for _, header in segment.batches(segment.offset_index.position_before(offset - 1)):
            if header.last_offset < offset:
                found = header
            if header.next_offset >= offset:
                break
        if found is not None:
            return found
    return None


def _first_from(segments: Segments, offset: int) -> BatchHeader | None:
    """The first batch that ends at or behind an offset."""
    place = _place_of(segments, offset)
    return None if place is None else read_header(place[0].read_batch(place[1], HEADER_SIZE))


def _place_of(segments: Segments, offset: int) -> tuple[Segment, int] | None:
    """The segment of that batch, and its position in it."""
    for segment in segments.starting_at(offset):
        found = segment.locate(offset)
        if found is not None:
            return segment, found[0]
    return None


def aborts_fit(segments: Segments, entries: Iterable[AbortedTransaction]) -> bool:
    """Whether the batches that aborted transactions speak of are such as they say, as far as they are still there.

    That a transaction began with another of its batches than the one that is named cannot be seen in these alone.
    """
    stable_offset = -1
    for entry in entries:
        if not stable_offset <= entry.last_stable_offset <= entry.last_offset + 1:
            return False
        stable_offset = entry.last_stable_offset
        try:
            if not (_is_abort(segments, entry) and _begins(segments, entry, entry.first_offset, is_own=True)):
                return False
            if stable_offset <= entry.last_offset and not _begins(segments, entry, stable_offset, is_own=False):
                return False
        except (CorruptLog, CorruptBatch):
            return False
    return True


def _is_abort(segments: Segments, entry: AbortedTransaction) -> bool:
    place = _place_of(segments, entry.last_offset)
    if place is None:
        return False
    segment, position = place
    header = read_header(segment.read_batch(position, HEADER_SIZE))
    is_named = header.base_offset == entry.last_offset and header.producer_id == entry.producer_id
    if not (is_named and header.is_control and header.count):
        return False
    return not read_marker(segment.read_batch(position, header.size)).is_commit


def _begins(segments: Segments, entry: AbortedTransaction, offset: int, *, is_own: bool) -> bool:
    """Whether a batch begins at an offset that is of this transaction, or of one of another producer.

    Retention or compaction may have removed it.
    """
    header = _first_from(segments, offset) if offset >= segments[0].base_offset else None
    if header is None or header.base_offset > offset:
        return True
    is_of_producer = header.producer_id == entry.producer_id
    is_data = header.is_transactional and not header.is_control
    return header.base_offset == offset and is_data and is_of_producer == is_own
