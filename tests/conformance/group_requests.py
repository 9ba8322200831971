"""Requests of groups and their offsets as exchanges write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ottla.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from ottla.wire.messages.delete_groups import DeleteGroupsRequest
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.versioned import encode_versioned
from tests.conformance.script import Topic

GROUP_KEY, TRANSACTION_KEY, SHARE_KEY = 0, 1, 2


def find_coordinators(*keys: str, key_type: int = GROUP_KEY) -> FindCoordinatorRequest:
    """As versions from 4 have it."""
    return FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(keys))


def find_coordinator(key: str, key_type: int = GROUP_KEY) -> FindCoordinatorRequest:
    """As versions below 4 have it."""
    return FindCoordinatorRequest(key=key, key_type=key_type)


def subscription(
    *topics: str, owned: Mapping[str, Sequence[int]] | None = None, generation: int = -1, version: int = 1,
    user_data: bytes | None = None,
) -> bytes:  # fmt: skip
    return encode_versioned(
        ConsumerProtocolSubscription(
            topics=list(topics),
            user_data=user_data,
            owned_partitions=[
                TopicPartition(topic=topic, partitions=list(partitions)) for topic, partitions in (owned or {}).items()
            ],
            generation_id=generation,
        ),
        version,
    )


def assignment(partitions: Mapping[str, Sequence[int]], version: int = 1, *, user_data: bytes | None = None) -> bytes:
    assigned = [TopicPartition(topic=topic, partitions=list(indexes)) for topic, indexes in partitions.items()]
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=assigned, user_data=user_data), version)


def join(
    group: str, member_id: str = "", *, instance: str | None = None, protocols: Mapping[str, bytes] | None = None,
    protocol_type: str = "consumer", session_ms: int = 30_000, rebalance_ms: int = 30_000, reason: str | None = None,
) -> JoinGroupRequest:  # fmt: skip
    offered = {"range": subscription("somewhere")} if protocols is None else protocols
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in offered.items()],
        reason=reason,
    )


def sync(
    group: str, generation: int, member_id: str, assignments: Mapping[str, bytes] | None = None, *,
    instance: str | None = None, protocol_type: str | None = "consumer", protocol: str | None = "range",
) -> SyncGroupRequest:  # fmt: skip
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=protocol_type,
        protocol_name=protocol,
        assignments=[
            SyncGroupRequestAssignment(member_id=member, assignment=assigned)
            for member, assigned in (assignments or {}).items()
        ],
    )


def heartbeat(group: str, generation: int, member_id: str, *, instance: str | None = None) -> HeartbeatRequest:
    return HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance)


def leave(group: str, *members: tuple[str, str | None], reason: str | None = None) -> LeaveGroupRequest:
    """Members are an id and an instance; as versions from 3 have it."""
    identities = [
        MemberIdentity(member_id=member_id, group_instance_id=instance, reason=reason)
        for member_id, instance in members
    ]
    return LeaveGroupRequest(group_id=group, members=identities)


def leave_alone(group: str, member_id: str) -> LeaveGroupRequest:
    """As versions below 3 have it."""
    return LeaveGroupRequest(group_id=group, member_id=member_id)


def commit(
    group: str, topic: Topic, *offsets: tuple[int, int], generation: int = -1, member_id: str = "",
    instance: str | None = None, metadata: str | None = "", leader_epoch: int = -1, retention_ms: int = -1,
) -> OffsetCommitRequest:  # fmt: skip
    """Offsets are a partition and an offset; 5 of partition 0 unless told."""
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=partition,
            committed_offset=offset,
            committed_leader_epoch=leader_epoch,
            committed_metadata=metadata,
        )
        for partition, offset in offsets or [(0, 5)]
    ]
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance,
        retention_time_ms=retention_ms,
        topics=[OffsetCommitRequestTopic(name=topic.name, topic_id=topic.id, partitions=partitions)],
    )


def fetch_offsets(
    group: str, topics: Mapping[Topic, Sequence[int]] | None, *, version: int = 10, stable: bool = False,
    member_id: str | None = None, epoch: int = -1,
) -> OffsetFetchRequest:  # fmt: skip
    """In the shape of a version."""
    if version >= 8:
        return fetch_offsets_of(offsets_of_group(group, topics, member_id=member_id, epoch=epoch), stable=stable)
    asked = None if topics is None else [
        OffsetFetchRequestTopic(name=topic.name, partition_indexes=list(partitions))
        for topic, partitions in topics.items()
    ]  # fmt: skip
    return OffsetFetchRequest(group_id=group, topics=asked, require_stable=stable)


def fetch_offsets_of(*groups: OffsetFetchRequestGroup, stable: bool = False) -> OffsetFetchRequest:
    return OffsetFetchRequest(groups=list(groups), require_stable=stable)


def offsets_of_group(
    group: str, topics: Mapping[Topic, Sequence[int]] | None, *, member_id: str | None = None, epoch: int = -1
) -> OffsetFetchRequestGroup:
    asked = None if topics is None else [
        OffsetFetchRequestTopics(name=topic.name, topic_id=topic.id, partition_indexes=list(partitions))
        for topic, partitions in topics.items()
    ]  # fmt: skip
    return OffsetFetchRequestGroup(group_id=group, member_id=member_id, member_epoch=epoch, topics=asked)


def delete_offsets(group: str, topics: Mapping[str, Sequence[int]]) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in partitions]
            )
            for name, partitions in topics.items()
        ],
    )


def list_groups(*, states: Sequence[str] = (), types: Sequence[str] = ()) -> ListGroupsRequest:
    return ListGroupsRequest(states_filter=list(states), types_filter=list(types))


def describe_groups(*groups: str, operations: bool = False) -> DescribeGroupsRequest:
    return DescribeGroupsRequest(groups=list(groups), include_authorized_operations=operations)


def delete_groups(*groups: str) -> DeleteGroupsRequest:
    return DeleteGroupsRequest(groups_names=list(groups))


def owned(partitions: Mapping[Topic, Sequence[int]]) -> list[TopicPartitions]:
    return [TopicPartitions(topic_id=topic.id, partitions=list(indexes)) for topic, indexes in partitions.items()]


def beat(group: str, member_id: str, epoch: int, **options: Any) -> ConsumerGroupHeartbeatRequest:
    """A heartbeat of the new protocol that changes nothing unless told."""
    return ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=epoch, **options)


def enter(group: str, member_id: str, *topics: str, **options: Any) -> ConsumerGroupHeartbeatRequest:
    """The first heartbeat of a member."""
    return beat(
        group,
        member_id,
        0,
        **{
            "rebalance_timeout_ms": 30_000,
            "subscribed_topic_names": list(topics),
            "topic_partitions": [],
            **options,
        },
    )


def describe_consumer_groups(*groups: str, operations: bool = False) -> ConsumerGroupDescribeRequest:
    return ConsumerGroupDescribeRequest(group_ids=list(groups), include_authorized_operations=operations)
