"""The header of a record batch (magic 2): where its fields are, what they mean, whether they hold.

A batch is 61 bytes of header and then its records, compressed or not. The checksum starts behind the base
offset, the length and the leader epoch, so the broker stamps those in place and never computes it again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from ottla.records.checksum import crc32c

Buffer = bytes | bytearray | memoryview

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size  # 61
PREFIX = struct.Struct(">qi")
PREFIX_SIZE = PREFIX.size  # base offset and length: what the length field does not count
LEAST_LENGTH = HEADER_SIZE - PREFIX_SIZE
MAGIC = 2

# Where each field starts.
LENGTH_AT = 8
LEADER_EPOCH_AT = 12
MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21
LAST_OFFSET_DELTA_AT = 23
BASE_TIMESTAMP_AT = 27
MAX_TIMESTAMP_AT = 35
PRODUCER_ID_AT = 43
PRODUCER_EPOCH_AT = 51
BASE_SEQUENCE_AT = 53
COUNT_AT = 57
RECORDS_AT = HEADER_SIZE

# Attributes.
CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1

_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")


class CorruptBatch(ValueError):
    """The bytes are not a whole, sound record batch."""


class BatchHeader(NamedTuple):
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]

    @property
    def size(self) -> int:
        """The whole batch in bytes."""
        return self.length + PREFIX_SIZE

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        return add_to_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When tombstones of this batch may go; compaction keeps it where the base timestamp was."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None


def add_to_sequence(sequence: int, increment: int) -> int:
    """Sequences wrap from 2^31 - 1 to 0."""
    if sequence < 0:
        return sequence
    return (sequence + increment) & 0x7FFFFFFF


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    return tuple.__new__(BatchHeader, HEADER.unpack_from(buffer, position))  # half the cost of its constructor


def stored_crc(buffer: Buffer, position: int = 0) -> int:
    crc: int = _UINT32.unpack_from(buffer, position + CRC_AT)[0]
    return crc


def computed_crc(buffer: Buffer, position: int, size: int) -> int:
    return crc32c(memoryview(buffer)[position + ATTRIBUTES_AT : position + size])


def stamp_crc(batch: bytearray | memoryview, position: int, size: int) -> None:
    _UINT32.pack_into(batch, position + CRC_AT, computed_crc(batch, position, size))


def check_batch(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header of the whole, sound batch at `position`; CorruptBatch says what is wrong."""
    available = len(buffer) - position
    if available < HEADER_SIZE:
        raise CorruptBatch(f"{available} bytes are left, fewer than the {HEADER_SIZE} of a batch header")
    header = read_header(buffer, position)
    if header.length < LEAST_LENGTH:
        raise CorruptBatch(f"batch length {header.length} is below the least of {LEAST_LENGTH}")
    if header.size > available:
        raise CorruptBatch(f"the batch says {header.size} bytes, {available} are left")
    if header.magic != MAGIC:
        raise CorruptBatch(f"magic is {header.magic}, not {MAGIC}")
    crc = computed_crc(buffer, position, header.size)
    if crc != header.crc:
        raise CorruptBatch(f"checksum is {crc:#010x}, the header says {header.crc:#010x}")
    if header.last_offset_delta < 0 or header.count < 0:
        raise CorruptBatch(f"last offset delta {header.last_offset_delta} and count {header.count} are negative")
    return header


def whole_batches(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch that lies whole in `buffer`; a cut tail is left out."""
    position = 0
    end = len(buffer)
    while end - position >= HEADER_SIZE:
        header = read_header(buffer, position)
        if header.length < LEAST_LENGTH:
            raise CorruptBatch(f"batch length {header.length} at byte {position} is below {LEAST_LENGTH}")
        if header.size > end - position:
            return
        yield position, header
        position += header.size
