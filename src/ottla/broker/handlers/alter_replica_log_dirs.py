"""AlterReplicaLogDirs (34), versions 1 and 2: moves replicas between the data folders of this broker.

The move goes on when this is answered, also after a restart; DescribeLogDirs tells when it is over. A replica that is
not here yet cannot be given a folder beforehand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.loop.slices import parts_by_topic
from ottla.log.errors import LogError
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context
    from ottla.broker.loop.slices import Steps

NAMED_AT_ONCE = 500


def handle(broker: Broker, request: AlterReplicaLogDirsRequest, context: Context) -> Steps:
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for folder in request.dirs:
        for part in parts_by_topic(folder.topics, NAMED_AT_ONCE):
            for topic, partitions, _ in part:
                if topic.name not in results:
                    results[topic.name] = AlterReplicaLogDirTopicResult(topic_name=topic.name, partitions=[])
                results[topic.name].partitions += [
                    AlterReplicaLogDirPartitionResult(
                        partition_index=index, error_code=_move(broker, folder.path, topic.name, index)
                    )
                    for index in partitions
                ]
            yield None
    return AlterReplicaLogDirsResponse(results=list(results.values()))


def _move(broker: Broker, path: str, name: str, index: int) -> ErrorCode:
    target = broker.logs.manager_at(path)
    if target is None:
        return ErrorCode.LOG_DIR_NOT_FOUND
    partition = broker.topics.partition(name, index)
    if partition is None:
        is_known = broker.cluster.state(name, index) is not None
        return ErrorCode.REPLICA_NOT_AVAILABLE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if partition.log.failure is not None or target.failure is not None:
        return ErrorCode.KAFKA_STORAGE_ERROR
    try:
        broker.replica_moves.begin(partition, target)
    except LogError as refusal:
        return refusal.code
    return ErrorCode.NONE
