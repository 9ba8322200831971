"""Producer snapshots (.snapshot): the producers of a partition as of an offset, in Kafka's format."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Set

from ottla.log.errors import CorruptLog
from ottla.log.files import Files
from ottla.log.producers import NO_OFFSET, AppendedBatch, Producer, Producers
from ottla.records.checksum import crc32c

SUFFIX = ".snapshot"
PREPARED = "snapshot.tmp"
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


class Snapshots:
    """The snapshot files of one log. They are not synced: one that was torn is seen by its checksum."""

    __slots__ = ("_files", "_folder", "offsets")

    def __init__(self, files: Files, folder: str, offsets: Iterable[int] = ()) -> None:
        self._files = files
        self._folder = folder
        self.offsets = sorted(offsets)

    def path(self, offset: int) -> str:
        return f"{self._folder}/{offset:020d}{SUFFIX}"

    def take(self, offset: int, producers: Producers) -> None:
        """Keep the producers as of `offset`, the end of the log."""
        if not self.offsets or self.offsets[-1] < offset:
            self._files.replace(self.path(offset), pack_snapshot(producers), durable=False)
            self.offsets.append(offset)

    def prepare(self, producers: Producers) -> None:
        """Write down the producers, but not yet under a name that counts."""
        self._files.write_at(f"{self._folder}/{PREPARED}", 0, pack_snapshot(producers))

    def complete(self, offset: int) -> None:
        """Give the last that was prepared its name, as of `offset`."""
        self._files.rename(f"{self._folder}/{PREPARED}", self.path(offset))
        self.offsets = sorted({*self.offsets, offset})

    def note_resumable(self, offset: int, bases: Set[int]) -> None:
        """One was written of `offset`, within a segment. Of older ones of that kind only the last is still of use."""
        within = [taken for taken in self.offsets if taken < offset and taken not in bases]
        self.remove(lambda taken: taken in within[:-1])
        self.offsets = sorted({*self.offsets, offset})

    def restore(self, producers: Producers) -> int | None:
        """Fill `producers` from the newest good snapshot, and give its offset; bad ones are removed."""
        while self.offsets:
            offset = self.offsets[-1]
            try:
                restored = unpack_snapshot(self._files.read_all(self.path(offset)))
            except (CorruptLog, FileNotFoundError):
                self._files.remove(self.path(self.offsets.pop()))
                continue
            for producer_id, producer in restored:
                producers.restore(producer_id, producer)
            return offset
        return None

    def remove(self, which: Callable[[int], bool]) -> None:
        for offset in filter(which, self.offsets):
            self._files.remove(self.path(offset))
        self.offsets = [offset for offset in self.offsets if not which(offset)]
