"""Requests that only clusters of several brokers have a real answer to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.wire.messages import elect_leaders as electing
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from ottla.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)

PREFERRED, UNCLEAN = 0, 1


def elect(topics: Mapping[str, Sequence[int]] | None, kind: int = PREFERRED) -> electing.ElectLeadersRequest:
    asked = None
    if topics is not None:
        asked = [electing.TopicPartitions(topic=name, partitions=list(found)) for name, found in topics.items()]
    return electing.ElectLeadersRequest(election_type=kind, topic_partitions=asked, timeout_ms=10_000)


def reassign(
    *moves: tuple[str, int, Sequence[int] | None], may_change_factor: bool = True
) -> AlterPartitionReassignmentsRequest:
    """Moves are a topic, a partition and its brokers, None to cancel."""
    return AlterPartitionReassignmentsRequest(
        timeout_ms=10_000,
        allow_replication_factor_change=may_change_factor,
        topics=[
            ReassignableTopic(
                name=name,
                partitions=[
                    ReassignablePartition(partition_index=index, replicas=None if brokers is None else list(brokers))
                ],
            )
            for name, index, brokers in moves
        ],
    )


def list_reassignments(topics: Mapping[str, Sequence[int]] | None) -> ListPartitionReassignmentsRequest:
    asked = None
    if topics is not None:
        asked = [
            ListPartitionReassignmentsTopics(name=name, partition_indexes=list(found)) for name, found in topics.items()
        ]
    return ListPartitionReassignmentsRequest(timeout_ms=10_000, topics=asked)


def move_logs(folder: str, topics: Mapping[str, Sequence[int]]) -> AlterReplicaLogDirsRequest:
    moved = [AlterReplicaLogDirTopic(name=name, partitions=list(found)) for name, found in topics.items()]
    return AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=folder, topics=moved)])


def describe_quorum(topics: Mapping[str, Sequence[int]]) -> DescribeQuorumRequest:
    return DescribeQuorumRequest(
        topics=[
            TopicData(topic_name=name, partitions=[PartitionData(partition_index=index) for index in indexes])
            for name, indexes in topics.items()
        ]
    )
