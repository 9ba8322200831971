"""A group's next epoch, and the target that its members are to reach in it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ottla.coordinator.assignors import ASSIGNORS, Partitions, Subscriber
from ottla.coordinator.consumer_group import ConsumerGroup
from ottla.coordinator.consumer_records import write_epoch, write_target, write_target_epoch
from ottla.coordinator.consumer_topics import existing_ids, partition_counts, topics_hash
from ottla.coordinator.operation import Operation

if TYPE_CHECKING:
    from ottla.coordinator.group_machine import GroupMachine


def bump_if_changed(machine: GroupMachine, operation: Operation, group: ConsumerGroup, *, is_due: bool) -> None:
    """Begin another epoch if one is due, or if the topics of the group are not what they were."""
    metadata_hash = topics_hash(machine.topics, group.topic_names)
    group.are_topics_changed = False
    if is_due or metadata_hash != group.metadata_hash:
        write_epoch(operation, group.group_id, group.epoch + 1, metadata_hash)


def assign_if_due(machine: GroupMachine, operation: Operation, group: ConsumerGroup) -> None:
    """Compute a target for the group's epoch if it has none, though not too often: joiners tend to come together."""
    if group.epoch <= group.assignment_epoch:
        return
    age_ms = operation.now_ms - group.assignment_timestamp_ms
    if 0 <= age_ms < group.settings.assignment_interval_ms:  # below 0: the clock was set back
        return
    targets = _assign(machine, group)
    for member_id, target in targets.items():
        if target != group.targets.get(member_id):
            write_target(operation, group.group_id, member_id, target)
    write_target_epoch(operation, group.group_id, group.epoch, operation.now_ms)


def preferred_assignor(group: ConsumerGroup) -> str:
    """The one that most members ask for; of two that as many ask for, the one that the broker names first."""
    votes = Counter(member.profile.server_assignor for member in group.members.values())
    return max(group.settings.assignors, key=lambda name: votes[name])


def _assign(machine: GroupMachine, group: ConsumerGroup) -> dict[str, Partitions]:
    by_subscription: dict[tuple[frozenset[str], str], frozenset[bytes]] = {}  # most members have the same
    members: dict[str, Subscriber] = {}
    for member_id, member in group.members.items():
        profile = member.profile
        subscription = profile.topic_names, profile.regex
        topic_ids = by_subscription.get(subscription)
        if topic_ids is None:
            topic_ids = by_subscription[subscription] = existing_ids(machine.topics, group.topics_of(profile))
        members[member_id] = Subscriber(topic_ids, group.target_of(member_id), profile.instance_id)
    counts = partition_counts(machine.topics, group.topic_names)
    return ASSIGNORS[preferred_assignor(group)](members, counts)
