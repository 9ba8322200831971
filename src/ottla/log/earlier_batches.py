"""Beside a producer snapshot (.batches): the batches of each producer before the last one.

Kafka's snapshot has room for one batch of a producer. A producer may have five in flight, and if it did not hear what
became of them, it sends them all again after a restart. With this file they are known as duplicates then, too. It
names the snapshot it belongs to by that one's checksum; without it, or where it is torn, only the last batch is known.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ottla.log.errors import CorruptLog
from ottla.log.producers import AppendedBatch, Producers
from ottla.records.checksum import crc32c

SUFFIX = ".batches"
HEAD = struct.Struct(">hII")  # version, checksum of what comes behind it, checksum of the snapshot
ENTRY = struct.Struct(">qhiqiq")
VERSION = 1
_CHECKED_AT = 6


class EarlierBatch(NamedTuple):
    producer_id: int
    producer_epoch: int
    batch: AppendedBatch


def pack_earlier_batches(producers: Producers, snapshot_crc: int) -> bytes | None:
    """The batches that a snapshot leaves out, each producer's in their order; None if there are none."""
    entries = [
        ENTRY.pack(producer_id, producer.epoch, *batch)
        for producer_id, producer in producers.by_id.items()
        if len(producer.batches) > 1
        for batch in list(producer.batches)[:-1]
    ]
    if not entries:
        return None
    data = bytearray(HEAD.pack(VERSION, 0, snapshot_crc)) + b"".join(entries)
    struct.pack_into(">I", data, 2, crc32c(memoryview(data)[_CHECKED_AT:]))
    return bytes(data)


def unpack_earlier_batches(data: bytes) -> tuple[int, list[EarlierBatch]]:
    """The checksum of the snapshot they belong to, and the batches; CorruptLog says what is wrong."""
    if len(data) < HEAD.size or (len(data) - HEAD.size) % ENTRY.size:
        raise CorruptLog(f"{len(data)} bytes cannot be a head and whole entries")
    version, crc, snapshot_crc = HEAD.unpack_from(data)
    if version != VERSION:
        raise CorruptLog(f"version {version} is not {VERSION}")
    if crc32c(memoryview(data)[_CHECKED_AT:]) != crc:
        raise CorruptLog("the checksum does not fit")
    return snapshot_crc, [
        EarlierBatch(producer_id, epoch, AppendedBatch(*batch))
        for producer_id, epoch, *batch in ENTRY.iter_unpack(memoryview(data)[HEAD.size :])
    ]


def restore_earlier_batches(producers: Producers, data: bytes, snapshot_crc: int) -> None:
    """Give producers of a snapshot their earlier batches again; CorruptLog if they are not of that snapshot."""
    belongs_to, batches = unpack_earlier_batches(data)
    if belongs_to != snapshot_crc:
        raise CorruptLog("it belongs to another snapshot")
    for producer_id, epoch, batch in reversed(batches):
        producer = producers.by_id.get(producer_id)
        if producer is not None and producer.epoch == epoch:
            producer.batches.appendleft(batch)
