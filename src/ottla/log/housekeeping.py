"""The work a data folder needs now and then: flushing, retention, compaction, removal, checkpoints.

All of it is one generator of small slices. Between two of them the owner serves requests. Where a slice must block
(a sync, an unlink) it gives a job instead, to be run on another thread; if the job fails, its error is thrown back
in. Nothing here reads a clock but the one it is given.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator
from functools import partial

from ottla.log.checkpoint import CLEANER_OFFSETS, RECOVERY_POINTS, TopicPartition
from ottla.log.compaction import MAP_BYTES, Cleanable, Compaction, Job, cleanable
from ottla.log.errors import PASSING, StorageFailed
from ottla.log.files import remove_all
from ottla.log.flush import Flush
from ottla.log.log import Log
from ottla.log.manager import CHECKPOINTS, LogManager
from ottla.log.retention import apply_retention

SECOND_MS = 1000
MINUTE_MS = 60 * SECOND_MS
DAY_MS = 24 * 60 * MINUTE_MS
LOGS_A_SLICE = 100

Slices = Generator[Job | None, None, None]


class Housekeeping:
    def __init__(
        self,
        manager: LogManager,
        clock_ms: Callable[[], int],
        *,
        flush_interval_ms: int = SECOND_MS,
        retention_interval_ms: int = 5 * MINUTE_MS,
        compaction_interval_ms: int = 15 * SECOND_MS,
        checkpoint_interval_ms: int = MINUTE_MS,
        producer_interval_ms: int = 10 * MINUTE_MS,
        producer_expiration_ms: int = DAY_MS,
        compacts: bool = True,
        map_bytes: int = MAP_BYTES,
        report_uncleanable: Callable[[TopicPartition, str], None] = lambda _partition, _reason: None,
    ) -> None:
        """`report_uncleanable`: told of a log that is not compacted any more, and why."""
        self._manager = manager
        self.clock_ms = clock_ms
        self._compacts = compacts
        self._report_uncleanable = report_uncleanable
        self.compaction_interval_ms = compaction_interval_ms  # may be changed at any time, as the next two
        self.map_bytes = map_bytes
        self.producer_expiration_ms = producer_expiration_ms
        now_ms = clock_ms()
        self._tasks: list[tuple[Callable[[], int], Callable[[], Slices]]] = [
            (lambda: flush_interval_ms, self.flush),
            (lambda: retention_interval_ms, self.retain),
            (lambda: self.compaction_interval_ms, self.compact),
            (lambda: flush_interval_ms, self.remove),
            (lambda: checkpoint_interval_ms, self.checkpoint),
            (lambda: producer_interval_ms, self.expire_producers),
        ]
        self._due_ms = [now_ms + interval_ms() for interval_ms, _ in self._tasks]

    @property
    def next_due_ms(self) -> int:
        return min(self._due_ms)

    def run(self) -> Slices:
        """Do all that is due now. What fails is due again in its time, and raises when the rest is done."""
        failures = _Failures()
        for number, (interval_ms, task) in enumerate(self._tasks):
            if self.clock_ms() >= self._due_ms[number]:
                with failures.kept():  # on a full disk retention must go on, of all things
                    yield from task()
                self._due_ms[number] = self.clock_ms() + interval_ms()
        failures.raise_first()

    def _logs(self) -> Iterator[tuple[TopicPartition, Log]]:
        """Every log that is still there when its turn comes."""
        for partition in list(self._manager.logs):
            log = self._manager.logs.get(partition)
            if log is not None and log.failure is None:
                yield partition, log

    def flush(self) -> Slices:
        """Flush what flush.messages and flush.ms ask, and so much that little is scanned after a crash."""
        has_moved_far = False
        failures = _Failures()
        for number, (_, log) in enumerate(self._logs()):
            with failures.kept():
                if log.resume_is_due or log.recovery_point < log.active.base_offset:
                    yield from self._flush(log, log.begin_resumable_flush if log.resume_is_due else log.begin_flush)
                    has_moved_far = True
                elif log.flush_is_due(self.clock_ms()):
                    yield from self._flush(log, log.begin_flush)
            if number % LOGS_A_SLICE == LOGS_A_SLICE - 1:
                yield None
        if has_moved_far:
            yield self._manager.checkpoint(RECOVERY_POINTS)
        failures.raise_first()

    def _flush(self, log: Log, begin: Callable[[], Flush | None]) -> Slices:
        try:
            flush = begin()
        except StorageFailed:
            return  # the disk is full: the next time will do
        if flush is None:
            return
        try:
            yield flush.run
        except OSError as error:
            try:
                log.end_flush(flush, self.clock_ms(), error)
            except StorageFailed:
                return  # the log has noted it, and refuses writes from now on
        else:
            log.end_flush(flush, self.clock_ms())

    def retain(self) -> Slices:
        failures = _Failures()
        for number, (_, log) in enumerate(self._logs()):
            removed = 0
            with failures.kept(), contextlib.suppress(StorageFailed):  # the log has noted it, and takes no more writes
                removed = apply_retention(log, self.clock_ms())
            if removed or number % LOGS_A_SLICE == LOGS_A_SLICE - 1:
                yield None
        failures.raise_first()

    def remove(self) -> Slices:
        """Unlink what was deleted long enough ago."""
        now_ms = self.clock_ms()
        for _, log in self._logs():
            for path in log.segments.due_removals(now_ms):
                yield partial(remove_all, log.files, [path])
        folders = self._manager.due_folders(now_ms)
        for first in range(0, len(folders), LOGS_A_SLICE):
            yield partial(self._manager.remove_folders, folders[first : first + LOGS_A_SLICE])

    def checkpoint(self) -> Slices:
        for name in CHECKPOINTS:
            yield self._manager.checkpoint(name)

    def expire_producers(self) -> Slices:
        for number, (_, log) in enumerate(self._logs()):
            log.producers.expire(self.clock_ms(), self.producer_expiration_ms)
            if number % LOGS_A_SLICE == LOGS_A_SLICE - 1:
                yield None

    # Compaction

    def compact(self) -> Slices:
        """Compact the logs that need it, the dirtiest first."""
        while self._compacts and (choice := self._dirtiest()) is not None:
            partition, log, work = choice
            compaction = Compaction(log, work, self.clock_ms(), map_bytes=self.map_bytes)
            # What compaction leaves out must be known to be on the disk, not lost, when the log is next opened.
            yield self._manager.checkpoint(RECOVERY_POINTS)
            try:
                yield from compaction.run()
            except Exception as error:  # also a mistake of ours: the other logs must not wait for its end
                if self._manager.logs.get(partition) is not log:
                    continue  # it was deleted
                if isinstance(error, OSError) and error.errno in PASSING:
                    return  # the disk is full: the next time will do
                log.uncleanable = str(error) or repr(error)
                self._report_uncleanable(partition, log.uncleanable)
                continue
            if compaction.cleaned_up_to <= work.first_dirty_offset:
                return  # overtaken by a truncation or a removal: the next time will do
            self._manager.cleaner_offsets[partition] = compaction.cleaned_up_to
            yield self._manager.checkpoint(CLEANER_OFFSETS)

    def _dirtiest(self) -> tuple[TopicPartition, Log, Cleanable] | None:
        best: tuple[float, TopicPartition, Log, Cleanable] | None = None
        for partition, log in self._logs():
            if not log.config.is_compacted or log.uncleanable is not None:
                continue
            work = cleanable(log, self._manager.cleaner_offsets.get(partition, 0), self.clock_ms())
            wanted = work.is_overdue or work.dirty_ratio >= log.config.min_cleanable_dirty_ratio
            if work.dirty_bytes and wanted and (best is None or work.dirty_ratio > best[0]):
                best = work.dirty_ratio, partition, log, work
        return None if best is None else best[1:]


class _Failures:
    """What fails does not stop what comes behind it; the first is raised when all is done."""

    def __init__(self) -> None:
        self._first: Exception | None = None

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._first = self._first or error

    def raise_first(self) -> None:
        if self._first is not None:
            raise self._first


def run_here(slices: Slices) -> None:
    """Run slices to their end, jobs and all, on this thread."""
    failed: OSError | None = None
    while True:
        try:
            job = next(slices) if failed is None else slices.throw(failed)
        except StopIteration:
            return
        failed = None
        try:
            if job is not None:
                job()
        except OSError as error:
            failed = error
