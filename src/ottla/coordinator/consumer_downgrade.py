"""A consumer group becomes a classic one again, when the last member of its protocol has left classic ones behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.coordinator.classic_group import CONSUMER_PROTOCOL, ClassicGroup
from ottla.coordinator.classic_member import ClassicMember
from ottla.coordinator.classic_rebalance import prepare
from ottla.coordinator.consumer_assignment import encoded_assignment
from ottla.coordinator.consumer_group import ConsumerGroup
from ottla.coordinator.consumer_member import ClassicSide, Member
from ottla.coordinator.consumer_timers import cancel_timers
from ottla.coordinator.group import Client
from ottla.coordinator.operation import Operation

if TYPE_CHECKING:
    from ottla.coordinator.group_machine import GroupMachine


def can_downgrade(machine: GroupMachine, group: ConsumerGroup, leaving: Sequence[Member]) -> bool:
    """Whether the group is a classic one without these."""
    left = len(group.members) - len(leaving)
    classic_left = group.counts.classic - sum(member.is_classic for member in leaving)
    return (
        0 < left == classic_left
        and group.settings.migration_policy.allows_downgrade
        and left <= machine.settings().max_size
    )


def downgrade(machine: GroupMachine, operation: Operation, group: ConsumerGroup, leaving: Sequence[Member]) -> None:
    """Go on without those who leave as a classic group, in the generation that was the epoch, and rebalance."""
    members = [member for member in group.members.values() if member not in leaving]
    classic = ClassicGroup(group.group_id)
    assignments = {}
    for member in members:
        side = member.profile.classic
        assert side is not None
        assignments[member.member_id] = encoded_assignment(machine.topics, side, group.target_of(member.member_id))
        classic.add(_converted(member, side), CONSUMER_PROTOCOL)
    for member_id in group.members:
        cancel_timers(operation, group, member_id)
    group.write_tombstones(operation)
    classic.generation = group.epoch
    classic.protocol = classic.chosen_protocol()
    classic.state_since_ms = operation.now_ms
    machine.groups[group.group_id] = classic  # with all that its members offer, of which a record keeps one
    classic.write(operation, assignments)
    classic.set_timers(operation)
    prepare(operation, classic, machine.settings())


def _converted(member: Member, side: ClassicSide) -> ClassicMember:
    profile = member.profile
    return ClassicMember(
        member.member_id,
        profile.instance_id,
        Client(profile.client_id, profile.client_host),
        profile.rebalance_timeout_ms,
        side.session_timeout_ms,
        side.protocols,
    )
