"""A data folder: the logs of many partitions, the checkpoints they share, and the lock that guards them."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from functools import partial
from typing import TypeVar

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
from ottla.log.errors import FULL, StorageFailed, is_lasting
from ottla.log.files import NO_FILE, Files, Lock, failure_of
from ottla.log.flush import Flush, run_together
from ottla.log.log import Log
from ottla.log.loss import Loss
from ottla.log.owner import LogOwner
from ottla.log.recovery import Recovered, empty_log, open_log
from ottla.log.topic_config import TopicConfig
from ottla.wire.uuids import new_uuid

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"
BOOT_ID = ".boot_id"
REGISTRATIONS = ".registrations"
MOST_REGISTRATIONS = 8  # of which a later start may find one in the store: the last, if the broker was taken in
DELETED_FOLDER = "-delete"
FUTURE_FOLDER = "-future"  # of a copy that was not finished
STRAY_FOLDER = "-stray"  # of a partition that is none of this broker's
_FUTURE_FOLDER = re.compile(rf"(.+)-(\d{{1,10}})\.[0-9a-f]{{32}}{FUTURE_FOLDER}")
_PARTITION_FOLDER = re.compile(r"([a-zA-Z0-9._-]{1,249})-(\d{1,10})")

CHECKPOINTED_A_SLICE = 1000
CHECKPOINTS = (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANER_OFFSETS)
# A high watermark of another partition does no harm: it ends where the log does.
HARMFUL_CHECKPOINTS = (RECOVERY_POINTS, LOG_STARTS, CLEANER_OFFSETS)

T = TypeVar("T")
ConfigFor = Callable[[str], TopicConfig]
Failed = Callable[[Collection[TopicPartition]], None]
"""Is told of logs that take no more writes until they are opened again."""


class LogManager:
    """Opens every log of a data folder, and keeps them together until `close`."""

    def __init__(
        self,
        files: Files,
        folder: str,
        failed: Failed = lambda _partitions: None,
        make_room: Callable[[], bool] = lambda: False,
    ) -> None:
        """`make_room`: frees room on a full disk, for opening and deleting; False if it cannot."""
        self.files = files
        self.folder = folder
        self.failure: str | None = None  # why nothing in the folder can be used any more
        self._failed = failed
        self.logs: dict[TopicPartition, Log] = {}
        self.cleaner_offsets: dict[TopicPartition, int] = {}
        self.recovered: dict[TopicPartition, Recovered] = {}
        self.unreadable: dict[str, str] = {}  # checkpoint files that were not understood, and why
        self.noted_high_watermarks: dict[TopicPartition, int] = {}  # at the last stop, or a little before
        self._checkpoints = {name: CheckpointFile(files, f"{folder}/{name}") for name in CHECKPOINTS}
        self._lock: Lock | None = None
        self._is_open = False  # all logs are, and what is in the checkpoints can be told from them
        self._deleted_folders: list[tuple[int, int, str]] = []  # since when, when they go, and their paths
        self.has_deletions_to_sync = False
        self._make_room = make_room
        self.stale: set[TopicPartition] = set()  # partitions that are gone, and that checkpoints may still tell of
        self.set_aside: list[str] = []  # folders that former starts have put aside
        self.unfinished: list[tuple[bytes, int]] = []  # on their way here at the last stop, by topic id and index

    def open(self, config_for: ConfigFor, now_ms: int) -> None:
        """Take the folder, if that is not done yet, and open all logs in it, healing what a crash left behind."""
        self.take_folder()
        clean = self.files.exists(self._path(CLEAN_SHUTDOWN))
        recovery_points = self._read_checkpoint(RECOVERY_POINTS)
        log_starts = self._read_checkpoint(LOG_STARTS)
        high_watermarks = self.noted_high_watermarks = self._read_checkpoint(HIGH_WATERMARKS)
        self.cleaner_offsets = self._read_checkpoint(CLEANER_OFFSETS)
        if clean:
            # Before anything changes: if this opening is cut short, the next one must not trust the files.
            self.files.remove(self._path(CLEAN_SHUTDOWN))
        self.files.sync_folder(self.folder)  # the checkpoints that were read, too, may have been about to be renamed
        for name, partition in self._partition_folders(now_ms):
            recovered = Recovered()
            log = self.with_room(
                partial(
                    open_log,
                    self.files,
                    self._path(name),
                    config_for(partition[0]),
                    now_ms=now_ms,
                    clean=clean,
                    recovery_point=recovery_points.get(partition, 0),
                    log_start_offset=log_starts.get(partition, 0),
                    recovered=recovered,
                )
            )
            self._look_after(partition, log)
            self.logs[partition] = log
            log.advance_high_watermark(high_watermarks.get(partition, log.log_start_offset))
            if recovered.faults or (recovered.scanned_bytes and not clean):
                self.recovered[partition] = recovered
        self.stale = {*recovery_points, *log_starts, *self.cleaner_offsets}.difference(self.logs)
        for partition in self.stale:
            self.cleaner_offsets.pop(partition, None)
        for partition, log in self.logs.items():
            self._lower_cleaner_offset(partition, log.end_offset)
        self._is_open = True

    def with_room(self, make: Callable[[], T]) -> T:
        """Make something also on a full disk, as long as somebody makes room: one try does not mind the one before."""
        while True:
            try:
                return make()
            except OSError as error:
                if error.errno not in FULL or not self._make_room():
                    raise

    def loss(self, boot_id: str | None, broker_epoch: int | None = None) -> Loss:
        """What may be missing. `boot_id`: of this run of the machine; None: what the kernel says.

        `broker_epoch`: of the registration in which the cluster last knew of this broker. A folder that knows others
        and not that one is an old one, or a copy: the broker has run with another since.
        """
        path, registrations = self._path(BOOT_ID), self._registrations()
        if broker_epoch is not None and registrations and broker_epoch not in registrations:
            return Loss.ALL
        if self.files.exists(self._path(CLEAN_SHUTDOWN)):
            return Loss.NOTHING
        if not self.files.exists(path):
            return Loss.ALL
        return Loss.NOTHING if self.files.read_all(path) == (boot_id or _kernel_boot_id()).encode() else Loss.TAIL

    def note_boot(self, boot_id: str | None) -> None:
        """From now on the data is as this run of the machine has it: whoever had to know what it may lack knows it."""
        current, path = (boot_id or _kernel_boot_id()).encode(), self._path(BOOT_ID)
        if not self.files.exists(path) or self.files.read_all(path) != current:
            self.with_room(lambda: self.files.replace(path, current))

    def note_registration(self, broker_epoch: int) -> None:
        """The data is that of a broker in this registration: to be called before the cluster can know of it."""
        known = [each for each in self._registrations() if each != broker_epoch]
        epochs = [*known, broker_epoch][-MOST_REGISTRATIONS:]
        data = " ".join(map(str, epochs)).encode()
        self.with_room(lambda: self.files.replace(self._path(REGISTRATIONS), data))

    def _registrations(self) -> list[int]:
        path = self._path(REGISTRATIONS)
        texts = self.files.read_all(path).split() if self.files.exists(path) else []
        return [int(text) for text in texts if text.isdigit()]

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
        folders = set(self.files.folders(self.folder))
        for name, size in self.files.sizes(self.folder).items():
            # Something else in its place may stand for a disk that is not there now. Files are left alone.
            if size == NO_FILE and name not in folders and _PARTITION_FOLDER.fullmatch(name):
                raise self._no_folder(name)
        for name in sorted(folders):
            if future := _FUTURE_FOLDER.fullmatch(name):
                topic_id = self._noted_topic_id(self._path(name))
                if topic_id is not None:
                    self.unfinished.append((topic_id, int(future[2])))
            if name.endswith((DELETED_FOLDER, FUTURE_FOLDER)):
                self._deleted_folders.append((now_ms, now_ms, self._path(name)))
            elif name.endswith(STRAY_FOLDER):
                self.set_aside.append(self._path(name))
            elif match := _PARTITION_FOLDER.fullmatch(name):
                yield name, (match[1], int(match[2]))

    def _no_folder(self, name: str) -> OSError:
        return NotADirectoryError(errno.ENOTDIR, "this is no folder", self._path(name))

    def truncating(self, partition: TopicPartition, offset: int) -> None:
        """Have the checkpoints know of a truncation before it comes: it is not on the disk, nor compacted, behind."""
        if not self._checkpoints[RECOVERY_POINTS].tells_at_most(partition, offset):
            self.write_checkpoint(RECOVERY_POINTS)
        self._lower_cleaner_offset(partition, offset)

    def preparing_truncation(self, partition: TopicPartition, offset: int) -> Callable[[], None]:
        """The job of the same, for any thread; what is told meanwhile is not forgotten."""
        jobs = []
        if not self._checkpoints[RECOVERY_POINTS].tells_at_most(partition, offset):
            jobs.append(self.checkpoint(RECOVERY_POINTS))
        if self.cleaner_offsets.get(partition, 0) > offset:
            self.cleaner_offsets[partition] = offset
            jobs.append(self.checkpoint(CLEANER_OFFSETS))
        return partial(_run_all, jobs)

    def _lower_cleaner_offset(self, partition: TopicPartition, offset: int) -> None:
        """What will be written from `offset` on was never compacted, whatever was there before."""
        if self.cleaner_offsets.get(partition, 0) > offset:
            self.cleaner_offsets[partition] = offset
            self.write_checkpoint(CLEANER_OFFSETS)

    # Partitions come and go

    def create(
        self, topic: str, partition: int, config: TopicConfig, now_ms: int, topic_id: bytes | None = None
    ) -> Log:
        """A partition that is not here yet."""
        log = self.make(topic, partition, config, now_ms, topic_id)
        self.adopt({(topic, partition): log})
        return log

    def adopt(self, logs: Mapping[TopicPartition, Log]) -> None:
        """Partitions that were made are here from now on, all at once."""
        self.logs.update(logs)

    def make(self, topic: str, partition: int, config: TopicConfig, now_ms: int, topic_id: bytes | None = None) -> Log:
        """An empty log for a partition, which is not here before it is adopted. Its first record makes its folder.

        What is left there of another may be put out of the way: `sync_deletions` makes sure of that.
        """
        name = f"{topic}-{partition}"
        if not _PARTITION_FOLDER.fullmatch(name):
            raise ValueError(f"{name!r} cannot be the name of a partition's folder")
        if (topic, partition) in self.logs:
            raise ValueError(f"partition {name} is here already")
        path = self._path(name)
        if self.files.exists(path):
            if not self.files.is_folder(path):
                raise StorageFailed(str(self._no_folder(name)))
            self._put_out_of_the_way(path, now_ms)
        log = empty_log(self.files, path, config, now_ms, topic_id=topic_id)
        self._look_after((topic, partition), log)
        return log

    def _look_after(self, partition: TopicPartition, log: Log) -> None:
        log.owner = _Owner(self, partition)

    def log_failed(self, partition: TopicPartition, error: OSError) -> None:
        """An error of the disk that lasts is one of the whole folder."""
        log = self.logs.get(partition)
        if is_lasting(error):
            self.fail(error)
        elif log is not None and log.failure is not None:
            self._failed([partition])

    def fail(self, error: OSError) -> None:
        """Use nothing in the folder any more."""
        if self.failure is None:
            self.failure = f"{self.folder}: {error}"
            for log in self.logs.values():
                log.failure = log.failure or self.failure
            self._failed(self.logs.keys())

    def make_failed(self, topic: str, partition: int, config: TopicConfig, now_ms: int) -> Log:
        """What stands for a log that may lie in this folder, which cannot be used."""
        log = self.logs[topic, partition] = empty_log(self.files, self._path(f"{topic}-{partition}"), config, now_ms)
        log.failure = self.failure
        return log

    def take_in(self, partition: TopicPartition, log: Log) -> None:
        """A log that came from another folder."""
        self._look_after(partition, log)
        self.stale.discard(partition)
        self.logs[partition] = log

    def _put_out_of_the_way(self, folder: str, now_ms: int) -> None:
        """The partition of a folder was deleted, but the folder could not be taken off the disk then."""
        try:
            self.schedule_deletion(folder, now_ms)
        except OSError as error:
            raise StorageFailed(f"{folder}: {error}") from error

    def topic_id(self, topic: str, partition: int) -> bytes | None:
        """The topic id that a partition's folder was made for; None if it does not say, or a crash tore it."""
        return self._noted_topic_id(self.logs[topic, partition].folder)

    def _noted_topic_id(self, folder: str) -> bytes | None:
        try:
            return parse_partition_metadata(self.files.read_all(f"{folder}/{PARTITION_METADATA}"))
        except (FileNotFoundError, CorruptCheckpoint):
            return None

    def take_out(self, topic: str, partition: int) -> Log:
        """Have nothing more to do with a partition."""
        log = self.logs.pop((topic, partition))
        self.cleaner_offsets.pop((topic, partition), None)
        if log.has_folder:
            self.stale.add((topic, partition))
        return log

    def delete(self, topic: str, partition: int, now_ms: int) -> None:
        """Take a partition out at once; its files go after `file.delete.delay.ms`, for readers' sake.

        A loss of power may bring the files back, until `sync_deletions` has been called.
        """
        log = self.take_out(topic, partition)
        log.retire()
        if log.has_folder:
            self.schedule_deletion(log.folder, now_ms, log.config.file_delete_delay_ms)

    def schedule_deletion(self, folder: str, now_ms: int, delay_ms: int = 0) -> None:
        """Take the name of a folder away, and the folder itself later."""
        suffix = f".{new_uuid().hex()}{DELETED_FOLDER}"
        renamed = folder[: len(self.folder) + 256 - len(suffix)] + suffix
        self.with_room(lambda: self.files.rename(folder, renamed))  # its name is longer
        self._deleted_folders.append((now_ms, now_ms + delay_ms, renamed))
        self.has_deletions_to_sync = True

    def sync_deletions(self) -> None:
        """Touches no state: safe on any thread."""
        self.files.sync_folder(self.folder)

    def due_folders(self, now_ms: int) -> list[str]:
        """Folders of deleted partitions to be removed now; each is handed out once."""
        due = [path for since, when, path in self._deleted_folders if not since <= now_ms < when]  # or it was set back
        self._deleted_folders = [entry for entry in self._deleted_folders if entry[0] <= now_ms < entry[1]]
        return due

    def remove_folders(self, paths: Iterable[str]) -> None:
        """Remove the folders of deleted partitions, all that can be. Touches no state: safe on any thread."""
        for failure in [failure_of(partial(self.files.remove_tree, path)) for path in paths]:
            if failure is not None:
                raise failure

    # Checkpoints

    def checkpoint(self, name: str) -> Callable[[], None]:
        """The job of writing a checkpoint as it should be now, for any thread."""
        return self._checkpoints[name].writing(self._offsets_for(name, self.logs))

    def checkpoint_in_slices(self, name: str) -> Generator[Callable[[], None] | None, None, None]:
        """The same for very many logs: some at a time, and then the job."""
        number = self._checkpoints[name].next_number()
        partitions = list(self.logs)
        offsets: dict[TopicPartition, int] = {}
        for first in range(0, len(partitions), CHECKPOINTED_A_SLICE):
            part = partitions[first : first + CHECKPOINTED_A_SLICE]
            offsets.update(self._offsets_for(name, part))
            if len(part) == CHECKPOINTED_A_SLICE:
                yield None
        yield self._checkpoints[name].writing(offsets, number)

    def _offsets_for(self, name: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """What is not in a file counts as 0, which is what most of many logs have."""
        logs = [(partition, self.logs[partition]) for partition in partitions if partition in self.logs]
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
        cleaned = self.cleaner_offsets
        return {partition: cleaned[partition] for partition in partitions if partition in cleaned}

    def write_checkpoint(self, name: str) -> None:
        self.checkpoint(name)()

    def forgetting(self) -> Callable[[], None]:
        """The job of writing the checkpoints without partitions that are gone, for any thread."""
        return partial(_run_all, [self.checkpoint(name) for name in HARMFUL_CHECKPOINTS])

    def begin_anew(self, partition: TopicPartition) -> None:
        """Before the first record of a partition: what is told of another of its name would count for this one."""
        if partition in self.stale:
            self.forgetting()()
            self.stale.clear()

    def close(self, now_ms: int) -> None:
        """Close every log in good order, so that the next opening reads next to nothing.

        Unless all of them were opened: then nothing is written, for it would be wrong about the others.
        """
        try:
            if self._is_open and self.failure is None:
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
                flush = log.flusher.begin_close()
            except (OSError, StorageFailed):
                is_clean = False
            else:
                flushes += [(log, flush)] if flush is not None else []
        errors = run_together([flush for _, flush in flushes])
        for number, (log, flush) in enumerate(flushes):
            try:
                log.flusher.end(flush, now_ms, errors.get(number))
            except StorageFailed:
                is_clean = False
        for log in self.logs.values():
            log.segments.close()
        return is_clean and all(log.failure is None for log in self.logs.values())

    def abandon(self) -> None:
        """Let go of the folder as a crash would: nothing is written, the next opening scans."""
        self._is_open = False
        if self._lock is not None:
            self._lock.release()
            self._lock = None


class _Owner(LogOwner):
    def __init__(self, manager: LogManager, partition: TopicPartition) -> None:
        self._manager = manager
        self._partition = partition

    def preparing_truncation(self, offset: int) -> Callable[[], None]:
        return self._manager.preparing_truncation(self._partition, offset)

    def before_truncation(self, offset: int) -> None:
        self._manager.truncating(self._partition, offset)

    def before_folder(self) -> None:
        self._manager.begin_anew(self._partition)

    def failed(self, error: OSError) -> None:
        self._manager.log_failed(self._partition, error)

    def with_room(self, make: Callable[[], T]) -> T:
        return self._manager.with_room(make)


def _run_all(jobs: Iterable[Callable[[], None]]) -> None:
    for job in jobs:
        job()


def _kernel_boot_id() -> str:
    """Another one after each start of the machine; none where the kernel does not say."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return "unknown"
