"""A data folder: the logs of many partitions, the checkpoints they share, and the lock that guards them."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator

from ottla.log.checkpoint import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    CorruptCheckpoint,
    TopicPartition,
    format_offsets,
    format_partition_metadata,
    parse_partition_metadata,
    read_offsets,
)
from ottla.log.errors import StorageFailed
from ottla.log.files import Files, Lock
from ottla.log.log import Log
from ottla.log.recovery import Recovered, open_log
from ottla.log.topic_config import TopicConfig

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
        self._lock: Lock | None = None
        self._doomed_folders: list[tuple[int, str]] = []

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
            self.files.sync_folder(self.folder)
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
            if recovered.scanned_bytes or recovered.faults:
                self.recovered[partition] = recovered

    def take_folder(self) -> None:
        """Make the folder if it is missing, and lock it; OSError when another process has it."""
        if self._lock is None:
            if not self.files.exists(self.folder):
                self.files.make_folder(self.folder)
                self.files.sync_folder(self.folder.rpartition("/")[0])  # or all of it could go with its name
            self._lock = self.files.lock(self._path(LOCK))

    def _release_folder(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _path(self, name: str) -> str:
        return f"{self.folder}/{name}"

    def _read_checkpoint(self, name: str) -> dict[TopicPartition, int]:
        """A checkpoint that cannot be read counts as empty: then more is scanned, and nothing is lost."""
        try:
            return read_offsets(self.files, self._path(name))
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
        log.before_truncation = lambda _offset: self.write_checkpoint(RECOVERY_POINTS)
        self.logs[partition] = log

    # Partitions come and go

    def create(
        self, topic: str, partition: int, config: TopicConfig, now_ms: int, topic_id: bytes | None = None
    ) -> Log:
        """Make the folder and the empty log of a partition that is not here yet."""
        name = f"{topic}-{partition}"
        if not _PARTITION_FOLDER.fullmatch(name):
            raise ValueError(f"{name!r} cannot be the name of a partition's folder")
        if (topic, partition) in self.logs:
            raise ValueError(f"partition {name} is here already")
        try:
            log = open_log(self.files, self._path(name), config, now_ms=now_ms, clean=True)
            if topic_id is not None:
                self.files.write_at(f"{log.folder}/{PARTITION_METADATA}", 0, format_partition_metadata(topic_id))
        except OSError as error:
            raise StorageFailed(f"{self._path(name)}: {error}") from error
        self._adopt((topic, partition), log)
        return log

    def topic_id(self, topic: str, partition: int) -> bytes | None:
        """The topic id that a partition's folder was made for; None if it does not say, or a crash tore it."""
        try:
            path = f"{self.logs[topic, partition].folder}/{PARTITION_METADATA}"
            return parse_partition_metadata(self.files.read_all(path))
        except (FileNotFoundError, CorruptCheckpoint):
            return None

    def delete(self, topic: str, partition: int, now_ms: int) -> None:
        """Take a partition out at once; its files go after `file.delete.delay.ms`, for readers' sake."""
        log = self.logs.pop((topic, partition))
        self.cleaner_offsets.pop((topic, partition), None)
        suffix = f".{uuid.uuid4().hex}{DELETED_FOLDER}"
        doomed = self._path(f"{topic}-{partition}"[: 255 - len(suffix)] + suffix)
        self.files.rename(log.folder, doomed)
        self.files.sync_folder(self.folder)
        self._doomed_folders.append((now_ms + log.config.file_delete_delay_ms, doomed))

    def due_folders(self, now_ms: int) -> list[str]:
        """Folders of deleted partitions to be removed now; each is handed out once."""
        due = [path for when, path in self._doomed_folders if when <= now_ms]
        self._doomed_folders = [entry for entry in self._doomed_folders if entry[0] > now_ms]
        return due

    def remove_folder(self, path: str) -> None:
        """Remove a deleted partition's folder. Touches no state: safe on any thread."""
        for name in self.files.sizes(path):
            self.files.remove(f"{path}/{name}")
        self.files.remove_folder(path)

    # Checkpoints

    def checkpoint(self, name: str) -> tuple[str, bytes]:
        """A checkpoint file as it should be now: path and contents, to be written on any thread."""
        return self._path(name), format_offsets(self._offsets_for(name))

    def _offsets_for(self, name: str) -> dict[TopicPartition, int]:
        logs = self.logs.items()
        if name == RECOVERY_POINTS:
            return {partition: log.recovery_point for partition, log in logs}
        if name == HIGH_WATERMARKS:
            return {partition: log.high_watermark for partition, log in logs}
        if name == LOG_STARTS:
            return {
                partition: log.log_start_offset
                for partition, log in logs
                if log.log_start_offset > log.segments[0].base_offset
            }
        return self.cleaner_offsets

    def write_checkpoint(self, name: str) -> None:
        self.files.replace(*self.checkpoint(name))

    def close(self, now_ms: int) -> None:
        """Close every log in good order, so that the next opening reads next to nothing."""
        failed = False
        for log in self.logs.values():
            try:
                log.close(now_ms)
            except (OSError, StorageFailed):
                failed = True
            failed |= log.failure is not None
        for name in CHECKPOINTS:
            self.write_checkpoint(name)
        if not failed:
            self.files.replace(self._path(CLEAN_SHUTDOWN), b'{"version":0,"brokerEpoch":-1}')
        self._release_folder()

    def abandon(self) -> None:
        """Let go of the folder as a crash would: nothing is written, the next opening scans."""
        self._release_folder()
