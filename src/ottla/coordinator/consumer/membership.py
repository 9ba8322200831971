"""How members come into a consumer group, go on in it with each thing they tell, and leave it.

First everything is checked, then records are written: what an operation has written stays.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.coordinator.classic.group import ClassicGroup
from ottla.coordinator.consumer.group import ConsumerGroup
from ottla.coordinator.consumer.member import AWAY_EPOCH, Member, MemberState, Profile
from ottla.coordinator.consumer.migration import Migration
from ottla.coordinator.consumer.reconcile import Goal, Owned, reconcile
from ottla.coordinator.consumer.records import (
    write_member,
    write_member_tombstones,
    write_progress,
    write_target,
)
from ottla.coordinator.consumer.subscriptions import RegexChange
from ottla.coordinator.consumer.timers import REBALANCE
from ottla.coordinator.operation import Operation
from ottla.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from ottla.coordinator.group_machine import GroupMachine


class Admission(NamedTuple):
    """A member that may go on, and what has to be done for that."""

    member: Member  # as it is known; of a new one nothing but the id
    replaced_by: str | None = None  # the id under which a static member goes on
    upgraded: ClassicGroup | None = None  # the group that is to become a consumer group first
    replaces_group: bool = False  # an empty classic group makes way


class Step(NamedTuple):
    """What a member tells."""

    profile: Profile
    owned: Owned  # what it works on


def check_room(group: ConsumerGroup, member_id: str) -> None:
    most = group.settings.max_size
    if len(group.members) >= most and member_id not in group.members:
        message = f"The consumer group has reached its maximum capacity of {most} members."
        raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED, message)


def find_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> Member:
    """The member that asks: if it gives an instance id, the one that goes by it."""
    if instance_id is None:
        member = group.members.get(member_id)
        if member is None:
            message = f"Member {member_id} is not a member of group {group.group_id}."
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, message)
        return member
    owner = group.static_member(instance_id)
    if owner is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if owner.member_id != member_id:
        raise ApiError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {owner.member_id}.",
        )
    return owner


class Membership:
    def __init__(self, machine: GroupMachine) -> None:
        self._machine = machine
        self._migration = Migration(machine)

    # Coming

    def admit(self, operation: Operation, group_id: str, admission: Admission) -> Member:
        """Make a place for a member that may go on; as it is then known."""
        group = self._machine.groups.get(group_id)
        member = admission.member
        if admission.replaces_group and group is not None:
            group.write_tombstones(operation)
        if isinstance(group, ConsumerGroup) and admission.replaced_by is not None:
            return self._replace(operation, group, member, admission.replaced_by)
        return member

    @staticmethod
    def _replace(operation: Operation, group: ConsumerGroup, old: Member, member_id: str) -> Member:
        """Let a static member go on under another id, with what it has and is to have."""
        new = Member(member_id, old.profile, old.progress._replace(epoch=0, previous_epoch=0))
        target = dict(group.target_of(old.member_id))
        group.timers.cancel(operation, old.member_id)
        write_member_tombstones(operation, group.group_id, old.member_id)
        write_member(operation, group.group_id, member_id, new.profile)
        write_target(operation, group.group_id, member_id, target)
        write_progress(operation, group.group_id, member_id, new.progress)
        return new

    # Going on

    def take_step(self, operation: Operation, group_id: str, member: Member, step: Step) -> Member:
        """The member as it is then. The group comes into being with the record of its first member."""
        before, after = member.profile, step.profile
        if after != before:
            write_member(operation, group_id, member.member_id, after)
        group = self._machine.groups[group_id]
        assert isinstance(group, ConsumerGroup)
        regex_change = group.subscriptions.change_regex(operation, before.regex, after.regex)
        group.resolve_if_due(operation)
        have_names_changed = after.topic_names != before.topic_names
        is_due = have_names_changed or regex_change is RegexChange.RESOLVED or group.may_read_more()
        if is_due or group.subscriptions.are_topics_changed:
            group.bump_if_changed(operation, is_due=is_due)
        group.assign_if_due(operation)
        has_changed = have_names_changed or regex_change is not RegexChange.NONE
        return self._reconcile(operation, group, member._replace(profile=after), step, has_changed)

    @staticmethod
    def _reconcile(operation: Operation, group: ConsumerGroup, member: Member, step: Step, has_changed: bool) -> Member:
        before = member.progress
        if not has_changed and before.is_reconciled(group.target.epoch):
            return member
        goal = Goal(
            group.target.epoch,
            group.target_of(member.member_id),
            group.subscriptions.ids_of(step.profile),
            has_changed,
            step.owned,
            functools.partial(group.is_free_for, member.member_id),
        )
        after = reconcile(before, goal)
        if after == before:
            return member
        write_progress(operation, group.group_id, member.member_id, after)
        member = member._replace(progress=after)
        if not member.is_classic:  # those have a time to join again instead
            if after.state is MemberState.UNREVOKED:
                group.timers.start_rebalance(operation, member)
            else:
                group.timers.cancel(operation, member.member_id, REBALANCE)
        return member

    # Leaving

    def remove(self, operation: Operation, group: ConsumerGroup, members: Sequence[Member]) -> None:
        """Take members out, and begin another epoch for those who stay; they may go on in the classic protocol."""
        if not members:
            return
        if self._migration.can_downgrade(group, members):
            self._migration.downgrade(operation, group, members)
            return
        for member in members:
            group.timers.cancel(operation, member.member_id)
            write_member_tombstones(operation, group.group_id, member.member_id)
            group.subscriptions.drop_unused(operation, member.profile.regex)
        group.bump_if_changed(operation, is_due=True)

    @staticmethod
    def leave_for_a_while(operation: Operation, group: ConsumerGroup, member: Member) -> None:
        """A static member keeps what it is to have, if it is back before its session ends."""
        assigned = {topic_id: dict.fromkeys(numbers, 0) for topic_id, numbers in member.progress.assigned.items()}
        away = member.progress._replace(epoch=AWAY_EPOCH, assigned=assigned, revoking={})
        group.timers.cancel(operation, member.member_id, REBALANCE)
        write_progress(operation, group.group_id, member.member_id, away)

    def expire(self, operation: Operation, group_id: str, member_id: str) -> None:
        """Nothing was heard of a member in time."""
        group = self._machine.groups.get(group_id)
        member = group.members.get(member_id) if isinstance(group, ConsumerGroup) else None
        if isinstance(group, ConsumerGroup) and member is not None:
            self.remove(operation, group, [member])

    def expire_rebalance(self, operation: Operation, group_id: str, member_id: str) -> None:
        """A member gives signs of life, but does not let go of partitions that others wait for."""
        group = self._machine.groups.get(group_id)
        member = group.members.get(member_id) if isinstance(group, ConsumerGroup) else None
        if isinstance(group, ConsumerGroup) and member is not None and member.progress.state is MemberState.UNREVOKED:
            self.remove(operation, group, [member])
