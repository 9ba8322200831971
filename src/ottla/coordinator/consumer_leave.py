"""How members leave a consumer group: of their own will, for a while, or because they were not heard of in time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ottla.coordinator.consumer_downgrade import can_downgrade, downgrade
from ottla.coordinator.consumer_epoch import bump_if_changed
from ottla.coordinator.consumer_group import ConsumerGroup
from ottla.coordinator.consumer_member import AWAY_EPOCH, Member, MemberState
from ottla.coordinator.consumer_records import write_member_tombstones, write_progress
from ottla.coordinator.consumer_regex import drop_unused, resolve
from ottla.coordinator.consumer_timers import JOIN, REBALANCE, RESOLVE, SESSION, SYNC, cancel_timers
from ottla.coordinator.operation import Operation

if TYPE_CHECKING:
    from ottla.coordinator.group_machine import GroupMachine


def remove_members(
    machine: GroupMachine, operation: Operation, group: ConsumerGroup, members: Sequence[Member]
) -> None:
    """Take members out, and begin another epoch for those who stay; they may go on in the classic protocol."""
    if not members:
        return
    if can_downgrade(machine, group, members):
        downgrade(machine, operation, group, members)
        return
    for member in members:
        cancel_timers(operation, group, member.member_id)
        write_member_tombstones(operation, group.group_id, member.member_id)
        drop_unused(operation, group, member.profile.regex)
    bump_if_changed(machine, operation, group, is_due=True)


def leave_for_a_while(operation: Operation, group: ConsumerGroup, member: Member) -> None:
    """A static member keeps what it is to have, if it is back before its session ends."""
    assigned = {topic_id: dict.fromkeys(numbers, 0) for topic_id, numbers in member.progress.assigned.items()}
    away = member.progress._replace(epoch=AWAY_EPOCH, assigned=assigned, revoking={})
    cancel_timers(operation, group, member.member_id, REBALANCE)
    write_progress(operation, group.group_id, member.member_id, away)


def expire_member(machine: GroupMachine, operation: Operation, group_id: str, member_id: str) -> None:
    """Nothing was heard of a member in time."""
    group = machine.groups.get(group_id)
    member = group.members.get(member_id) if isinstance(group, ConsumerGroup) else None
    if isinstance(group, ConsumerGroup) and member is not None:
        remove_members(machine, operation, group, [member])


def expire_rebalance(machine: GroupMachine, operation: Operation, group_id: str, member_id: str) -> None:
    """A member gives signs of life, but does not let go of partitions that others wait for."""
    group = machine.groups.get(group_id)
    member = group.members.get(member_id) if isinstance(group, ConsumerGroup) else None
    if isinstance(group, ConsumerGroup) and member is not None and member.progress.state is MemberState.UNREVOKED:
        remove_members(machine, operation, group, [member])


CONSUMER_TIMERS: dict[str, Callable[..., None]] = {
    SESSION: expire_member,
    REBALANCE: expire_rebalance,
    JOIN: expire_member,
    SYNC: expire_member,
    RESOLVE: resolve,
}
"""What to do when a timer of a consumer group is due, by its kind."""
