"""DescribeLogDirs (35), versions 1 to 5: the data folders, and the partitions in them or on their way there."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.broker.loop.slices import Steps, parts_of
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context
    from ottla.log.manager import LogManager
    from ottla.replica.partition import Partition

UNKNOWN_BYTES = -1
PARTITIONS_A_STEP = 200


def handle(broker: Broker, request: DescribeLogDirsRequest, context: Context) -> Steps:
    asked = [(name, partitions) for name, partitions in _asked(broker, request) if partitions]
    folders = {manager: _Folder(broker, manager) for manager in broker.logs.managers}
    for _, partitions in asked:
        for part in parts_of(partitions, PARTITIONS_A_STEP):
            for partition in part:
                for folder in folders.values():
                    folder.add(partition)
            yield None
    return DescribeLogDirsResponse(results=[folder.result() for folder in folders.values()])


def _asked(broker: Broker, request: DescribeLogDirsRequest) -> Iterable[tuple[str, list[Partition]]]:
    if request.topics is None:
        return [(topic.name, topic.partitions) for topic in broker.topics]
    wanted: dict[str, dict[int, Partition]] = {}
    for topic in request.topics:
        for index in topic.partitions:
            partition = broker.topics.partition(topic.topic, index)
            if partition is not None:
                wanted.setdefault(topic.topic, {})[index] = partition
    return [(name, list(partitions.values())) for name, partitions in wanted.items()]


class _Folder:
    """One data folder, and those of the partitions that lie in it or are on their way there."""

    def __init__(self, broker: Broker, manager: LogManager) -> None:
        self._logs = broker.logs
        self._manager = manager
        self._coming = broker.replica_moves.to(manager)
        self._topics: dict[str, DescribeLogDirsTopic] = {}

    def add(self, partition: Partition) -> None:
        log = partition.log
        if self._logs.manager_of(log) is self._manager:
            self._add(partition, log.size_bytes, log.end_offset - log.high_watermark, is_future=False)
        move = self._coming.get((partition.topic, partition.index))
        if move is not None:
            size_bytes = 0 if move.copy is None else move.copy.size_bytes
            self._add(partition, size_bytes, move.lag, is_future=True)

    def _add(self, partition: Partition, size_bytes: int, lag: int, *, is_future: bool) -> None:
        name = partition.topic
        topic = self._topics.setdefault(name, DescribeLogDirsTopic(name=name, partitions=[]))
        topic.partitions.append(
            DescribeLogDirsPartition(
                partition_index=partition.index, partition_size=size_bytes, offset_lag=lag, is_future_key=is_future
            )
        )

    def result(self) -> DescribeLogDirsResult:
        folder = self._manager.folder
        if self._manager.failure is not None:  # what lies there is not told, as with Kafka
            code = ErrorCode.KAFKA_STORAGE_ERROR
            return DescribeLogDirsResult(error_code=code, log_dir=str(Path(folder).absolute()), topics=[])
        total_bytes, usable_bytes = _volume(folder)
        return DescribeLogDirsResult(
            error_code=0,
            log_dir=str(Path(folder).absolute()),
            topics=list(self._topics.values()),
            total_bytes=total_bytes,
            usable_bytes=usable_bytes,
        )


def _volume(folder: str) -> tuple[int, int]:
    """The bytes of the volume that holds a folder: all of them, and those that can be used."""
    try:
        volume = os.statvfs(folder)
    except OSError:
        return UNKNOWN_BYTES, UNKNOWN_BYTES
    return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize
