"""A data folder: the logs of many partitions, the checkpoints they share, and the lock that guards them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from ottla.log.checkpoint import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    CorruptCheckpoint,
    TopicPartition,
    parse_partition_metadata,
)
from ottla.log.checkpoint_file import CheckpointFile
from ottla.log.errors import StorageFailed
from ottla.log.files import Files, Lock, failure_of
from ottla.log.flush import Flush, run_together
from ottla.log.log import Log
from ottla.log.recovery import Recovered, empty_log, open_log
from ottla.log.topic_config import TopicConfig
from ottla.wire.uuids import new_uuid

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"
DELETED_FOLDER = "-delete"
_PARTITION_FOLDER = re.compile(r"([a-zA-Z0-9._-]{1,249})-(\d{1,10})")

CHECKPOINTS = (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANER_OFFSETS)

ConfigFor = Callable[[str], TopicConfig]


class LogManager:
    """Opens every log of a data folder, and keeps them together until `close`."""

    def __init__(self, files: Files, folder: str) -> None:
        self.files = files
        self.folder = folder
        self.logs: dict[TopicPartition, Log] = {}
        self.cleaner_offsets: dict[TopicPartition, int] = {}
        self.recovered: dict[TopicPartition, Recovered] = {}
        self.unreadable: dict[str, str] = {}  # checkpoint files that were not understood, and why
        self._checkpoints = {name: CheckpointFile(files, f"{folder}/{name}") for name in CHECKPOINTS}
        self._lock: Lock | None = None
        self._is_open = False  # all logs are, and what is in the checkpoints can be told from them
        self._doomed_folders: list[tuple[int, str]] = []
        self._has_deletions_to_sync = False

    def open(self, config_for: ConfigFor, now_ms: int) -> None:
        """Take the folder, if that is not done yet, and open all logs in it, healing what a crash left behind."""
        self.take_folder()
        clean = self.files.exists(self._path(CLEAN_SHUTDOWN))
        recovery_points = self._read_checkpoint(RECOVERY_POINTS)
        log_starts = self._read_checkpoint(LOG_STARTS)
        high_watermarks = self._read_checkpoint(HIGH_WATERMARKS)
        self.cleaner_offsets = self._read_checkpoint(CLEANER_OFFSETS)
        if clean:
            # Before anything changes: if this opening is cut short, the next one must not trust the files.
            self.files.remove(self._path(CLEAN_SHUTDOWN))
        self.files.sync_folder(self.folder)  # the checkpoints that were read, too, may have been about to be renamed
        for name, partition in self._partition_folders(now_ms):
            recovered = Recovered()
            log = open_log(
                self.files,
                self._path(name),
                config_for(partition[0]),
                now_ms=now_ms,
                clean=clean,
                recovery_point=recovery_points.get(partition, 0),
                log_start_offset=log_starts.get(partition, 0),
                recovered=recovered,
            )
            self._adopt(partition, log)
            log.advance_high_watermark(high_watermarks.get(partition, log.log_start_offset))
            if recovered.faults or (recovered.scanned_bytes and not clean):
                self.recovered[partition] = recovered
        for partition, log in self.logs.items():
            self._lower_cleaner_offset(partition, log.end_offset)
        self._is_open = True

    def take_folder(self) -> None:
        """Make the folder if it is missing, and lock it; OSError when another process has it."""
        if self._lock is None:
            if not self.files.exists(self.folder):
                self.files.make_folder(self.folder)
                self.files.sync_folder(self.folder.rpartition("/")[0])  # or all of it could go with its name
            self._lock = self.files.lock(self._path(LOCK))
            self.files.spread_folders(self.folder)

    def _path(self, name: str) -> str:
        return f"{self.folder}/{name}"

    def _read_checkpoint(self, name: str) -> dict[TopicPartition, int]:
        """A checkpoint that cannot be read counts as empty: then more is scanned, and nothing is lost."""
        try:
            return self._checkpoints[name].read()
        except CorruptCheckpoint as error:
            self.unreadable[name] = str(error)
            return {}

    def _partition_folders(self, now_ms: int) -> Iterator[tuple[str, TopicPartition]]:
        for name in sorted(self.files.sizes(self.folder)):
            if name.endswith(DELETED_FOLDER):
                self._doomed_folders.append((now_ms, self._path(name)))
            elif match := _PARTITION_FOLDER.fullmatch(name):
                yield name, (match[1], int(match[2]))

    def _adopt(self, partition: TopicPartition, log: Log) -> None:
        log.before_truncation = partial(self._truncating, partition)
        self.logs[partition] = log

    def _truncating(self, partition: TopicPartition, offset: int) -> None:
        """Have the checkpoints know of a truncation before it comes: it is not on the disk, nor compacted, behind."""
        self.write_checkpoint(RECOVERY_POINTS)
        self._lower_cleaner_offset(partition, offset)

    def _lower_cleaner_offset(self, partition: TopicPartition, offset: int) -> None:
        """What will be written from `offset` on was never compacted, whatever was there before."""
        if self.cleaner_offsets.get(partition, 0) > offset:
            self.cleaner_offsets[partition] = offset
            self.write_checkpoint(CLEANER_OFFSETS)

    # Partitions come and go

    def create(
        self, topic: str, partition: int, config: TopicConfig, now_ms: int, topic_id: bytes | None = None
    ) -> Log:
        """An empty log for a partition that is not here yet. Its folder is made with its first record."""
        name = f"{topic}-{partition}"
        if not _PARTITION_FOLDER.fullmatch(name):
            raise ValueError(f"{name!r} cannot be the name of a partition's folder")
        if (topic, partition) in self.logs:
            raise ValueError(f"partition {name} is here already")
        path = self._path(name)
        if self.files.exists(path):
            self._put_out_of_the_way(path, now_ms)
        log = empty_log(self.files, path, config, now_ms, topic_id=topic_id)
        self._adopt((topic, partition), log)
        return log

    def _put_out_of_the_way(self, folder: str, now_ms: int) -> None:
        """The partition of a folder was deleted, but the folder could not be taken off the disk then."""
        try:
            self._doom(folder, now_ms)
            self.sync_deletions()
        except OSError as error:
            raise StorageFailed(f"{folder}: {error}") from error

    def topic_id(self, topic: str, partition: int) -> bytes | None:
        """The topic id that a partition's folder was made for; None if it does not say, or a crash tore it."""
        try:
            path = f"{self.logs[topic, partition].folder}/{PARTITION_METADATA}"
            return parse_partition_metadata(self.files.read_all(path))
        except (FileNotFoundError, CorruptCheckpoint):
            return None

    def delete(self, topic: str, partition: int, now_ms: int) -> None:
        """Take a partition out at once; its files go after `file.delete.delay.ms`, for readers' sake.

        A loss of power may bring the files back, until `sync_deletions` has been called.
        """
        log = self.logs.pop((topic, partition))
        self.cleaner_offsets.pop((topic, partition), None)
        log.retire()
        if log.has_folder:
            self._doom(log.folder, now_ms + log.config.file_delete_delay_ms)

    def _doom(self, folder: str, removal_ms: int) -> None:
        suffix = f".{new_uuid().hex()}{DELETED_FOLDER}"
        doomed = folder[: len(self.folder) + 256 - len(suffix)] + suffix
        self.files.rename(folder, doomed)
        self._doomed_folders.append((removal_ms, doomed))
        self._has_deletions_to_sync = True

    def sync_deletions(self) -> None:
        if self._has_deletions_to_sync:
            self.files.sync_folder(self.folder)
            self._has_deletions_to_sync = False

    def due_folders(self, now_ms: int) -> list[str]:
        """Folders of deleted partitions to be removed now; each is handed out once."""
        due = [path for when, path in self._doomed_folders if when <= now_ms]
        self._doomed_folders = [entry for entry in self._doomed_folders if entry[0] > now_ms]
        return due

    def remove_folders(self, paths: Iterable[str]) -> None:
        """Remove the folders of deleted partitions, all that can be. Touches no state: safe on any thread."""
        for failure in [failure_of(partial(self._remove_folder, path)) for path in paths]:
            if failure is not None:
                raise failure

    def _remove_folder(self, path: str) -> None:
        for name in self.files.sizes(path):
            self.files.remove(f"{path}/{name}")
        self.files.remove_folder(path)

    # Checkpoints

    def checkpoint(self, name: str) -> Callable[[], None]:
        """The job of writing a checkpoint as it should be now, for any thread."""
        return self._checkpoints[name].writing(self._offsets_for(name))

    def _offsets_for(self, name: str) -> dict[TopicPartition, int]:
        """What is not in a file counts as 0, which is what most of many logs have."""
        logs = self.logs.items()
        if name == RECOVERY_POINTS:
            return {partition: log.recovery_point for partition, log in logs if log.recovery_point}
        if name == HIGH_WATERMARKS:
            return {partition: log.high_watermark for partition, log in logs if log.high_watermark}
        if name == LOG_STARTS:
            return {
                partition: log.log_start_offset
                for partition, log in logs
                if log.log_start_offset > log.segments[0].base_offset
            }
        return self.cleaner_offsets

    def write_checkpoint(self, name: str) -> None:
        self.checkpoint(name)()

    def close(self, now_ms: int) -> None:
        """Close every log in good order, so that the next opening reads next to nothing.

        Unless all of them were opened: then nothing is written, for it would be wrong about the others.
        """
        try:
            if self._is_open:
                self._close_in_good_order(now_ms)
        finally:
            self.abandon()

    def _close_in_good_order(self, now_ms: int) -> None:
        is_clean = self._close_logs(now_ms)
        for failure in self.files.run_together([self.checkpoint(name) for name in CHECKPOINTS]).values():
            raise failure
        if is_clean:
            self.files.replace(self._path(CLEAN_SHUTDOWN), b'{"version":0,"brokerEpoch":-1}')

    def _close_logs(self, now_ms: int) -> bool:
        """Whether all of them are on the disk and in order."""
        is_clean = True
        flushes: list[tuple[Log, Flush]] = []
        for log in self.logs.values():
            try:
                flush = log.begin_close()
            except (OSError, StorageFailed):
                is_clean = False
            else:
                flushes += [(log, flush)] if flush is not None else []
        errors = run_together([flush for _, flush in flushes])
        for number, (log, flush) in enumerate(flushes):
            with contextlib.suppress(StorageFailed):  # the log has noted it
                log.end_flush(flush, now_ms, errors.get(number))
        for log in self.logs.values():
            log.segments.close()
        return is_clean and all(log.failure is None for log in self.logs.values())

    def abandon(self) -> None:
        """Let go of the folder as a crash would: nothing is written, the next opening scans."""
        self._is_open = False
        if self._lock is not None:
            self._lock.release()
            self._lock = None
