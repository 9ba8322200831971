"""The records of a consumer group, as they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.coordinator.consumer.assignors import Partitions
from ottla.coordinator.consumer.member import (
    Profile,
    Progress,
    profile_record,
    progress_record,
)
from ottla.coordinator.operation import Operation
from ottla.wire.messages.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TargetTopicPartitions,
)

if TYPE_CHECKING:
    from ottla.coordinator.consumer.group import ConsumerGroup
    from ottla.coordinator.consumer.subscriptions import Resolved

_target_partitions: Any = TargetTopicPartitions  # by positions, which costs half as much as by names
NO_METADATA_VERSION = 0
"""Kafka notes the offset of its metadata log that an expression was resolved at; here topics have no such number."""


def write_epoch(operation: Operation, group_id: str, epoch: int, metadata_hash: int) -> None:
    operation.write(
        ConsumerGroupMetadataKey(group_id=group_id),
        ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def write_member(operation: Operation, group_id: str, member_id: str, profile: Profile | None) -> None:
    operation.write(
        ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id),
        None if profile is None else profile_record(profile),
    )


def write_progress(operation: Operation, group_id: str, member_id: str, progress: Progress | None) -> None:
    operation.write(
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id),
        None if progress is None else progress_record(progress),
    )


def write_target(operation: Operation, group_id: str, member_id: str, target: Partitions | None) -> None:
    operation.write(
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        None
        if target is None
        else ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[_target_partitions(topic_id, sorted(numbers)) for topic_id, numbers in target.items()]
        ),
    )


def write_target_epoch(operation: Operation, group_id: str, epoch: int, timestamp_ms: int) -> None:
    operation.write(
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms),
    )


def write_regex(operation: Operation, group_id: str, regex: str, resolved: Resolved | None) -> None:
    operation.write(
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex),
        None
        if resolved is None
        else ConsumerGroupRegularExpressionValue(
            topics=sorted(resolved.topics), version=NO_METADATA_VERSION, timestamp=resolved.timestamp_ms
        ),
    )


def write_member_tombstones(operation: Operation, group_id: str, member_id: str) -> None:
    write_progress(operation, group_id, member_id, None)
    write_target(operation, group_id, member_id, None)
    write_member(operation, group_id, member_id, None)


def write_group_tombstones(operation: Operation, group: ConsumerGroup) -> None:
    """Take a group out of the log, with the members that it may have."""
    group_id = group.group_id
    for member_id in list(group.members):
        write_member_tombstones(operation, group_id, member_id)
    for regex in list(group.subscriptions.regexes):
        write_regex(operation, group_id, regex, None)
    operation.write(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None)
    operation.write(ConsumerGroupPartitionMetadataKey(group_id=group_id), None)
    operation.write(ConsumerGroupMetadataKey(group_id=group_id), None)
