"""Bringing a log to the disk: what is to be synced, and how far recovery need not look.

A flush has three steps of which only the middle one is slow: `LogFlusher.begin` gathers what must be synced,
`Flush.run` syncs it (on any thread: it touches no state), and `LogFlusher.end` moves the recovery point. All appends
that came before the begin are covered by one sync, which is what group commit is.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from ottla.log.checkpoint import PARTITION_METADATA
from ottla.log.errors import OUT_OF_FILES, StorageFailed
from ottla.log.files import File, remove_all
from ottla.log.flush import Flush
from ottla.log.segment import Segment

if TYPE_CHECKING:
    from ottla.log.log import Log

RESUME_BYTES = 64 << 20


class LogFlusher:
    __slots__ = ("_clean_end", "_flushed_ms", "_is_name_synced", "_log", "resume_position", "truncations")

    def __init__(self, log: Log) -> None:
        self._log: Log = weakref.proxy(log)  # a cycle would never be freed: the collector puts aside what stays
        self._is_name_synced = False  # the first flush also makes sure of the name of the folder
        self._clean_end: int | None = None  # where the log ended when all its files were on the disk and in order
        self._flushed_ms = log.active.created_ms
        self.resume_position = 0  # in the active segment: recovery need not read what lies before
        self.truncations = 0

    def truncated(self) -> None:
        """What is under way says nothing about what comes now."""
        self.truncations += 1
        self._clean_end = None

    def is_due(self, now_ms: int) -> bool:
        """Whether `flush.messages` or `flush.ms` ask for a flush now."""
        log = self._log
        unflushed = log.end_offset - log.recovery_point
        return unflushed > 0 and (
            unflushed >= log.config.flush_messages or now_ms - self._flushed_ms >= log.config.flush_ms
        )

    @property
    def resume_is_due(self) -> bool:
        """Whether so much was appended that recovery should get a place to begin with nearer to the end."""
        return self._log.active.size_bytes - self.resume_position >= RESUME_BYTES

    @property
    def unflushed_segments(self) -> int:
        """How many of them are not on the disk as a whole."""
        log = self._log
        if log.recovery_point >= log.end_offset:
            return 0
        return len(log.segments) - log.segments.number_for(log.recovery_point)

    def begin_resumable(self) -> Flush | None:
        """As `begin`, and after a crash only what comes from now on will be read."""
        log = self._log
        if log.is_young:
            return self.begin()
        with log.refusing():
            log.active.write_indexes()
            log.epochs.save()
        log.segments.names_changed = True
        flush = self.begin()
        if flush is not None:
            flush.paths += log.active.index_paths()
            flush.snapshot = log.snapshots.contents(log.end_offset, log.producers)
            self.resume_position = log.active.size_bytes
        return flush

    def begin(self) -> Flush | None:
        """The work of bringing all that was appended so far to the disk; None if it is there."""
        log = self._log
        if log.failure is not None:
            raise log.refusal
        has_names_to_sync = log.segments.names_changed and not log.is_empty
        if log.recovery_point >= log.end_offset and not (has_names_to_sync or log.epochs.unsynced):
            return None
        if not log.is_young:  # or what is not read again would hide the epochs that began in it
            with log.refusing():
                log.epochs.save()
        # One that ends at the recovery point may have been sealed, and its indexes written, after the last flush.
        *sealed, active = log.segments.starting_at(log.recovery_point - 1)
        files, paths = [self._opened(active)], []
        for segment in sealed:  # there may be very many, and descriptors for some
            file = segment.open_file
            if file is not None:
                files.append(file)
            paths += segment.paths() if file is None else segment.index_paths()
        if log.epochs.unsynced:
            paths.append(log.epochs.path)
        folders = [log.folder] if log.segments.names_changed or log.epochs.unsynced else []
        if not self._is_name_synced:
            folders.append(log.folder.rpartition("/")[0])
            paths.append(f"{log.folder}/{PARTITION_METADATA}")
        self._is_name_synced = True
        log.segments.names_changed = log.epochs.unsynced = False
        return Flush(log.files, log.end_offset, files, paths, folders, self.truncations)

    def _opened(self, segment: Segment) -> File:
        try:
            return segment.file
        except OSError as error:
            if error.errno not in OUT_OF_FILES:
                raise
            raise StorageFailed(f"{self._log.folder}: {error}") from error

    def end(self, flush: Flush, now_ms: int, error: OSError | None = None) -> None:
        """Take note of how a flush ended. One that failed is never tried again: the pages may be gone.

        Where there was no free descriptor, nothing was asked of the disk, and the next flush will do.
        """
        log = self._log
        if error is not None and error.errno in OUT_OF_FILES:
            log.segments.names_changed = True
            log.epochs.unsynced = log.epochs.has_file
            self._is_name_synced = False
            raise StorageFailed(f"{log.folder}: {error}") from error
        if error is not None:
            raise log.stopped(error) from error
        self._flushed_ms = now_ms
        is_of_now = flush.truncations == self.truncations
        if is_of_now:
            log.recovery_point = max(log.recovery_point, flush.up_to_offset)
        if flush.snapshot and is_of_now:
            bases = {segment.base_offset for segment in log.segments}
            log.snapshots.note_resumable(flush.up_to_offset, bases, with_earlier=len(flush.snapshot) > 1)
        else:
            remove_all(log.files, flush.snapshot)

    def flush(self, now_ms: int) -> None:
        """Begin, run and end a flush here and now."""
        flush = self.begin()
        if flush is not None:
            self._run(flush, now_ms)

    def _run(self, flush: Flush, now_ms: int) -> None:
        try:
            flush.run()
        except OSError as error:
            self.end(flush, now_ms, error)
        self.end(flush, now_ms)

    def note_clean_end(self) -> None:
        """All of the log is on the disk, and opening it again would find the same."""
        log = self._log
        log.segments.names_changed = False
        self._is_name_synced = True
        self.resume_position = log.active.size_bytes
        self._clean_end = log.end_offset

    def begin_close(self) -> Flush | None:
        """Write down what makes the next opening quick; the work of bringing it to the disk, None if it is there."""
        log = self._log
        unchanged = self._clean_end == log.end_offset and not (log.segments.names_changed or log.epochs.unsynced)
        if log.failure is not None or unchanged:
            return None
        log.segments.names_changed = True  # a flush that has begun may not have synced them yet
        self._is_name_synced = False
        return self.begin_resumable()

    def close(self, now_ms: int) -> None:
        """Flush all that makes the next opening quick."""
        flush = self.begin_close()
        if flush is not None:
            self._run(flush, now_ms)
