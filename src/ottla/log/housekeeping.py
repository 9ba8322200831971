"""The work a data folder needs now and then: flushing, retention, compaction, removal, checkpoints.

All of it is one generator of small slices. Between two of them the owner serves requests. Where a slice must block
(a sync, an unlink) it gives a job instead, to be run on another thread; if the job fails, its error is thrown back
in. Nothing here reads a clock but those it is given.

Compaction may take hours, and while a busy log is written to there is always more to compact. So all else that becomes
due meanwhile is done between its slices.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial

from ottla.log.checkpoint import CLEANER_OFFSETS, HIGH_WATERMARKS, RECOVERY_POINTS, TopicPartition
from ottla.log.compaction import MAP_BYTES, Cleanable, Compaction, Job, Slow, cleanable
from ottla.log.errors import PASSING, StorageFailed, is_lasting
from ottla.log.files import remove_all
from ottla.log.flush import Flush
from ottla.log.log import Log
from ottla.log.manager import CHECKPOINTS, LogManager
from ottla.log.retention import AT_ONCE, apply_retention

SECOND_MS = 1000
MINUTE_MS = 60 * SECOND_MS
DAY_MS = 24 * 60 * MINUTE_MS
LOGS_A_SLICE = 100
PRODUCERS_A_SLICE = 2000
NEVER_DIRTY = -1
REMOVAL_RETRY_MS = 10 * MINUTE_MS

Slices = Generator[Job | None, None, None]


class Housekeeping:
    def __init__(
        self,
        manager: LogManager,
        clock_ms: Callable[[], int],
        *,
        steady_ms: Callable[[], int] | None = None,
        aging_ms: Callable[[], int] | None = None,
        flush_interval_ms: int = SECOND_MS,
        retention_interval_ms: int = 5 * MINUTE_MS,
        compaction_interval_ms: int = 15 * SECOND_MS,
        checkpoint_interval_ms: int = MINUTE_MS,
        high_watermark_interval_ms: int = 5 * SECOND_MS,
        has_followers: Callable[[], bool] = lambda: False,
        producer_interval_ms: int = 10 * MINUTE_MS,
        producer_expiration_ms: int = DAY_MS,
        compacts: bool = True,
        map_bytes: int = MAP_BYTES,
        report_uncleanable: Callable[[TopicPartition, str], None] = lambda _partition, _reason: None,
    ) -> None:
        """`steady_ms`: a clock that nobody sets back, by which things are done now and then. `aging_ms`: the time by
        which records are old.

        `report_uncleanable`: told of a log that is not compacted any more, and why.

        `has_followers`: whether there are replicas elsewhere; without, the log itself tells its high watermark.
        """
        self._manager = manager
        self.clock_ms = clock_ms
        self.steady_ms = steady_ms or clock_ms
        self._aging_ms = aging_ms or clock_ms
        self._compacts = compacts
        self._has_followers = has_followers
        self._report_uncleanable = report_uncleanable
        self.compaction_interval_ms = compaction_interval_ms  # may be changed at any time, as the next two
        self.map_bytes = map_bytes
        self.producer_expiration_ms = producer_expiration_ms
        now_ms = self.steady_ms()
        self._tasks: list[tuple[Callable[[], int], Callable[[], Slices]]] = [
            (lambda: flush_interval_ms, self.flush),
            (lambda: retention_interval_ms, self.retain),
            (lambda: flush_interval_ms, self.remove),
            (lambda: checkpoint_interval_ms, self.checkpoint),
            (lambda: high_watermark_interval_ms, self.checkpoint_high_watermarks),
            (lambda: producer_interval_ms, self.expire_producers),
        ]
        self._due_ms = [now_ms + interval_ms() for interval_ms, _ in self._tasks]
        self._compaction_due_ms = now_ms + compaction_interval_ms
        self._unremoved: list[tuple[int, Job]] = []  # when to try again, and what
        self._compacting: Log | None = None
        self._is_kept_from_retention = False  # the log that is being compacted

    @property
    def next_due_ms(self) -> int:
        return min(*self._due_ms, self._compaction_due_ms)

    def run(self) -> Slices:
        """Do all that is due now. What fails is due again in its time, and raises when the rest is done."""
        return FoldersHousekeeping([self]).run()

    def run_short_tasks(self) -> Slices:
        """All that is due now but compaction, likewise."""
        failures = _Failures()
        for number, (interval_ms, task) in enumerate(self._tasks):
            if self._manager.failure is not None:
                self._due_ms[number] = self.steady_ms() + interval_ms()
            elif self.steady_ms() >= self._due_ms[number]:
                with failures.kept():  # on a full disk retention must go on, of all things
                    yield from task()
                self._due_ms[number] = self.steady_ms() + interval_ms()
        if isinstance(failures.first, OSError) and is_lasting(failures.first):
            self._manager.fail(failures.first)
        failures.raise_first()

    def run_compaction(self) -> Slices:
        """If it is due now."""
        if self.steady_ms() >= self._compaction_due_ms:
            try:
                yield from self.compact()
            finally:
                self._compaction_due_ms = self.steady_ms() + self.compaction_interval_ms

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
                flusher = log.flusher
                if flusher.resume_is_due or log.recovery_point < log.active.base_offset:
                    yield from self._flush(log, flusher.begin_resumable if flusher.resume_is_due else flusher.begin)
                    has_moved_far = True
                elif flusher.is_due(self.clock_ms()):
                    yield from self._flush(log, flusher.begin)
            if number % LOGS_A_SLICE == LOGS_A_SLICE - 1:
                yield None
        if has_moved_far:
            yield from self._manager.checkpoint_in_slices(RECOVERY_POINTS)
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
                log.flusher.end(flush, self.clock_ms(), error)
            except StorageFailed:
                return  # the log has noted it, and refuses writes from now on
        else:
            log.flusher.end(flush, self.clock_ms())

    def retain(self) -> Slices:
        failures = _Failures()
        for number, (_, log) in enumerate(self._logs()):
            if log is self._compacting:  # or what was done of it would be in vain
                self._is_kept_from_retention = True
                continue
            with failures.kept(), contextlib.suppress(StorageFailed):  # the log has noted it, and takes no more writes
                yield from self._retain(log)
            if number % LOGS_A_SLICE == LOGS_A_SLICE - 1:
                yield None
        failures.raise_first()

    def _retain(self, log: Log) -> Slices:
        while log.failure is None:
            removed = apply_retention(log, self._aging_ms())
            if removed:
                yield None
            if removed < AT_ONCE:
                return

    def remove(self) -> Slices:
        """Unlink what was deleted long enough ago. What cannot be is tried again later, and harms nobody until then."""
        failures = _Failures()
        for jobs in self._removals():
            for job in jobs:
                try:
                    yield Slow(job)
                except Exception as error:  # also a mistake of ours: the others of the list are handed out once
                    self._unremoved.append((self.steady_ms() + REMOVAL_RETRY_MS, job))
                    is_of_disk = isinstance(error, OSError)
                    failure = StorageFailed(f"{self._manager.folder}: {error}") if is_of_disk else error
                    failures.first = failures.first or failure
            yield None
        failures.raise_first()

    def _removals(self) -> Iterator[list[Job]]:
        now_ms, steady_ms = self.clock_ms(), self.steady_ms()
        yield [job for due_ms, job in self._unremoved if due_ms <= steady_ms]
        self._unremoved = [entry for entry in self._unremoved if entry[0] > steady_ms]
        jobs: list[Job] = []
        for number, (_, log) in enumerate(self._logs()):
            due = log.segments.due_removals(now_ms, now_ms + log.config.file_delete_delay_ms)
            jobs += [partial(remove_all, log.files, [path]) for path in due]
            if number % LOGS_A_SLICE == LOGS_A_SLICE - 1:
                yield jobs
                jobs = []
        yield jobs
        folders = self._manager.due_folders(now_ms)
        for first in range(0, len(folders), LOGS_A_SLICE):
            # One by one: a broker that stops waits for the one that is being removed.
            yield [partial(self._manager.remove_folders, [path]) for path in folders[first : first + LOGS_A_SLICE]]

    def checkpoint(self) -> Slices:
        for name in CHECKPOINTS:
            yield from self._manager.checkpoint_in_slices(name)

    def checkpoint_high_watermarks(self) -> Slices:
        if self._has_followers():
            yield from self._manager.checkpoint_in_slices(HIGH_WATERMARKS)

    def expire_producers(self) -> Slices:
        looked_at = 0
        for _, log in self._logs():
            looked_at += len(log.producers) + PRODUCERS_A_SLICE // LOGS_A_SLICE
            log.producers.expire(self.clock_ms(), self.steady_ms(), self.producer_expiration_ms)
            if looked_at >= PRODUCERS_A_SLICE:
                yield None
                looked_at = 0

    # Compaction

    def compact(self) -> Slices:
        """Compact the logs that need it, the dirtiest first, each as far as it was dirty when its turn came."""
        ends: dict[Log, int] = {}
        while self._compacts and (choice := (yield from self._dirtiest(ends))) is not None:
            partition, log, work = choice
            ends.setdefault(log, work.end_offset)
            self._compacting = log
            try:
                cleaned_up_to = yield from self._compact(partition, log, work)
            finally:
                self._compacting = None
            yield from self._retain_at_last(log)
            if cleaned_up_to <= work.first_dirty_offset:
                ends[log] = NEVER_DIRTY  # the next time will do
                continue
            self._manager.cleaner_offsets[partition] = cleaned_up_to
            yield from self._manager.checkpoint_in_slices(CLEANER_OFFSETS)

    def _compact(self, partition: TopicPartition, log: Log, work: Cleanable) -> Generator[Job | None, None, int]:
        """One round over one log; up to where it is clean now."""
        compaction = Compaction(log, work, self._aging_ms(), map_bytes=self.map_bytes)
        # What compaction leaves out must be known to be on the disk, not lost, when the log is next opened.
        yield from self._manager.checkpoint_in_slices(RECOVERY_POINTS)
        try:
            yield from compaction.run()
        except Exception as error:  # also a mistake of ours: the other logs must not wait for its end
            self._give_up(partition, log, error)
        return compaction.cleaned_up_to

    def _give_up(self, partition: TopicPartition, log: Log, error: Exception) -> None:
        is_here = self._manager.logs.get(partition) is log  # or it was deleted
        is_passing = isinstance(error, OSError) and error.errno in PASSING
        if is_here and not is_passing:
            log.uncleanable = str(error) or repr(error)
            self._report_uncleanable(partition, log.uncleanable)

    def _retain_at_last(self, log: Log) -> Slices:
        is_kept, self._is_kept_from_retention = self._is_kept_from_retention, False
        if is_kept:
            with contextlib.suppress(StorageFailed):  # as above
                yield from self._retain(log)

    def _dirtiest(self, ends: Mapping[Log, int]) -> Generator[None, None, tuple[TopicPartition, Log, Cleanable] | None]:
        """`ends`: up to where some logs need to be clean, for now."""
        best: tuple[float, TopicPartition, Log, Cleanable] | None = None
        for number, (partition, log) in enumerate(self._logs()):
            if number % LOGS_A_SLICE == LOGS_A_SLICE - 1:
                yield None
            if not log.config.is_compacted or log.uncleanable is not None:
                continue
            try:
                work = cleanable(log, self._manager.cleaner_offsets.get(partition, 0), self._aging_ms())
            except Exception as error:  # as where a file of it is gone
                self._give_up(partition, log, error)
                continue
            if work.first_dirty_offset >= ends.get(log, work.end_offset):
                continue
            wanted = work.is_overdue or work.dirty_ratio >= log.config.min_cleanable_dirty_ratio
            if work.dirty_bytes and wanted and (best is None or work.dirty_ratio > best[0]):
                best = work.dirty_ratio, partition, log, work
        return None if best is None else best[1:]


class FoldersHousekeeping:
    """That of several data folders. Compaction comes last, in one folder at a time."""

    def __init__(self, parts: Sequence[Housekeeping]) -> None:
        self.parts = parts
        self.steady_ms = parts[0].steady_ms

    @property
    def next_due_ms(self) -> int:
        return min(part.next_due_ms for part in self.parts)

    def run(self) -> Slices:
        """Do all that is due now. A folder that fails does not keep the others."""
        failures = _Failures()
        yield from self._run_short_tasks(failures)
        for part in self.parts:
            with failures.kept():
                yield from self._letting_others_in(part.run_compaction(), failures)
        failures.raise_first()

    def _run_short_tasks(self, failures: _Failures) -> Slices:
        for part in self.parts:
            with failures.kept():
                yield from part.run_short_tasks()

    def _letting_others_in(self, slices: Slices, failures: _Failures) -> Slices:
        failed: Exception | None = None
        with contextlib.closing(slices):
            while True:
                try:
                    job = next(slices) if failed is None else slices.throw(failed)
                except StopIteration:
                    return
                failed = None
                try:
                    yield job
                except Exception as error:
                    failed = error
                yield from self._run_short_tasks(failures)


class _Failures:
    """What fails does not stop what comes behind it; the first is raised when all is done."""

    def __init__(self) -> None:
        self.first: Exception | None = None

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.first = self.first or error

    def raise_first(self) -> None:
        if self.first is not None:
            raise self.first
