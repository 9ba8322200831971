"""One partition's log: a row of segments, appended at one end and removed at the other.

`ottla.log.recovery.open_log` makes one from a folder. Everything here runs on one thread; what is slow (syncing,
unlinking) is handed out as jobs that touch no state.

A log without records needs no folder: the first record makes it. And a young log, of one segment too short for an
index, has no file but that one and the id of its topic: whoever opens it reads it whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from ottla.log.aborted import AbortedTransaction
from ottla.log.checkpoint import PARTITION_METADATA, format_partition_metadata
from ottla.log.epochs import LeaderEpochs
from ottla.log.errors import PASSING, OffsetOutOfRange, StaleLeaderEpoch, StorageFailed, stops_at_errors
from ottla.log.files import Buffer, FileRange, Files, remove_all
from ottla.log.flush import Flush
from ottla.log.producers import CompletedTransaction, Origin, Producers
from ottla.log.replay import rebuild_producers
from ottla.log.replicated import checked_batches
from ottla.log.rolling import Rolling
from ottla.log.segment import Segment
from ottla.log.segments import Segments
from ottla.log.snapshot import Snapshots
from ottla.log.topic_config import TopicConfig
from ottla.records.batch import CONTROL, BatchHeader, stamp_offset_and_epoch
from ottla.records.build import ControlMarker, read_marker
from ottla.records.validate import ProduceSettings

RESUME_BYTES = 64 << 20


class Appended(NamedTuple):
    """Where a batch went; a duplicate tells where it went the first time."""

    base_offset: int
    last_offset: int
    max_timestamp: int
    duplicate: bool = False


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
        self.uncleanable: str | None = None  # why it is not compacted any more
        self.before_truncation: Callable[[int], None] = lambda _recovery_point: None
        self.snapshots = snapshots
        self._is_name_synced = False  # the first flush also makes sure of the name of the folder
        self._resume_position = 0  # in the active segment: recovery need not read what lies before
        self._clean_end: int | None = None  # where the log ended when all its files were on the disk and in order
        self._truncations = 0
        self._flushed_ms = self.active.created_ms
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
        """Whether there are no files but one without bytes, which would not be missed."""
        return len(self.segments) == 1 and self.active.size_bytes == 0

    @property
    def is_young(self) -> bool:
        """Whether there is so little that the next opening may as well read it all."""
        return len(self.segments) == 1 and self.active.is_short

    @property
    def last_stable_offset(self) -> int:
        """Up to where every transaction is decided and replicated."""
        unstable = self.producers.first_unstable_offset
        if unstable is None:
            return self.high_watermark
        return max(self.log_start_offset, min(unstable, self.high_watermark))  # records may have been deleted

    def advance_high_watermark(self, offset: int) -> None:
        self.high_watermark = max(self.log_start_offset, min(offset, self.end_offset))
        self.producers.replicated(self.high_watermark)

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
            raise StorageFailed(self.failure)
        has_producer = header.producer_id >= 0 and header.producer_epoch >= 0
        marker = None
        if has_producer:
            if header.attributes & CONTROL:
                marker = self._checked_marker(batch, header, transaction_version)
            else:
                known = self.producers.find_duplicate(header) if origin is Origin.CLIENT else None
                if known is not None:
                    return Appended(known.base_offset, known.last_offset, known.timestamp, duplicate=True)
                self.producers.check(header, origin, new_epoch_starts_at_zero=new_epoch_starts_at_zero)
        base_offset = self.end_offset
        last_offset = base_offset + header.last_offset_delta
        try:
            if leader_epoch != self.epochs.latest:
                self._begin_epoch(leader_epoch)
            stamp_offset_and_epoch(batch, 0, base_offset, header.length, leader_epoch)
            self._write(batch, last_offset, header.max_timestamp, now_ms)
        except StorageFailed:
            if has_producer and marker is None:
                self.producers.note_unwritten(header)
            raise
        if has_producer:
            self._note_producer(header, base_offset, marker)
        return Appended(base_offset, last_offset, header.max_timestamp)

    def append_all(self, batches: Sequence[tuple[memoryview, BatchHeader]], leader_epoch: int, now_ms: int) -> int:
        """Write batches without producer ids as `append` does, but all with one write; the offset of the first.

        When it raises, none of them was written.
        """
        if self.failure is not None:
            raise StorageFailed(self.failure)
        if leader_epoch != self.epochs.latest:
            self._begin_epoch(leader_epoch)
        base_offset = next_offset = self.end_offset
        for batch, header in batches:
            stamp_offset_and_epoch(batch, 0, next_offset, header.length, leader_epoch)
            next_offset += header.last_offset_delta + 1
        newest = max([header.max_timestamp for _, header in batches])
        position = self._write_bytes(b"".join([batch for batch, _ in batches]), next_offset - 1, newest, now_ms)
        active, next_offset = self.segments.active, base_offset
        for batch, header in batches:
            size = len(batch)
            next_offset += header.last_offset_delta + 1
            active.note_batch(position, size, next_offset - 1, header.max_timestamp)
            position += size
        self.end_offset = next_offset
        return base_offset

    def append_replicated(self, records: memoryview, now_ms: int) -> int:
        """Write batches as the leader gave them, which must continue this log; how many bytes were taken."""
        if self.failure is not None:
            raise StorageFailed(self.failure)
        position = 0
        for start, header, marker in checked_batches(records, self.end_offset, self.epochs.latest):
            position = start + header.size
            if header.leader_epoch > self.epochs.latest:
                self._assign_epoch(header.leader_epoch, header.base_offset)
            self._write(records[start:position], header.last_offset, header.max_timestamp, now_ms)
            if header.producer_id >= 0:
                self._note_producer(header, header.base_offset, marker)
        return position

    def _write(self, batch: Buffer, last_offset: int, max_timestamp: int, now_ms: int) -> None:
        """Bring one batch with its final offsets into the log."""
        position = self._write_bytes(batch, last_offset, max_timestamp, now_ms)
        self.segments.active.note_batch(position, len(batch), last_offset, max_timestamp)
        self.end_offset = last_offset + 1

    def _write_bytes(self, data: Buffer, last_offset: int, max_timestamp: int, now_ms: int) -> int:
        """Write batches into the active segment, or into the next; at which position."""
        if not self.has_folder:
            self._make_folder()
        if self._rolling.is_due(self.segments.active, len(data), last_offset, max_timestamp, now_ms):
            self.roll(now_ms)
        try:
            return self.segments.active.append(data)
        except OSError as error:
            if error.errno not in PASSING:
                self.failure = f"{self.folder}: {error}"
            raise StorageFailed(f"{self.folder}: {error}") from error

    def _make_folder(self) -> None:
        """The first record comes. What fails half way is done again with the next."""
        with self._refusing():
            self.files.make_folder(self.folder)
            if self.topic_id is not None:
                path = f"{self.folder}/{PARTITION_METADATA}"
                self.files.write_at(path, 0, format_partition_metadata(self.topic_id))
        self.has_folder = True

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """For what may be tried again: an error refuses what was asked for, and the log goes on."""
        try:
            yield
        except OSError as error:
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
        self._assign_epoch(leader_epoch, self.end_offset)

    def _assign_epoch(self, epoch: int, start_offset: int) -> None:
        with self._refusing():
            self.epochs.assign(epoch, start_offset)

    def _note_producer(self, header: BatchHeader, base_offset: int, marker: ControlMarker | None) -> None:
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
        )
        self._rolling = Rolling(config)

    def roll(self, now_ms: int) -> None:
        """Seal the active segment and start the next one at the end of the log."""
        if self.active.size_bytes == 0:
            return
        with self._refusing():
            self.active.write_indexes()
            self.epochs.save()
            self.snapshots.prepare(self.producers)
            self.segments.create(self.end_offset, now_ms, self.config.index_interval_bytes)
        with suppress(OSError):  # without it more is read after a crash; and with it there is the segment, too
            self.snapshots.complete(self.end_offset, self.producers)
        self._resume_position = 0
        self._rolling.begin()

    # Reading

    def read(self, offset: int, max_bytes: int, bound: int, *, whole_batch: bool = True) -> FileRange | None:
        """Bytes of batches from the one that holds `offset` on, all below the offset `bound`.

        None when there is nothing to read there (yet). The first batch may begin below `offset`.
        """
        if not self.log_start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRange(f"offset {offset} is not within {self.log_start_offset} and {self.end_offset}")
        if offset >= bound:
            return None
        return self.segments.read(offset, max_bytes, bound, self.end_offset, whole_batch=whole_batch)

    def aborted_transactions(self, offset: int, bound: int) -> list[AbortedTransaction]:
        """The aborted transactions with records from `offset` on and below `bound`."""
        return self.segments.aborted_transactions(offset, bound)

    def aborted_within(self, read: FileRange, offset: int, bound: int) -> list[AbortedTransaction]:
        """Those that who reads from `offset` on needs to know for what was read."""
        if not any(segment.aborted.entries for segment in self.segments.starting_at(offset)):
            return []
        return self.aborted_transactions(offset, min(bound, self.segments.bound_of(read, offset, self.end_offset)))

    # Flushing

    def flush_is_due(self, now_ms: int) -> bool:
        """Whether `flush.messages` or `flush.ms` ask for a flush now."""
        unflushed = self.end_offset - self.recovery_point
        return unflushed > 0 and (
            unflushed >= self.config.flush_messages or now_ms - self._flushed_ms >= self.config.flush_ms
        )

    @property
    def resume_is_due(self) -> bool:
        """Whether so much was appended that recovery should get a place to begin with nearer to the end."""
        return self.active.size_bytes - self._resume_position >= RESUME_BYTES

    def begin_resumable_flush(self) -> Flush | None:
        """As `begin_flush`, and after a crash only what comes from now on will be read."""
        if self.is_young:
            return self.begin_flush()
        with self._refusing():
            self.active.write_indexes()
            self.epochs.save()
        self.segments.names_changed = True
        flush = self.begin_flush()
        if flush is not None:
            flush.paths += self.active.index_paths()
            flush.snapshot = self.snapshots.contents(self.end_offset, self.producers)
            self._resume_position = self.active.size_bytes
        return flush

    def begin_flush(self) -> Flush | None:
        """The work of bringing all that was appended so far to the disk; None if it is there."""
        if self.failure is not None:
            raise StorageFailed(self.failure)
        has_names_to_sync = self.segments.names_changed and not self.is_empty
        if self.recovery_point >= self.end_offset and not (has_names_to_sync or self.epochs.unsynced):
            return None
        if not self.is_young:  # or what is not read again would hide the epochs that began in it
            with self._refusing():
                self.epochs.save()
        # One that ends at the recovery point may have been sealed, and its indexes written, after the last flush.
        unflushed = list(self.segments.starting_at(self.recovery_point - 1))
        paths = [path for segment in unflushed[:-1] for path in segment.index_paths()]
        if self.epochs.unsynced:
            paths.append(self.epochs.path)
        folders = [self.folder] if self.segments.names_changed or self.epochs.unsynced else []
        if not self._is_name_synced:
            folders.append(self.folder.rpartition("/")[0])
            paths.append(f"{self.folder}/{PARTITION_METADATA}")
        self._is_name_synced = True
        self.segments.names_changed = self.epochs.unsynced = False
        return Flush(self.files, self.end_offset, [each.file for each in unflushed], paths, folders, self._truncations)

    def end_flush(self, flush: Flush, now_ms: int, error: OSError | None = None) -> None:
        """Take note of how a flush ended. One that failed is never tried again: the pages may be gone."""
        if error is not None:
            raise self.stopped(error) from error
        self._flushed_ms = now_ms
        is_of_now = flush.truncations == self._truncations
        if is_of_now:
            self.recovery_point = max(self.recovery_point, flush.up_to_offset)
        if flush.snapshot and is_of_now:
            bases = {segment.base_offset for segment in self.segments}
            self.snapshots.note_resumable(flush.up_to_offset, bases, with_earlier=len(flush.snapshot) > 1)
        else:
            remove_all(self.files, flush.snapshot)

    def flush(self, now_ms: int) -> None:
        """Begin, run and end a flush here and now."""
        flush = self.begin_flush()
        if flush is not None:
            self._run(flush, now_ms)

    def _run(self, flush: Flush, now_ms: int) -> None:
        try:
            flush.run()
        except OSError as error:
            self.end_flush(flush, now_ms, error)
        self.end_flush(flush, now_ms)

    def stopped(self, error: OSError) -> StorageFailed:
        """Take no more writes until the log is opened again; the error to raise."""
        self.failure = f"{self.folder}: {error}"
        return StorageFailed(self.failure)

    # Truncating and removing

    @stops_at_errors
    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Drop all records from `offset` on, with the whole batch that holds it."""
        if offset >= self.end_offset:
            return
        if offset < self.segments[0].base_offset:
            self.truncate_fully(offset, now_ms)
            return
        found = self.segments[self.segments.number_for(offset)].locate(offset)
        end_offset = offset if found is None else min(offset, found[2])
        self._lower_recovery_point(end_offset)
        while self.active.base_offset >= end_offset and len(self.segments) > 1:
            self.segments.remove_last()
        self.active.cut(self.active.position_of(end_offset), end_offset)
        self._ended_at(end_offset)
        rebuild_producers(self)

    @stops_at_errors
    def truncate_fully(self, offset: int, now_ms: int) -> None:
        """Drop everything and go on at `offset`."""
        if not self.has_folder:
            self._make_folder()
        self._lower_recovery_point(offset)
        while self.segments:
            self.segments.remove_last()
        self.segments.create(offset, now_ms, self.config.index_interval_bytes)
        self.epochs.clear()
        self.snapshots.remove(lambda _taken: True)
        self.log_start_offset = offset
        self._ended_at(offset)
        self.high_watermark = offset
        self.producers.clear()

    def _lower_recovery_point(self, offset: int) -> None:
        """What will be overwritten must be scanned again after a crash, and the disk must know that first.

        Also where the recovery point lies lower: others go by what was there, too.
        """
        self._truncations += 1
        self._clean_end = None
        self.segments.layout_version += 1
        self.recovery_point = min(self.recovery_point, offset)
        self.before_truncation(offset)

    def _ended_at(self, end_offset: int) -> None:
        # One of the end may have been taken when a segment began there, which is no place for recovery to begin at.
        self.snapshots.remove(lambda taken: taken >= max(end_offset, self.active.base_offset + 1))
        self.epochs.truncate_from_end(end_offset)
        self.files.sync_folder(self.folder)
        self.end_offset = end_offset
        self.log_start_offset = min(self.log_start_offset, end_offset)
        self.high_watermark = min(self.high_watermark, end_offset)
        self.recovery_point = min(self.recovery_point, end_offset)
        self._resume_position = 0
        self._rolling.begin()

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
        """Remove the oldest segments; their files go after `file.delete.delay.ms`, for readers' sake."""
        if count == len(self.segments):
            self.roll(now_ms)
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
        """Its topic is deleted, and another log may get the folder: what is under way must leave that alone."""
        self.failure = f"{self.folder} was deleted"
        self._truncations += 1
        self.segments.layout_version += 1

    def note_clean_end(self) -> None:
        """All of the log is on the disk, and opening it again would find the same."""
        self.segments.names_changed = False
        self._is_name_synced = True
        self._resume_position = self.active.size_bytes
        self._clean_end = self.end_offset

    def begin_close(self) -> Flush | None:
        """Write down what makes the next opening quick; the work of bringing it to the disk, None if it is there."""
        unchanged = self._clean_end == self.end_offset and not (self.segments.names_changed or self.epochs.unsynced)
        if self.failure is not None or unchanged:
            return None
        self.segments.names_changed = True  # a flush that has begun may not have synced them yet
        self._is_name_synced = False
        return self.begin_resumable_flush()

    def close(self, now_ms: int) -> None:
        """Flush and write everything that makes the next opening quick."""
        flush = self.begin_close()
        if flush is not None:
            self._run(flush, now_ms)
        self.segments.close()
