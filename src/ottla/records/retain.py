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
from ottla.records.codec import retain_records
from ottla.records.compression import DEFAULT_LIMIT_BYTES, compress, decompress


def retain_batch(
    batch: Buffer,
    keep: Sequence[bool],
    *,
    delete_horizon_ms: int | None = None,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
) -> bytearray:
    """The batch with the records whose turn in `keep` is true, in the same codec.

    `delete_horizon_ms` is when its tombstones may go. The header has no field for it, so it takes the place
    of the base timestamp, and the records' deltas are counted from it.
    """
    header = read_header(batch)
    area = decompress(header.codec, memoryview(batch)[HEADER_SIZE : header.size], limit_bytes)
    base_timestamp = header.base_timestamp if delete_horizon_ms is None else delete_horizon_ms
    kept, count, max_timestamp = retain_records(area, header.count, bytes(keep), header.base_timestamp, base_timestamp)
    if count == 0:
        return empty_batch(batch)
    if delete_horizon_ms is not None:
        header = header._replace(attributes=header.attributes | DELETE_HORIZON)
    if not header.is_log_append_time:
        header = header._replace(max_timestamp=max_timestamp)
    return _write(header._replace(base_timestamp=base_timestamp, count=count), compress(header.codec, kept))


def empty_batch(batch: Buffer) -> bytearray:
    """Only the header, for a batch that must still tell what its producer wrote last, or where a range ends."""
    header = read_header(batch)
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON)
    return _write(header._replace(attributes=attributes, base_timestamp=header.max_timestamp, count=0), b"")


def _write(header: BatchHeader, area: Buffer) -> bytearray:
    batch = bytearray(HEADER_SIZE)
    batch += area
    HEADER.pack_into(batch, 0, *header._replace(length=len(batch) - PREFIX_SIZE))
    stamp_crc(batch, 0, len(batch))
    return batch
