"""Producer snapshots (.snapshot): the producers of a partition as of an offset, in Kafka's format."""

from __future__ import annotations

import struct

from crc32c import crc32c

from ottla.log.errors import CorruptLog
from ottla.log.producers import NO_OFFSET, AppendedBatch, Producer, Producers

HEAD = struct.Struct(">hIi")
ENTRY = struct.Struct(">qhiqiqiq")
VERSION = 1
_CHECKED_AT = 6  # the checksum covers what stands behind it


def pack_snapshot(producers: Producers) -> bytes:
    data = bytearray(HEAD.pack(VERSION, 0, len(producers)))
    for producer_id, producer in producers.by_id.items():
        last = producer.batches[-1] if producer.batches else AppendedBatch(-1, NO_OFFSET, 0, -1)
        start = producer.transaction_start
        data += ENTRY.pack(
            producer_id,
            producer.epoch,
            last.last_sequence,
            last.last_offset,
            last.offset_delta,
            producer.last_timestamp,
            producer.coordinator_epoch,
            NO_OFFSET if start is None else start,
        )
    struct.pack_into(">I", data, 2, crc32c(memoryview(data)[_CHECKED_AT:]))
    return bytes(data)


def unpack_snapshot(data: bytes) -> list[tuple[int, Producer]]:
    """The producers in a snapshot, by id; CorruptLog says what is wrong with one."""
    if len(data) < HEAD.size:
        raise CorruptLog(f"a snapshot of {len(data)} bytes is shorter than its head")
    version, crc, count = HEAD.unpack_from(data)
    if version != VERSION:
        raise CorruptLog(f"snapshot version {version} is not {VERSION}")
    if crc32c(memoryview(data)[_CHECKED_AT:]) != crc:
        raise CorruptLog("the snapshot's checksum does not fit")
    if len(data) != HEAD.size + count * ENTRY.size:
        raise CorruptLog(f"a snapshot of {count} producers cannot have {len(data)} bytes")
    return [_producer(entry) for entry in ENTRY.iter_unpack(memoryview(data)[HEAD.size :])]


def _producer(entry: tuple[int, ...]) -> tuple[int, Producer]:
    producer_id, epoch, last_sequence, last_offset, offset_delta, timestamp, coordinator_epoch, start = entry
    producer = Producer(epoch)
    if last_offset >= 0:
        producer.batches.append(AppendedBatch(last_sequence, last_offset, offset_delta, timestamp))
    producer.last_timestamp = timestamp
    producer.coordinator_epoch = coordinator_epoch
    producer.transaction_start = None if start == NO_OFFSET else start
    return producer_id, producer
