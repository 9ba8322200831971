"""Building a batch from records."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple, TypedDict, Unpack

from ottla.records import batch as at
from ottla.records.batch import Buffer, CorruptBatch
from ottla.records.checksum import crc32c
from ottla.records.codec import (
    Record,
    RecordTuple,
    Rows,
    decode_records,
    encode_columns,
    encode_records,
    encode_values,
)
from ottla.records.compression import compress, decompress
from ottla.records.crc_change import changed_crc

_CONTROL_KEY = struct.Struct(">hh")  # version, type
_CONTROL_VALUE = struct.Struct(">hi")  # version, coordinator epoch
_CRC = struct.Struct(">I")
_MARKER_BYTES = 1 << 16  # a marker takes some twenty
ABORT = 0
COMMIT = 1


class BatchOptions(TypedDict, total=False):
    """What a batch says of itself, beside its records. Left out: as a plain producer sends it."""

    codec: int
    level: int | None
    base_offset: int
    leader_epoch: int
    log_append_time: int | None  # the broker's clock, in place of the records' timestamps
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    is_control: bool


class ControlMarker(NamedTuple):
    """The end of a transaction, as it stands in each of its partitions."""

    is_commit: bool
    coordinator_epoch: int


def build_batch(
    values: Sequence[Buffer | None] | Rows,
    *,
    timestamp: int,
    keys: Sequence[Buffer | None] | Rows | None = None,
    timestamps: Sequence[int] | None = None,
    headers: Sequence[Sequence[tuple[str, Buffer | None]]] | None = None,
    memory: bytearray | None = None,
    **options: Unpack[BatchOptions],
) -> bytearray:
    """A batch from parallel sequences; `timestamp` is every record's where `timestamps` are not given.

    It is encoded in `memory`, if some is given, and if it is not compressed it is what is given back.
    """
    if keys is None and timestamps is None and headers is None:
        area = encode_values(values, at.HEADER_SIZE, memory)
        return finish_batch(area, len(values), len(values) - 1, timestamp, timestamp, **options)
    if timestamps:
        timestamp = timestamps[0]
    area = encode_columns(values, keys, timestamps, headers, None, timestamp, at.HEADER_SIZE, memory)
    max_timestamp = max(timestamps) if timestamps else timestamp
    return finish_batch(area, len(values), len(values) - 1, timestamp, max_timestamp, **options)


def build_from_tuples(records: Sequence[RecordTuple], **options: Unpack[BatchOptions]) -> bytearray:
    """A batch from tuples of timestamp, key, value, headers: what a producer gathers call by call."""
    base_timestamp = records[0][0] if records else at.NO_TIMESTAMP
    max_timestamp = max([record[0] for record in records], default=at.NO_TIMESTAMP)
    area = encode_records(records, base_timestamp, at.HEADER_SIZE)
    return finish_batch(area, len(records), len(records) - 1, base_timestamp, max_timestamp, **options)


def build_from_records(records: Sequence[Record], **options: Unpack[BatchOptions]) -> bytearray:
    """A batch that reads back as `records`, their offsets too: they ascend, gaps are kept."""
    if not records:
        raise ValueError("a batch has records")
    base_offset = options.setdefault("base_offset", records[0].offset)
    timestamps = [record.timestamp for record in records]
    area = encode_columns(
        [record.value for record in records],
        [record.key for record in records],
        timestamps,
        [record.headers for record in records],
        [record.offset - base_offset for record in records],
        timestamps[0],
        at.HEADER_SIZE,
    )
    last_offset_delta = records[-1].offset - base_offset
    return finish_batch(area, len(records), last_offset_delta, timestamps[0], max(timestamps), **options)


def build_marker(
    marker: ControlMarker, *, producer_id: int, producer_epoch: int, timestamp: int, base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:  # fmt: skip
    """The control batch that ends a transaction in one partition."""
    return build_batch(
        [_CONTROL_VALUE.pack(0, marker.coordinator_epoch)],
        keys=[_CONTROL_KEY.pack(0, COMMIT if marker.is_commit else ABORT)],
        timestamp=timestamp,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def may_be_copied(header: at.BatchHeader) -> bool:
    """Whether a producer can send the records of a batch on as they are, under a header of its own."""
    return (
        header.count == header.last_offset_delta + 1 > 0
        and header.magic == at.MAGIC
        and not header.attributes & ~(at.CODEC_MASK | at.TRANSACTIONAL)
    )


def header_for_copy(
    batch: Buffer, *, producer_id: int, producer_epoch: int, base_sequence: int, is_transactional: bool
) -> bytearray:
    """The header under which another producer sends the records of a batch that may be copied.

    What comes behind the header stays as it is, compressed or not, and is not looked at: its checksum is taken from
    the one that the batch has. If that was wrong, so is the new one.
    """
    header = at.read_header(batch)
    copied = bytearray(at.HEADER_SIZE)
    attributes = header.codec | (at.TRANSACTIONAL if is_transactional else 0)
    at.HEADER.pack_into(
        copied, 0,
        0, header.length, -1, at.MAGIC, 0, attributes, header.last_offset_delta,
        header.base_timestamp, header.max_timestamp, producer_id, producer_epoch, base_sequence, header.count,
    )  # fmt: skip
    before = crc32c(memoryview(batch)[at.ATTRIBUTES_AT : at.HEADER_SIZE])
    after = crc32c(memoryview(copied)[at.ATTRIBUTES_AT :])
    _CRC.pack_into(copied, at.CRC_AT, changed_crc(header.crc, before, after, header.size - at.HEADER_SIZE))
    return copied


def read_marker(batch: Buffer) -> ControlMarker:
    """What a control batch says; CorruptBatch if it is no end of a transaction."""
    header = at.read_header(batch)
    area = memoryview(batch)[at.HEADER_SIZE : header.size]
    if not header.is_control or header.count != 1:
        raise CorruptBatch("the end of a transaction is one record in a control batch")
    [record] = decode_records(
        decompress(header.codec, area, _MARKER_BYTES), 1, header.base_offset, header.base_timestamp
    )
    if record.key is None or len(record.key) < _CONTROL_KEY.size:
        raise CorruptBatch("the key of a control record is a version and a type")
    _, kind = _CONTROL_KEY.unpack_from(record.key)
    if kind not in (ABORT, COMMIT):
        raise CorruptBatch(f"a control record of type {kind} ends no transaction")
    if record.value is None or len(record.value) < _CONTROL_VALUE.size:
        raise CorruptBatch("the value of a transaction's end is a version and a coordinator epoch")
    return ControlMarker(kind == COMMIT, _CONTROL_VALUE.unpack_from(record.value)[1])


def finish_batch(
    batch: bytearray,
    count: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    *,
    codec: int = 0,
    level: int | None = None,
    base_offset: int = 0,
    leader_epoch: int = -1,
    log_append_time: int | None = None,
    producer_id: int = at.NO_PRODUCER_ID,
    producer_epoch: int = at.NO_PRODUCER_EPOCH,
    base_sequence: int = at.NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytearray:
    """Write the header before an area that was encoded behind HEADER_SIZE free bytes, and compress it."""
    attributes = codec
    if is_transactional:
        attributes |= at.TRANSACTIONAL
    if is_control:
        attributes |= at.CONTROL
    if log_append_time is not None:
        attributes |= at.LOG_APPEND_TIME
        max_timestamp = log_append_time
    if codec:
        compressed = compress(codec, memoryview(batch)[at.HEADER_SIZE :], level)
        batch = bytearray(at.HEADER_SIZE)
        batch += compressed
    at.HEADER.pack_into(
        batch, 0,
        base_offset, len(batch) - at.PREFIX_SIZE, leader_epoch, at.MAGIC, 0, attributes, last_offset_delta,
        base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, count,
    )  # fmt: skip
    _CRC.pack_into(batch, at.CRC_AT, crc32c(memoryview(batch)[at.ATTRIBUTES_AT :]))
    return batch
