"""Producer snapshots (.snapshot): the producers of a partition as of an offset, in Kafka's format."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Set
from contextlib import suppress

from ottla.log.earlier_batches import SUFFIX as EARLIER
from ottla.log.earlier_batches import pack_earlier_batches, restore_earlier_batches
from ottla.log.errors import CorruptLog
from ottla.log.files import Files
from ottla.log.producers import NO_OFFSET, AppendedBatch, Producer, Producers
from ottla.records.checksum import crc32c

SUFFIX = ".snapshot"
PREPARED = "snapshot.tmp"
PREPARED_EARLIER = "batches.tmp"
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


def crc_of(snapshot: bytes) -> int:
    crc: int = HEAD.unpack_from(snapshot)[1]
    return crc


class Snapshots:
    """The snapshot files of one log, each with the earlier batches of its producers beside it, if there are any.

    They are not synced: one that was torn is seen by its checksum.
    """

    __slots__ = ("_aside", "_files", "_folder", "_with_earlier", "offsets")

    def __init__(
        self, files: Files, folder: str, offsets: Iterable[int] = (), with_earlier: Iterable[int] = ()
    ) -> None:
        """`with_earlier`: the offsets for which there is a file of earlier batches."""
        self._files = files
        self._folder = folder
        self._with_earlier = set(with_earlier)
        self.offsets = sorted(offsets)
        self._aside: set[int] = set()  # there, but not to be gone by

    def path(self, offset: int, suffix: str = SUFFIX) -> str:
        return f"{self._folder}/{offset:020d}{suffix}"

    def contents(self, offset: int, producers: Producers) -> dict[str, bytes]:
        """The files to write for `offset`, the end of the log, in that order."""
        snapshot = pack_snapshot(producers)
        earlier = pack_earlier_batches(producers, crc_of(snapshot))
        files = {} if earlier is None else {self.path(offset, EARLIER): earlier}
        return files | {self.path(offset): snapshot}

    def take(self, offset: int, producers: Producers, *, durable: bool = False) -> None:
        """Keep the producers as of `offset`, the end of the log."""
        if not self.offsets or self.offsets[-1] < offset:
            for path, data in self.contents(offset, producers).items():
                self._files.replace(path, data, durable=durable)
            self._note(offset, with_earlier=_has_earlier(producers))

    def prepare(self, producers: Producers) -> None:
        """Write down the producers, but not yet under a name that counts."""
        snapshot = pack_snapshot(producers)
        earlier = pack_earlier_batches(producers, crc_of(snapshot))
        if earlier is not None:
            self._files.write_at(f"{self._folder}/{PREPARED_EARLIER}", 0, earlier)
        self._files.write_at(f"{self._folder}/{PREPARED}", 0, snapshot)

    def complete(self, offset: int, producers: Producers) -> None:
        """Give the last that was prepared, of the same producers, its name as of `offset`."""
        if _has_earlier(producers):
            self._files.rename(f"{self._folder}/{PREPARED_EARLIER}", self.path(offset, EARLIER))
        self._files.rename(f"{self._folder}/{PREPARED}", self.path(offset))
        self._note(offset, with_earlier=_has_earlier(producers))

    def set_aside(self, which: Callable[[int], bool]) -> None:
        """Go on as if those were not there, until others are taken in their place."""
        self._aside.update(filter(which, self.offsets))
        self.offsets = [offset for offset in self.offsets if not which(offset)]

    def forget_aside(self) -> None:
        """Remove those that no other has taken the place of."""
        gone = self._aside.difference(self.offsets)
        self.offsets = sorted(gone.union(self.offsets))
        self.remove(lambda offset: offset in gone)
        self._aside.clear()

    def _note(self, offset: int, *, with_earlier: bool) -> None:
        self.offsets = sorted({*self.offsets, offset})
        if with_earlier:
            self._with_earlier.add(offset)
        elif offset in self._with_earlier:  # of another snapshot that was taken there
            self._with_earlier.discard(offset)
            self._files.remove(self.path(offset, EARLIER))

    def note_resumable(self, offset: int, bases: Set[int], *, with_earlier: bool) -> None:
        """One was written of `offset`, within a segment. Of older ones of that kind only the last is still of use."""
        within = [taken for taken in self.offsets if taken < offset and taken not in bases]
        self.remove(lambda taken: taken in within[:-1])
        self._note(offset, with_earlier=with_earlier)

    def restore(self, producers: Producers) -> int | None:
        """Fill `producers` from the newest good snapshot, and give its offset; bad ones are removed."""
        while self.offsets:
            offset = self.offsets[-1]
            try:
                data = self._files.read_all(self.path(offset))
                restored = unpack_snapshot(data)
            except (CorruptLog, FileNotFoundError):
                self.remove(lambda taken, bad=offset: taken == bad)  # type: ignore[misc]
                continue
            producers.restore(restored)
            if offset in self._with_earlier:
                with suppress(CorruptLog, FileNotFoundError):  # then their last batches are known, as to Kafka
                    restore_earlier_batches(producers, self._files.read_all(self.path(offset, EARLIER)), crc_of(data))
            return offset
        return None

    def remove(self, which: Callable[[int], bool]) -> None:
        for offset in filter(which, self.offsets):
            self._files.remove(self.path(offset))
            if offset in self._with_earlier:
                self._files.remove(self.path(offset, EARLIER))
                self._with_earlier.discard(offset)
        self.offsets = [offset for offset in self.offsets if not which(offset)]


def _has_earlier(producers: Producers) -> bool:
    return any(len(producer.batches) > 1 for producer in producers.by_id.values())
