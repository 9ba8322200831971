"""DescribeLogDirs (35), versions 1 to 5. There is one folder; partitions that are not in it are left out."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.broker.slices import Steps, mapped
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
    from ottla.replica.partition import Partition

UNKNOWN_BYTES = -1


def handle(broker: Broker, request: DescribeLogDirsRequest, context: Context) -> Steps:
    asked = [(name, partitions) for name, partitions in _asked(broker, request) if partitions]
    topics = yield from mapped(lambda topic: _topic(*topic), asked)
    total_bytes, usable_bytes = _volume(broker.logs.folder)
    return DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResult(
                error_code=0,
                log_dir=str(Path(broker.logs.folder).absolute()),
                topics=topics,
                total_bytes=total_bytes,
                usable_bytes=usable_bytes,
            )
        ]
    )


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


def _topic(name: str, partitions: list[Partition]) -> DescribeLogDirsTopic:
    return DescribeLogDirsTopic(
        name=name,
        partitions=[
            DescribeLogDirsPartition(
                partition_index=partition.index,
                partition_size=partition.log.size_bytes,
                offset_lag=partition.log.end_offset - partition.log.high_watermark,
                is_future_key=False,
            )
            for partition in partitions
        ],
    )


def _volume(folder: str) -> tuple[int, int]:
    """The bytes of the volume that holds a folder: all of them, and those that can be used."""
    try:
        volume = os.statvfs(folder)
    except OSError:
        return UNKNOWN_BYTES, UNKNOWN_BYTES
    return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize
