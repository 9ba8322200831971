"""A log on its way to another data folder of the same broker, while it is written to.

It is copied in steps into a new folder. When the copy has everything, and is on the disk, it takes the place of the
log. If the broker stops before that, the log is still where it was. The name of the copy's folder tells the next start
that the partition was to be moved there, and the move begins again. A crash in the last step leaves both, and the next
start keeps the one that ends later.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import TypeVar

from ottla.log import hole
from ottla.log.checkpoint import CLEANER_OFFSETS, LOG_STARTS, RECOVERY_POINTS, TopicPartition
from ottla.log.errors import StorageFailed, is_lasting
from ottla.log.folders import LONGEST_FOLDER_NAME, LogFolders
from ottla.log.log import Log
from ottla.log.manager import FUTURE_FOLDER, LogManager
from ottla.log.owner import LogOwner
from ottla.log.recovery import empty_log, open_log
from ottla.wire.uuids import new_uuid

COPIED_IN_A_STEP_BYTES = 1 << 20
T = TypeVar("T")
MOST_LAST_COPIES = 4  # in the last step, for which everybody waits

Slices = Generator[Callable[[], None] | None, None, Log | None]


class LogMove:
    def __init__(self, folders: LogFolders, partition: TopicPartition, target: LogManager) -> None:
        self._folders = folders
        self._partition = partition
        self.target = target
        self._log = folders.logs[partition]
        self._cut_at: int | None = None  # the log was truncated there since the copy was last looked at
        self.copy: Log | None = None
        self.is_interrupted = False  # the next start goes on with it

    @property
    def lag(self) -> int:
        """How many offsets the copy is behind."""
        return max(0, self._log.end_offset - (self.copy.end_offset if self.copy is not None else 0))

    def begin(self, now_ms: int) -> None:
        """Have the folder of the copy there. A log without records is moved before anybody could stop it."""
        copy = self._begun(now_ms)
        if self._log.has_folder:
            copy.make_folder()

    def run(self, clock_ms: Callable[[], int], write_gathered: Callable[[], None]) -> Slices:
        """The steps of the move; the log in its new place, or None if it was deleted meanwhile.

        Whoever keeps the log must take the new one before anything else happens. `write_gathered`: nothing of the log
        is held back any more.
        """
        owner = self._log.owner
        self._log.owner = _OwnerWhileMoved(owner, self)
        try:
            yield from self._catch_up(clock_ms)
            while self._is_there:
                write_gathered()
                if self._copy_the_rest(clock_ms()):
                    return self._swap(clock_ms())
                yield from self._catch_up(clock_ms)
            return None
        finally:
            self._log.owner = owner
            self.drop_copy(clock_ms())

    @property
    def _is_there(self) -> bool:
        return self._folders.logs.get(self._partition) is self._log and self._log.failure is None

    def truncating(self, offset: int) -> None:
        """The log is about to be cut there: so is the copy, then."""
        self._cut_at = offset if self._cut_at is None else min(offset, self._cut_at)

    # Copying

    def _catch_up(self, clock_ms: Callable[[], int]) -> Generator[Callable[[], None] | None, None, None]:
        """Until all is copied, and on the disk."""
        copy = self._begun(clock_ms())
        while self._is_there and (self.lag or self._cut_at is not None):
            self._copy_some(copy, clock_ms())
            yield None
        flush = copy.flusher.begin() if copy.has_folder else None
        if flush is None:
            return
        try:
            yield flush.run
        except OSError as error:
            copy.flusher.end(flush, clock_ms(), error)
        else:
            copy.flusher.end(flush, clock_ms())

    def _copy_the_rest(self, now_ms: int) -> bool:
        """Copy what came since, in the step that ends the move; whether that was all."""
        copy = self._begun(now_ms)
        for _ in range(MOST_LAST_COPIES):
            if self.lag or self._cut_at is not None:
                self._copy_some(copy, now_ms)
        return not self.lag and self._cut_at is None

    def _begun(self, now_ms: int) -> Log:
        if self.copy is None:
            topic, index = self._partition
            suffix = f"-{index}.{new_uuid().hex()}{FUTURE_FOLDER}"
            name = topic[: LONGEST_FOLDER_NAME - len(suffix)] + suffix
            topic_id = self._folders.topic_id(topic, index) if self._log.has_folder else self._log.topic_id
            folder = f"{self.target.folder}/{name}"
            self.copy = empty_log(self._folders.files, folder, self._log.config, now_ms, topic_id=topic_id)
            self.copy.owner = _OwnerOfCopy(self.target)
        return self.copy

    def _copy_some(self, copy: Log, now_ms: int) -> None:
        log = self._log
        cut_at, self._cut_at = self._cut_at, None
        if cut_at is not None and cut_at < copy.end_offset:
            copy.truncate_to(cut_at, now_ms)
        if copy.end_offset < log.log_start_offset:
            copy.truncate_fully(log.log_start_offset, now_ms)
        found = log.read(copy.end_offset, COPIED_IN_A_STEP_BYTES, log.end_offset)
        if found is not None:
            copy.append_replicated(memoryview(bytearray(found.read())), now_ms)
        elif copy.end_offset < log.end_offset:  # compaction has left nothing there
            raise StorageFailed(f"{log.folder}: nothing can be read from offset {copy.end_offset}")

    # The end

    def _swap(self, now_ms: int) -> Log:
        log, copy, target = self._log, self.copy, self.target
        assert copy is not None
        source, (topic, index) = self._folders.manager_of(log), self._partition
        config, files = log.config, self._folders.files
        place = f"{target.folder}/{topic}-{index}"
        if copy.has_folder:
            copy.producers = log.producers
            copy.close(now_ms)
            if log.hole is not None:
                hole.mark(files, copy.folder, log.hole)
            if files.exists(place):
                target.schedule_deletion(place, now_ms)  # of one that was deleted
            files.rename(copy.folder, place)
            files.sync_folder(target.folder)
            moved = open_log(files, place, config, now_ms=now_ms, clean=True, log_start_offset=log.log_start_offset)
            moved.producers = log.producers  # also those whose records are gone
        else:
            moved = empty_log(files, place, config, now_ms, topic_id=copy.topic_id)
        self.copy = None
        target.take_in(self._partition, moved)
        moved.advance_high_watermark(log.high_watermark)
        if self._partition in source.cleaner_offsets:
            target.cleaner_offsets[self._partition] = source.cleaner_offsets[self._partition]
        try:
            for name in (RECOVERY_POINTS, LOG_STARTS, CLEANER_OFFSETS):
                target.write_checkpoint(name)
        except OSError:
            target.delete(topic, index, now_ms)  # or what is left would be in the way of the next of its name
            raise
        self._folders.logs[self._partition] = moved
        with contextlib.suppress(OSError):  # it is of no use any more: the next start sees that this one ends later
            source.delete(topic, index, now_ms)
        return moved

    def drop_copy(self, now_ms: int) -> None:
        """Unless the move has come to its end, leave nothing of it but what the next start needs."""
        copy, self.copy = self.copy, None
        if copy is not None:
            copy.retire()
            copy.segments.close()
            if copy.has_folder and not self.is_interrupted:
                with contextlib.suppress(OSError):  # the next start removes it
                    self.target.schedule_deletion(copy.folder, now_ms)


class _OwnerWhileMoved(LogOwner):
    """Of a log that is being copied: its owner, and the move learns of truncations, too."""

    def __init__(self, owner: LogOwner, move: LogMove) -> None:
        self._owner = owner
        self._move = move

    def preparing_truncation(self, offset: int) -> Callable[[], None]:
        return self._owner.preparing_truncation(offset)

    def before_truncation(self, offset: int) -> None:
        self._move.truncating(offset)
        self._owner.before_truncation(offset)

    def before_folder(self) -> None:
        self._owner.before_folder()

    def failed(self, error: OSError) -> None:
        self._owner.failed(error)

    def with_room(self, make: Callable[[], T]) -> T:
        return self._owner.with_room(make)


class _OwnerOfCopy(LogOwner):
    def __init__(self, target: LogManager) -> None:
        self._target = target

    def failed(self, error: OSError) -> None:
        if is_lasting(error):
            self._target.fail(error)
