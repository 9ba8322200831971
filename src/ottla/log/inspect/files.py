"""The files of a log as somebody sees them who only looks: what is there, and what each is by its name."""

from __future__ import annotations

import enum
import errno
import os
import re
from pathlib import Path
from typing import NamedTuple, NoReturn

from ottla.log.checkpoint import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    LOG_STARTS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    TopicPartition,
)
from ottla.log.files import DiskFile, DiskFiles

META_PROPERTIES = "meta.properties"

_BY_OFFSET = re.compile(
    r"(\d{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot|\.batches)(\.deleted|\.cleaned|\.swap)?"
)
# A folder that waits for its deletion, or for its move from another disk, has a mark behind its number.
_PARTITION = re.compile(r"(.+)-(\d+)(?:\.[0-9a-f]{32}-(?:delete|future|stray))?")


class Kind(enum.Enum):
    """What a file is. The values are the words that people and programs are shown."""

    SEGMENT = "segment"
    OFFSET_INDEX = "offset_index"
    TIME_INDEX = "time_index"
    ABORTED_INDEX = "aborted_index"
    SNAPSHOT = "producer_snapshot"
    EARLIER_BATCHES = "producer_batches"
    LEADER_EPOCHS = "leader_epochs"
    PARTITION_METADATA = "partition_metadata"
    OFFSETS = "offset_checkpoint"
    META_PROPERTIES = "meta_properties"


_BY_EXTENSION = {
    ".log": Kind.SEGMENT,
    ".index": Kind.OFFSET_INDEX,
    ".timeindex": Kind.TIME_INDEX,
    ".txnindex": Kind.ABORTED_INDEX,
    ".snapshot": Kind.SNAPSHOT,
    ".batches": Kind.EARLIER_BATCHES,
}
_BY_NAME = {
    LEADER_EPOCHS: Kind.LEADER_EPOCHS,
    PARTITION_METADATA: Kind.PARTITION_METADATA,
    RECOVERY_POINTS: Kind.OFFSETS,
    LOG_STARTS: Kind.OFFSETS,
    HIGH_WATERMARKS: Kind.OFFSETS,
    CLEANER_OFFSETS: Kind.OFFSETS,
    META_PROPERTIES: Kind.META_PROPERTIES,
}
_IN_A_PARTITION = {LEADER_EPOCHS, PARTITION_METADATA}
_ORDER = list(Kind)


class LogFile(NamedTuple):
    path: Path
    kind: Kind
    offset: int = -1  # of the name, where it has one
    suffix: str = ""  # of a file that compaction or deletion is at work on

    def order(self) -> tuple[int, int]:
        """Segment by segment, each with its indexes; the files that are one for all come last."""
        return (self.offset if self.offset >= 0 else 1 << 63, _ORDER.index(self.kind))


class ReadOnlyFiles(DiskFiles):
    """The disk for those who only look: whatever would change it is refused."""

    def open(self, path: str) -> DiskFile:
        return DiskFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise OSError(errno.EROFS, "opened to be read only")

    make_folder = write_at = replace = rename = remove = remove_tree = sync_path = sync_folder = lock = _refuse


def known_file(path: Path) -> LogFile | None:
    """What a file is by its name; None for one that is not a log's."""
    named = _BY_OFFSET.fullmatch(path.name)
    if named:
        return LogFile(path, _BY_EXTENSION[named[2]], int(named[1]), named[3] or "")
    kind = _BY_NAME.get(path.name)
    return LogFile(path, kind) if kind else None


def known_files(folder: Path) -> list[LogFile]:
    """The log's files right in a folder, in the order they are best read; left out is what is about to go."""
    found = [known_file(path) for path in folder.iterdir() if path.is_file()]
    return sorted([file for file in found if file and not file.suffix], key=LogFile.order)


def is_partition(folder: Path) -> bool:
    return any(file.offset >= 0 or file.path.name in _IN_A_PARTITION for file in known_files(folder))


def partitions_in(folder: Path) -> list[Path]:
    """The partition folders in a data folder, by topic and number."""
    found = [path for path in folder.iterdir() if path.is_dir() and is_partition(path)]
    return sorted(found, key=lambda path: topic_partition(path) or (path.name, -1))


def topic_partition(folder: Path) -> TopicPartition | None:
    """The partition that a folder is named for."""
    named = _PARTITION.fullmatch(folder.name)
    return (named[1], int(named[2])) if named else None
