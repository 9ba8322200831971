"""AlterReplicaLogDirs (34), versions 1 to 2: moves replicas between the log directories of a broker.

2 is flexible.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct
from ottla.wire.types import Int16, Int32, String


class AlterReplicaLogDirTopic(Struct):
    name: String
    partitions: list[Int32]


class AlterReplicaLogDir(Struct):
    path: String
    topics: list[AlterReplicaLogDirTopic]


class AlterReplicaLogDirsRequest(Request, api=apis.ALTER_REPLICA_LOG_DIRS):
    dirs: list[AlterReplicaLogDir]


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: Int32
    error_code: Int16


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: String
    partitions: list[AlterReplicaLogDirPartitionResult]


class AlterReplicaLogDirsResponse(Response, api=apis.ALTER_REPLICA_LOG_DIRS):
    throttle_time_ms: Int32 = 0
    results: list[AlterReplicaLogDirTopicResult]
