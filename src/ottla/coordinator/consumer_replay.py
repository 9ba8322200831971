"""The records of a consumer group, as they are replayed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.coordinator.classic_group import ClassicGroup
from ottla.coordinator.consumer_group import ConsumerGroup, Resolved
from ottla.coordinator.consumer_member import profile_of, progress_of
from ottla.wire.messages.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

if TYPE_CHECKING:
    from ottla.coordinator.group_machine import GroupMachine


def _group(machine: GroupMachine, group_id: str) -> ConsumerGroup:
    """The group of a record; it is made if need be, in the place of a classic one that only keeps offsets."""
    group = machine.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        group = machine.groups[group_id] = ConsumerGroup(group_id, machine.consumer_settings)
    return group


def _known(machine: GroupMachine, group_id: str) -> ConsumerGroup | None:
    """The group of a record that takes something away; what is not there need not be made for that."""
    group = machine.groups.get(group_id)
    return group if isinstance(group, ConsumerGroup) else None


def _replay_epoch(
    machine: GroupMachine, key: ConsumerGroupMetadataKey, value: ConsumerGroupMetadataValue | None
) -> None:
    if value is not None:
        group = _group(machine, key.group_id)
        group.epoch, group.metadata_hash = value.epoch, value.metadata_hash
    elif _known(machine, key.group_id) is not None:
        del machine.groups[key.group_id]
        if machine.offsets.of_group(key.group_id) or machine.offsets.has_pending(key.group_id):
            machine.groups[key.group_id] = ClassicGroup(key.group_id)


def _replay_member(
    machine: GroupMachine, key: ConsumerGroupMemberMetadataKey, value: ConsumerGroupMemberMetadataValue | None
) -> None:
    if value is not None:
        _group(machine, key.group_id).replay_member(key.member_id, profile_of(value))
    elif group := _known(machine, key.group_id):
        group.replay_member(key.member_id, None)


def _replay_progress(
    machine: GroupMachine,
    key: ConsumerGroupCurrentMemberAssignmentKey,
    value: ConsumerGroupCurrentMemberAssignmentValue | None,
) -> None:
    if value is not None:
        _group(machine, key.group_id).replay_progress(key.member_id, progress_of(value))
    elif group := _known(machine, key.group_id):
        group.replay_progress(key.member_id, None)


def _replay_target(
    machine: GroupMachine,
    key: ConsumerGroupTargetAssignmentMemberKey,
    value: ConsumerGroupTargetAssignmentMemberValue | None,
) -> None:
    if value is not None:
        target = {topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions}
        _group(machine, key.group_id).replay_target(key.member_id, target)
    elif group := _known(machine, key.group_id):
        group.replay_target(key.member_id, None)


def _replay_target_epoch(
    machine: GroupMachine,
    key: ConsumerGroupTargetAssignmentMetadataKey,
    value: ConsumerGroupTargetAssignmentMetadataValue | None,
) -> None:
    if value is not None:
        group = _group(machine, key.group_id)
        group.assignment_epoch, group.assignment_timestamp_ms = value.assignment_epoch, value.assignment_timestamp
    elif known := _known(machine, key.group_id):
        known.assignment_epoch, known.assignment_timestamp_ms = 0, 0


def _replay_regex(
    machine: GroupMachine,
    key: ConsumerGroupRegularExpressionKey,
    value: ConsumerGroupRegularExpressionValue | None,
) -> None:
    if value is not None:
        resolved = Resolved(frozenset(value.topics), value.timestamp)
        _group(machine, key.group_id).replay_regex(key.regular_expression, resolved)
    elif group := _known(machine, key.group_id):
        group.replay_regex(key.regular_expression, None)


CONSUMER_REPLAYS: dict[type[Any], Any] = {
    ConsumerGroupMetadataKey: _replay_epoch,
    ConsumerGroupMemberMetadataKey: _replay_member,
    ConsumerGroupTargetAssignmentMetadataKey: _replay_target_epoch,
    ConsumerGroupTargetAssignmentMemberKey: _replay_target,
    ConsumerGroupCurrentMemberAssignmentKey: _replay_progress,
    ConsumerGroupRegularExpressionKey: _replay_regex,
}
"""What takes in a record of a consumer group, by its key."""
