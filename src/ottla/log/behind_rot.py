"""Reading what is sound behind a batch that went bad on the disk, in a log that is in use.

The length of a batch says where the next one starts, and may be what is bad. So a batch is looked for byte by byte, but
not for longer than a moment: then it is the next one that the index knows of. Where that is bad, too, and much of the
file with it, nothing is found: the index leads who reads behind all that to a place near his own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

from ottla.log.errors import RottenBatch
from ottla.log.segment import LARGEST_RELATIVE_OFFSET, Segment
from ottla.records.batch import ATTRIBUTES_AT, HEADER_SIZE, LEAST_LENGTH, MAGIC, BatchHeader, read_header
from ottla.records.checksum import crc32c

SEARCHED_BYTES = 1 << 18
ENTRIES_TRIED = 3  # of the index: before a rotten batch that has an entry lies another


def locate_behind(segment: Segment, rotten: RottenBatch, offset: int) -> tuple[int, int, int] | None:
    """As `Segment.locate`, behind a batch that is rotten; None if nothing that is sound is found in a moment."""
    search = _Search(segment)
    position = rotten.since
    while (sound := search.next_sound(position)) is not None:
        try:
            return segment.locate(offset, sound)
        except RottenBatch as another:
            position = max(sound, another.since)
    return None


def end_before(segment: Segment, rotten: RottenBatch, offset: int) -> tuple[int, int]:
    """With which offset, and at which position, what is sound ends before a rotten batch on the way to `offset`.

    Where the index does not know, before all of the segment.
    """
    before = offset
    for _ in range(ENTRIES_TRIED):
        entry = segment.offset_index.last_before(before)
        before, start = entry or (segment.base_offset, 0)
        next_offset, end = segment.base_offset, 0
        with suppress(RottenBatch):
            for position, header in segment.batches(start):
                if position >= rotten.since:
                    break
                next_offset, end = header.next_offset, position + header.size
        if end == rotten.since:
            return next_offset, end
        if entry is None:
            break
    return segment.base_offset, 0


def batches_around(segment: Segment, offset: int) -> Iterator[tuple[int, BatchHeader]]:
    """Those from the one that holds `offset` on, but for the rotten, as far as what is behind is found in a moment."""
    search = _Search(segment)
    position: int | None = segment.offset_index.position_before(offset)
    while position is not None:
        try:
            for at, header in segment.batches(position):
                if header.last_offset >= offset:
                    yield at, header
        except RottenBatch as rotten:
            position = search.next_sound(rotten.since)
        else:
            return


class _Search:
    """For batches that are sound, which ends when very much was looked at."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._left_bytes = SEARCHED_BYTES

    def next_sound(self, position: int) -> int | None:
        """Where the first one behind `position` starts."""
        segment = self._segment
        while self._left_bytes > 0:
            indexed = segment.offset_index.position_behind(position)
            end = min(segment.size_bytes if indexed is None else indexed, position + self._left_bytes)
            self._left_bytes -= max(end - position, HEADER_SIZE)
            for candidate in _candidates(segment, position + 1, end):
                if _is_sound(segment, candidate):
                    return candidate
            if indexed is None or _is_sound(segment, indexed):
                return indexed
            position = indexed
        return None


def _candidates(segment: Segment, start: int, end: int) -> list[int]:
    """Where a batch may start, by the upper half of the offsets that a segment can have, and by the magic byte."""
    uppers = {offset >> 32 for offset in (segment.base_offset, segment.base_offset + LARGEST_RELATIVE_OFFSET)}
    upper = b"|".join(re.escape(number.to_bytes(4)) for number in uppers)
    pattern = re.compile(b"(?=(?:%s).{12}%s)" % (upper, re.escape(bytes([MAGIC]))), re.DOTALL)
    chunk = segment.file.read(start, end - start + HEADER_SIZE)
    return [start + found.start() for found in pattern.finditer(chunk) if start + found.start() < end]


def _is_sound(segment: Segment, position: int) -> bool:
    """Whether a batch starts there, and behind it another or the end: what looks like one may be in a record."""
    header, left = _header_at(segment, position), segment.size_bytes - position
    if header is None or header.size > left:
        return False
    if header.size < left:
        following = _header_at(segment, position + header.size)
        if following is None or following.base_offset <= header.last_offset:
            return False
    batch = segment.read_batch(position, header.size)
    return crc32c(memoryview(batch)[ATTRIBUTES_AT:]) == header.crc


def _header_at(segment: Segment, position: int) -> BatchHeader | None:
    """What may be one."""
    head = segment.file.read(position, HEADER_SIZE)
    if len(head) < HEADER_SIZE:
        return None
    header = read_header(head)
    largest_offset = segment.base_offset + LARGEST_RELATIVE_OFFSET
    is_possible = (
        header.magic == MAGIC
        and header.length >= LEAST_LENGTH
        and header.last_offset_delta >= 0
        and segment.base_offset <= header.base_offset <= header.last_offset <= largest_offset
    )
    return header if is_possible else None
