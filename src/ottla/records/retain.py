"""What compaction leaves of a batch.

The batch stays the same batch: offsets, sequences, producer and leader epoch never change, only its records
grow fewer.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.records.batch import (
    CODEC_MASK,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    PREFIX_SIZE,
    BatchHeader,
    Buffer,
    read_header,
    stamp_crc,
)
from ottla.records.codec import LEAST_INT64, retain_records
from ottla.records.growing import GrowingBatch, Job
from ottla.records.portions import Portion, record_portions


class RetainedBatch:
    """A batch that is written anew with some of its records, a portion at a time."""

    def __init__(self, header: BatchHeader, delete_horizon_ms: int | None = None) -> None:
        """`delete_horizon_ms` is when its tombstones may go.

        The header has no field for it, so it takes the place of the base timestamp, and the records' deltas are counted
        from it.
        """
        self._header = header
        self._horizon_ms = delete_horizon_ms
        self._base_timestamp = header.base_timestamp if delete_horizon_ms is None else delete_horizon_ms
        self._growing = GrowingBatch(header.codec)
        self._count = 0
        self._max_timestamp = LEAST_INT64

    def add(self, portion: Portion, keep: bytes) -> Job | None:
        """Take the records whose byte in `keep` is not 0. What is returned is to be run, on any thread, before more."""
        kept, count, max_timestamp = retain_records(
            portion.area, portion.records, keep, self._header.base_timestamp, self._base_timestamp
        )
        self._count += count
        self._max_timestamp = max(self._max_timestamp, max_timestamp)
        return self._growing.add(kept)

    def finish(self) -> bytearray:
        """The batch. There must be a record in it."""
        self._growing.finish()
        header = self._header
        if self._horizon_ms is not None:
            header = header._replace(attributes=header.attributes | DELETE_HORIZON)
        if not header.is_log_append_time:
            header = header._replace(max_timestamp=self._max_timestamp)
        return _write(header._replace(base_timestamp=self._base_timestamp, count=self._count), self._growing.bytes)


def retain_batch(batch: Buffer, keep: Sequence[bool], *, delete_horizon_ms: int | None = None) -> bytearray:
    """The batch with the records whose turn in `keep` is true, in the same codec."""
    header = read_header(batch)
    if not any(keep):
        return empty_batch(batch)
    retained = RetainedBatch(header, delete_horizon_ms)
    for portion in record_portions(batch, header):
        job = retained.add(portion, bytes(keep[portion.first : portion.first + portion.records]))
        if job is not None:
            job()
    return retained.finish()


def empty_batch(batch: Buffer) -> bytearray:
    """Only the header, for a batch that must still tell what its producer wrote last, or where a range ends."""
    header = read_header(batch)
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON)
    header = header._replace(attributes=attributes, base_timestamp=header.max_timestamp, count=0)
    return _write(header, bytearray(HEADER_SIZE))


def _write(header: BatchHeader, batch: bytearray) -> bytearray:
    """Put the header into the room that is left for it."""
    HEADER.pack_into(batch, 0, *header._replace(length=len(batch) - PREFIX_SIZE))
    stamp_crc(batch, 0, len(batch))
    return batch
