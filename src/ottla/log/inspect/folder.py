"""Checking whatever a path names: one file, a partition folder, or a data folder with all its partitions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ottla.log.checkpoint import (
    CLEANER_OFFSETS,
    LOG_STARTS,
    RECOVERY_POINTS,
    CorruptCheckpoint,
    TopicPartition,
)
from ottla.log.inspect.files import (
    Kind,
    LogFile,
    is_partition,
    known_file,
    known_files,
    partitions_in,
    topic_partition,
)
from ottla.log.inspect.partition import PartitionCheck
from ottla.log.inspect.report import FileReport, Progress, no_progress
from ottla.log.inspect.texts import check_epochs, check_metadata, check_offsets, check_properties, offsets_in


class NotALog(Exception):
    """The path is nothing that a log has."""


def files_at(path: Path) -> list[LogFile]:
    """The files of a log that a path stands for, in the order they are best read."""
    if not path.is_dir():
        return [_known(path)]
    if is_partition(path):
        return known_files(path)
    found = known_files(path)
    for partition in partitions_in(path):
        found += known_files(partition)
    if not found:
        raise NotALog(f"{path}: no file of a log is in this folder; give a partition's folder or a data folder")
    return found


def _known(path: Path) -> LogFile:
    path.stat()  # that it is missing is to be said first
    file = known_file(path)
    if file is None:
        raise NotALog(f"{path}: the name is not that of a log's file, such as 00000000000000000000.log")
    return file


def check_path(path: Path, *, is_compacted: bool = False, progress: Progress = no_progress) -> Iterator[FileReport]:
    """A report on each file that a path stands for. Nothing is opened but to be read."""
    if not path.is_dir():
        yield from _check_file(_known(path), is_compacted=is_compacted, progress=progress)
    elif is_partition(path):
        yield from _partition(path, is_compacted=is_compacted, progress=progress).run()
    else:
        files_at(path)  # or it is no data folder
        yield from _check_data_folder(path, is_compacted=is_compacted, progress=progress)


def _partition(
    folder: Path, *, is_compacted: bool, progress: Progress, only_offset: int | None = None
) -> PartitionCheck:
    return PartitionCheck(
        folder,
        is_compacted=is_compacted or _was_compacted(folder),
        only_offset=only_offset,
        progress=progress,
    )


def _was_compacted(folder: Path) -> bool:
    """Whether the checkpoint beside the partition's folder says so."""
    try:
        cleaned = offsets_in((folder.absolute().parent / CLEANER_OFFSETS).read_bytes())
    except (OSError, CorruptCheckpoint):
        return False
    return topic_partition(folder.absolute()) in cleaned


def _check_file(file: LogFile, *, is_compacted: bool, progress: Progress) -> Iterator[FileReport]:
    """One file. What belongs to a segment is held against that segment."""
    report = FileReport.on(file)
    if file.kind in _CHECKS:
        _CHECKS[file.kind](report)
        yield report
        return
    if file.suffix:
        raise NotALog(f"{file.path}: this file is on its way out and is not checked; dump can show it")
    only_offset = None if file.kind in (Kind.SNAPSHOT, Kind.EARLIER_BATCHES) else file.offset
    reports = _partition(file.path.parent, is_compacted=is_compacted, progress=progress, only_offset=only_offset).run()
    yield from [found for found in reports if found.file.path == file.path]


def _check_data_folder(folder: Path, *, is_compacted: bool, progress: Progress) -> Iterator[FileReport]:
    ends: dict[TopicPartition, int] = {}
    for partition_folder in partitions_in(folder):
        check = _partition(partition_folder, is_compacted=is_compacted, progress=progress)
        yield from check.run()
        partition = topic_partition(partition_folder)
        if partition and check.next_offset is not None:
            ends[partition] = check.next_offset
    for file in known_files(folder):
        report = FileReport.on(file)
        if file.kind is Kind.OFFSETS:
            _check_against(report, check_offsets(report), ends)
        else:
            _CHECKS[file.kind](report)
        yield report


def _check_against(report: FileReport, offsets: dict[TopicPartition, int], ends: dict[TopicPartition, int]) -> None:
    """Records up to the recovery point and the log's start were there once: a log that ends before has lost some."""
    if report.file.path.name not in (RECOVERY_POINTS, LOG_STARTS):
        return
    for partition, offset in offsets.items():
        end_offset = ends.get(partition, offset)
        if offset > end_offset:
            topic, number = partition
            report.add(f"{topic} {number} {offset}: the log of this partition ends at {end_offset}")


_CHECKS = {
    Kind.LEADER_EPOCHS: check_epochs,
    Kind.PARTITION_METADATA: check_metadata,
    Kind.OFFSETS: check_offsets,
    Kind.META_PROPERTIES: check_properties,
}
