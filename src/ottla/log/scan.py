"""Reading a segment batch by batch, checking everything: what recovery and `ottla log verify` stand on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ottla.log.segment import LARGEST_RELATIVE_OFFSET, Segment
from ottla.records.batch import (
    ATTRIBUTES_AT,
    HEADER,
    HEADER_SIZE,
    LEAST_LENGTH,
    MAGIC,
    PREFIX_SIZE,
    BatchHeader,
)
from ottla.records.checksum import crc32c

CHUNK_BYTES = 4 << 20
NOWHERE = 1 << 62


class Fault(NamedTuple):
    """Where a segment stops being sound, and why."""

    position: int
    reason: str
    is_torn: bool = False  # as where a crash ended a write


class SegmentScan:
    """Iterate over (position, header, batch) of the sound batches of a segment.

    Iteration ends at the end of the file or at the first fault, which is then in `fault`. The batch is a view of
    a buffer that the next step reuses.
    """

    def __init__(
        self,
        segment: Segment,
        *,
        position: int = 0,
        next_offset: int | None = None,
        leader_epoch: int = -1,
        dense_from: int = NOWHERE,
    ) -> None:
        """`next_offset` and `leader_epoch` are what the log had reached before this segment, or `position` in it.

        From `dense_from` on, where nothing was compacted, no offset may be missing before a batch.
        """
        self.segment = segment
        self.dense_from = dense_from
        self.next_offset = segment.base_offset if next_offset is None else max(next_offset, segment.base_offset)
        self.leader_epoch = leader_epoch
        self._largest_offset = segment.base_offset + LARGEST_RELATIVE_OFFSET
        self.position = position
        self.fault: Fault | None = None

    def __iter__(self) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        end = self.segment.size_bytes
        if not end:
            return  # without opening the file, which may not be there
        file = self.segment.file
        buffer = memoryview(bytearray(min(CHUNK_BYTES, end - self.position)))
        while self.position < end:
            start = self.position
            asked = min(len(buffer), end - start)
            filled = file.read_into(start, buffer[:asked])
            yield from self._batches(start, buffer[:filled], end - start)
            if self.fault is not None:
                return
            if filled < asked:
                reason = f"the file ends at byte {start + filled}, and not at {end}"
                self.fault = Fault(self.position, reason, is_torn=True)
                return
            if self.position == start:
                needed = self._needed(buffer[:filled], end - start)
                if needed <= filled:
                    self.fault = Fault(start, f"{end - start} bytes are not a whole batch", is_torn=True)
                    return
                if needed > len(buffer):
                    buffer = memoryview(bytearray(needed))

    def _batches(self, start: int, buffer: memoryview, left: int) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """The batches that lie whole in a piece that was read at `start`, with `left` bytes to the end of the file.

        A log of small batches has a million of them in a GB: what is checked of each is checked in place.
        """
        unpack, new = HEADER.unpack_from, tuple.__new__
        dense_from, largest_offset = self.dense_from, self._largest_offset
        at, filled = 0, len(buffer)
        while filled - at >= HEADER_SIZE:
            header = new(BatchHeader, unpack(buffer, at))
            base_offset, length, leader_epoch, magic, crc, _, last_offset_delta, _, _, _, _, _, count = header
            size = length + PREFIX_SIZE
            if size > filled - at and self._plausible(header, left - at):
                return  # not whole in the buffer: read on from here
            batch = buffer[at : at + size]
            next_offset = self.next_offset
            if not (
                crc32c(batch[ATTRIBUTES_AT:]) == crc
                and magic == MAGIC
                and len(batch) == size >= HEADER_SIZE
                and (base_offset == next_offset or next_offset < base_offset <= dense_from)
                and leader_epoch >= self.leader_epoch
                and last_offset_delta >= 0
                and count >= 0
                and base_offset + last_offset_delta <= largest_offset
            ):
                is_torn = magic == MAGIC and len(batch) < size
                self.fault = Fault(start + at, self._reason_against(header, batch), is_torn)
                return
            self.next_offset = base_offset + last_offset_delta + 1
            self.leader_epoch = leader_epoch
            position = start + at
            at += size
            self.position = start + at
            yield position, header, batch

    @staticmethod
    def _plausible(header: BatchHeader, left: int) -> bool:
        return header.length >= LEAST_LENGTH and header.magic == MAGIC and header.length + PREFIX_SIZE <= left

    @staticmethod
    def _needed(view: memoryview, left: int) -> int:
        """How large a buffer the batch at the start of `view` needs; 0 where there is none."""
        if len(view) < HEADER_SIZE:
            return HEADER_SIZE if left >= HEADER_SIZE else 0
        size = HEADER.unpack_from(view)[1] + PREFIX_SIZE
        return size if size <= left else 0

    def _reason_against(self, header: BatchHeader, batch: memoryview) -> str:
        if header.length < LEAST_LENGTH:
            return f"batch length {header.length} is below the least of {LEAST_LENGTH}"
        if header.magic != MAGIC:
            return f"magic is {header.magic}, not {MAGIC}"
        if len(batch) < header.size:
            return f"the batch says {header.size} bytes, {len(batch)} are left"
        crc = crc32c(batch[ATTRIBUTES_AT:])
        if crc != header.crc:
            return f"checksum is {crc:#010x}, the header says {header.crc:#010x}"
        if header.base_offset < self.next_offset:
            return f"base offset {header.base_offset} comes where {self.next_offset} was due"
        if header.base_offset > max(self.next_offset, self.dense_from):
            return f"offsets {self.next_offset} to {header.base_offset - 1} are missing"
        if header.last_offset_delta < 0 or header.count < 0:
            return f"last offset delta {header.last_offset_delta} or count {header.count} is negative"
        if header.last_offset > self._largest_offset:
            return f"last offset {header.last_offset} is too far from the segment's {self.segment.base_offset}"
        return f"leader epoch {header.leader_epoch} follows {self.leader_epoch}"
