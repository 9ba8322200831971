"""One partition's log: a row of segments, appended at one end and removed at the other.

`ottla.log.recovery.open_log` makes one from a folder. Everything here runs on one thread; what is slow (syncing,
unlinking) is handed out as jobs that touch no state.

A log without records needs no folder: the first record makes it. And a young log, of one segment too short for an
index, has no file but that one and the id of its topic: whoever opens it reads it whole.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import NamedTuple

from ottla.log import failed_sync
from ottla.log.aborted import AbortedTransaction
from ottla.log.checkpoint import PARTITION_METADATA, format_partition_metadata
from ottla.log.epochs import LeaderEpochs
from ottla.log.errors import (
    PASSING,
    LogDeleted,
    OffsetOutOfRange,
    StaleLeaderEpoch,
    StorageFailed,
    stops_at_errors,
)
from ottla.log.files import Buffer, FileRange, Files
from ottla.log.flusher import LogFlusher
from ottla.log.hole import Hole
from ottla.log.owner import LogOwner
from ottla.log.producers import CompletedTransaction, Origin, Producers, stable_offset
from ottla.log.replicated import append_replicated
from ottla.log.rolling import Rolling
from ottla.log.segment import Segment
from ottla.log.segments import Segments
from ottla.log.snapshot import Snapshots
from ottla.log.topic_config import TopicConfig
from ottla.log.truncation import Cut, cut_fully, cut_to, prepare_cut, settle_cut, truncate_fully, truncate_to
from ottla.records import checksum
from ottla.records.batch import CONTROL, BatchHeader
from ottla.records.build import ControlMarker, read_marker
from ottla.records.codec import stamp_batches
from ottla.records.placement import Placement
from ottla.records.validate import ProduceSettings


class Appended(NamedTuple):
    """Where a batch went; a duplicate tells where it went the first time."""

    base_offset: int
    last_offset: int
    max_timestamp: int
    duplicate: bool = False


class NumberedBatch(NamedTuple):
    """A batch with a producer, and so a sequence number, among others that are written together."""

    offset: int  # from that of the first
    header: BatchHeader


def has_producer(header: BatchHeader) -> bool:
    """Whether a batch has a producer id, and so a sequence number."""
    return header.producer_id >= 0 and header.producer_epoch >= 0


class Log:
    def __init__(
        self,
        files: Files,
        folder: str,
        config: TopicConfig,
        *,
        segments: list[Segment],
        epochs: LeaderEpochs,
        producers: Producers,
        snapshots: Snapshots,
        log_start_offset: int = 0,
        end_offset: int = 0,
        recovery_point: int = 0,
        topic_id: bytes | None = None,
        has_folder: bool = True,
    ) -> None:
        self.files, self.folder, self.has_folder = files, folder, has_folder
        self.topic_id = topic_id
        self.segments = Segments(files, folder, segments)
        self.epochs = epochs
        self.producers = producers
        self.log_start_offset = log_start_offset
        self.end_offset = end_offset
        self.high_watermark = log_start_offset
        self.recovery_point = recovery_point
        self.failure: str | None = None
        self._is_retired = False
        self.uncleanable: str | None = None  # why it is not compacted any more
        self.hole: Hole | None = None  # records that have rotted
        self.lacks_end = False  # more than a write that a crash ended was cut off, and the cluster does not know yet
        self.owner = LogOwner()
        self.snapshots = snapshots
        self.cut: Cut | None = None  # that is not on the disk yet
        self.flusher = LogFlusher(self)
        self.placement: Placement | None = None  # what its topic asks of keys
        self.reconfigure(config)

    def __repr__(self) -> str:
        return f"<Log {self.folder}, {self.log_start_offset} to {self.end_offset}>"

    @property
    def active(self) -> Segment:
        return self.segments.active

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def is_empty(self) -> bool:
        """Whether there is no file, or only an empty one that can go."""
        return len(self.segments) == 1 and self.active.size_bytes == 0

    @property
    def is_young(self) -> bool:
        """Whether the log is so short that the next opening may as well read all of it.

        One that was larger, or whose indexes were to be denser, has files that the next opening would believe.
        """
        has_more_files = self.epochs.has_file or self.active.has_index_files
        return len(self.segments) == 1 and self.active.is_short and not has_more_files

    @property
    def last_stable_offset(self) -> int:
        """Up to where every transaction is decided and replicated."""
        return stable_offset(self.high_watermark, self.producers.first_unstable_offset, self.log_start_offset)

    def advance_high_watermark(self, offset: int) -> None:
        if not self.log_start_offset <= offset <= self.end_offset:
            offset = max(self.log_start_offset, min(offset, self.end_offset))
        self.high_watermark = offset
        if self.producers.unreplicated:
            self.producers.replicated(offset)

    @property
    def refusal(self) -> StorageFailed:
        """Why it takes no more writes."""
        assert self.failure is not None
        return (LogDeleted if self._is_retired else StorageFailed)(self.failure)

    # Appending

    def append(
        self,
        batch: bytearray | memoryview,
        header: BatchHeader,
        leader_epoch: int,
        now_ms: int,
        *,
        origin: Origin = Origin.CLIENT,
        new_epoch_starts_at_zero: bool = False,
        transaction_version: int = 0,
    ) -> Appended:
        """Write one batch as the leader does, giving it its offset and epoch in place.

        What a client sent goes through `validate_produce` with this log's `produce_settings` first.
        """
        if self.failure is not None:
            raise self.refusal
        marker = None
        if header.last_offset_delta < 0:
            raise ValueError("a batch without an offset: whoever opens the log would cut it here")
        if header.attributes & CONTROL and has_producer(header):
            marker = self._checked_marker(batch, header, transaction_version)
        else:
            known = self.admit(header, origin, new_epoch_starts_at_zero=new_epoch_starts_at_zero)
            if known is not None:
                return known
        numbered = (NumberedBatch(0, header),) if has_producer(header) else ()
        base_offset = self.write(batch, numbered, leader_epoch, now_ms, marker)
        return Appended(base_offset, base_offset + header.last_offset_delta, header.max_timestamp)

    def admit(
        self, header: BatchHeader, origin: Origin = Origin.CLIENT, *, new_epoch_starts_at_zero: bool = False
    ) -> Appended | None:
        """Check a batch before it is written: LogError where it must not be; where it lies, if it is a duplicate."""
        if self.failure is not None:
            raise self.refusal
        if not has_producer(header):
            return None
        known = self.producers.find_duplicate(header) if origin is Origin.CLIENT else None
        if known is not None:
            return Appended(known.base_offset, known.last_offset, known.timestamp, duplicate=True)
        self.producers.check(header, origin, new_epoch_starts_at_zero=new_epoch_starts_at_zero)
        return None

    def write(
        self,
        batches: bytearray | memoryview,
        numbered: Sequence[NumberedBatch],
        leader_epoch: int,
        now_ms: int,
        marker: ControlMarker | None = None,
    ) -> int:
        """Stamp admitted batches in place, and write them with one write; the offset of the first.

        `numbered`: those that have a producer, one of each at most: the next is checked when this one is written.
        When it raises, none of the batches was written. A marker comes alone.
        """
        if self.failure is not None:
            raise self.refusal
        if self.cut is not None:
            self.settle_cut()
        base_offset = self.end_offset
        try:
            if leader_epoch != self.epochs.latest:
                self._begin_epoch(leader_epoch)
            next_offset, newest, _ = stamp_batches(batches, base_offset, leader_epoch)
            position = self.write_bytes(batches, next_offset - 1, newest, now_ms)
        except StorageFailed:
            if marker is None:
                for batch in numbered:
                    self.producers.note_unwritten(batch.header)
            raise
        self.segments.active.note_batches(position, batches)
        self.end_offset = next_offset
        for batch in numbered:
            self.note_producer(batch.header, base_offset + batch.offset, marker)
        return base_offset

    def prepare(self, header: BatchHeader | None) -> None:
        """Make the folder for the first batch. `header`: of that batch, where it may have a producer."""
        try:
            self._make_folder()
        except StorageFailed:
            if header is not None and has_producer(header):
                self.producers.note_unwritten(header)
            raise

    append_replicated = append_replicated

    def write_bytes(self, data: Buffer, last_offset: int, max_timestamp: int, now_ms: int) -> int:
        """Write batches into the active segment, or into the next one; the position in it."""
        if not self.has_folder:
            self._make_folder()
        try:
            if self.rolling.is_due(self.segments.active, len(data), last_offset, max_timestamp, now_ms):
                self.roll(now_ms)
            return self.segments.active.append(data)
        except OSError as error:
            if error.errno not in PASSING:
                self.failure = f"{self.folder}: {error}"
            self.owner.failed(error)
            raise StorageFailed(f"{self.folder}: {error}") from error

    def make_folder(self) -> None:
        """Have the folder before the first record."""
        if not self.has_folder:
            self._make_folder()

    def _make_folder(self) -> None:
        """The first record comes. What fails half way is done again with the next."""
        with self.refusing():
            checksum.prepare()  # large batches need it, and it opens files: better now than when there are none left
            self.owner.before_folder()
            self.files.make_folder(self.folder)
            if self.topic_id is not None:
                path = f"{self.folder}/{PARTITION_METADATA}"
                self.files.write_at(path, 0, format_partition_metadata(self.topic_id))
        self.has_folder = True

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """For what may be tried again: an error refuses what was asked for, and the log goes on."""
        try:
            yield
        except OSError as error:
            self.owner.failed(error)
            raise StorageFailed(f"{self.folder}: {error}") from error

    def _checked_marker(self, batch: Buffer, header: BatchHeader, transaction_version: int) -> ControlMarker:
        marker = read_marker(batch)
        self.producers.check_marker(
            header.producer_id, header.producer_epoch, marker, transaction_version=transaction_version
        )
        return marker

    def _begin_epoch(self, leader_epoch: int) -> None:
        if leader_epoch < self.epochs.latest:
            raise StaleLeaderEpoch(f"epoch {leader_epoch} writes behind {self.epochs.latest} in {self.folder}")
        self.assign_epoch(leader_epoch, self.end_offset)

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        with self.refusing():
            self.epochs.assign(epoch, start_offset)

    def note_producer(self, header: BatchHeader, base_offset: int, marker: ControlMarker | None) -> None:
        if marker is None:
            if not header.attributes & CONTROL:
                self.producers.appended(header, base_offset)
            return
        completed = self.producers.marked(header, base_offset, marker)
        if completed is not None and completed.aborted:
            self.note_aborted(self.active, completed)

    def note_aborted(self, segment: Segment, completed: CompletedTransaction) -> None:
        stable_offset = self.producers.stable_offset_after(completed)
        segment.aborted.append(
            AbortedTransaction(completed.producer_id, completed.first_offset, completed.last_offset, stable_offset)
        )

    # Rolling

    def reconfigure(self, config: TopicConfig) -> None:
        """Go by other settings from now on."""
        self.config = config
        self.produce_settings = ProduceSettings(
            is_log_append_time=config.is_log_append_time,
            before_max_ms=config.message_timestamp_before_max_ms,
            after_max_ms=config.message_timestamp_after_max_ms,
            max_message_bytes=config.max_message_bytes,
            is_compacted=config.is_compacted,
            codec=config.target_codec,
            level=config.target_level,
            placement=self.placement,
        )
        self.rolling = Rolling(config)

    def place(self, placement: Placement | None) -> None:
        """Ask something else of the keys of what is produced."""
        self.placement = placement
        self.produce_settings = dataclasses.replace(self.produce_settings, placement=placement)

    def roll(self, now_ms: int, base_offset: int = -1) -> None:
        """Seal the active segment and start the next one at the end of the log, or later (`base_offset`)."""
        if self.active.size_bytes == 0 and base_offset <= self.active.base_offset:
            return
        self.settle_cut()
        with self.refusing():
            if not self.active.size_bytes:
                self.active.append(b"")  # its file may not be there
            self.active.write_indexes()
            self.epochs.save()
            self.snapshots.prepare(self.producers)
            self.segments.create(max(self.end_offset, base_offset), now_ms, self.config.index_interval_bytes)
        with suppress(OSError):  # without it more is read after a crash, and that is all
            self.snapshots.complete(self.end_offset, self.producers)
        self.flusher.resume_position = 0
        self.rolling.begin()

    def _roll_for_removal(self, now_ms: int) -> None:
        """Roll before all segments are removed. On a full disk, too: an empty segment needs no room.

        The producers' snapshot is left out then: the batches that it was made of are about to go.
        """
        try:
            self.roll(now_ms)
        except StorageFailed:
            with self.refusing():
                self.segments.create(self.end_offset, now_ms, self.config.index_interval_bytes)
            self.flusher.resume_position = 0
            self.rolling.begin()

    # Reading

    def read(self, offset: int, max_bytes: int, bound: int, *, whole_batch: bool = True) -> FileRange | None:
        """Bytes of batches from the one that holds `offset` on, all below the offset `bound`.

        None when there is nothing to read there (yet). The first batch may begin below `offset`.
        """
        if not self.log_start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRange(f"offset {offset} is not within {self.log_start_offset} and {self.end_offset}")
        if offset >= bound:
            return None
        try:
            return self.segments.read(offset, max_bytes, bound, self.end_offset, whole_batch=whole_batch)
        except OSError as error:  # a reader of several logs must go on with the others
            raise StorageFailed(f"{self.folder}: {error}") from error

    def aborted_transactions(self, offset: int, bound: int) -> list[AbortedTransaction]:
        """The aborted transactions with records from `offset` on and below `bound`."""
        return self.segments.aborted_transactions(offset, bound)

    def aborted_within(self, read: FileRange, offset: int, bound: int) -> list[AbortedTransaction]:
        """The aborted transactions that a reader needs to know for what it has read from `offset` on."""
        if not any(segment.aborted.entries for segment in self.segments.starting_at(offset)):
            return []
        try:
            bound = min(bound, self.segments.bound_of(read, offset, self.end_offset))
        except OSError as error:
            raise StorageFailed(f"{self.folder}: {error}") from error
        return self.aborted_transactions(offset, bound)

    def stopped(self, error: OSError) -> StorageFailed:
        """Take no more writes until the log is opened again; the error to raise."""
        if not self._is_retired:
            self.failure = f"{self.folder}: {error}"
            with suppress(OSError):
                self.owner.with_room(partial(failed_sync.mark, self.files, self.folder))
            self.owner.failed(error)
        return self.refusal

    # Removing

    prepare_cut = prepare_cut
    cut_to = cut_to
    cut_fully = cut_fully
    settle_cut = settle_cut
    truncate_to = truncate_to
    truncate_fully = truncate_fully

    def advance_log_start(self, offset: int) -> None:
        """Let the log start at `offset`; retention removes the segments that lie wholly before it."""
        if offset <= self.log_start_offset:
            return
        if offset > self.high_watermark:
            raise OffsetOutOfRange(f"offset {offset} is beyond the high watermark {self.high_watermark}")
        self.log_start_offset = offset
        self.epochs.truncate_from_start(offset)

    @stops_at_errors
    def remove_first(self, count: int, now_ms: int) -> None:
        """Remove the oldest segments. Their files go after `file.delete.delay.ms`: somebody may be reading them."""
        if count == len(self.segments):
            self._roll_for_removal(now_ms)
        start = self.segments[count].base_offset
        if start > self.log_start_offset:
            self.log_start_offset = start
            self.epochs.truncate_from_start(start)
        self.high_watermark = max(self.high_watermark, self.log_start_offset)
        self.snapshots.remove(lambda taken: taken < start)
        self.segments.remove_first(count, now_ms + self.config.file_delete_delay_ms)

    @stops_at_errors
    def replace_segments(self, old: list[Segment], new: list[Segment], now_ms: int) -> None:
        """Put compacted segments (complete and synced, with the swap suffix) in the place of their sources."""
        gone = {segment.base_offset for segment in old} - {segment.base_offset for segment in new}
        self.snapshots.remove(lambda taken: taken in gone)
        self.segments.replace(old, new, now_ms + self.config.file_delete_delay_ms)

    # The end

    def retire(self) -> None:
        """Its topic is deleted. Another log may get the folder, so work that is under way must not touch it."""
        self.failure = f"{self.folder} was deleted"
        self._is_retired = True
        self.flusher.truncations += 1
        self.segments.layout_version += 1
        self.segments.retire()

    def flush(self, now_ms: int) -> None:
        """Bring all that was appended to the disk, here and now."""
        self.flusher.flush(now_ms)

    def close(self, now_ms: int) -> None:
        """Flush and write everything that makes the next opening quick."""
        self.flusher.close(now_ms)
        self.segments.close()
