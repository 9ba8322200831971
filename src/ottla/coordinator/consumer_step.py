"""One step of a member, whichever protocol it came by: what it tells is kept, the group goes on, and so does it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from ottla.coordinator.consumer_epoch import assign_if_due, bump_if_changed
from ottla.coordinator.consumer_group import ConsumerGroup
from ottla.coordinator.consumer_member import Member, MemberState, Profile
from ottla.coordinator.consumer_reconcile import Aim, reconcile
from ottla.coordinator.consumer_records import write_member, write_progress
from ottla.coordinator.consumer_regex import RegexChange, change_regex, resolve_if_due
from ottla.coordinator.consumer_timers import REBALANCE, cancel_timers, start_rebalance_timer
from ottla.coordinator.consumer_topics import existing_ids
from ottla.coordinator.operation import Operation

if TYPE_CHECKING:
    from ottla.coordinator.group_machine import GroupMachine


class Step(NamedTuple):
    """What a member tells."""

    profile: Profile
    owned: Mapping[bytes, frozenset[int]] | None  # what it works on; None: it does not say


def take_step(machine: GroupMachine, operation: Operation, group_id: str, member: Member, step: Step) -> Member:
    """The member as it is then. The group comes into being with the record of its first member."""
    before, after = member.profile, step.profile
    if after != before:
        write_member(operation, group_id, member.member_id, after)
    group = machine.groups[group_id]
    assert isinstance(group, ConsumerGroup)
    regex_change = change_regex(operation, group, before.regex, after.regex)
    resolve_if_due(operation, group)
    have_names_changed = after.topic_names != before.topic_names
    if have_names_changed or regex_change is RegexChange.RESOLVED or group.are_topics_changed:
        is_due = have_names_changed or regex_change is RegexChange.RESOLVED
        bump_if_changed(machine, operation, group, is_due=is_due)
    assign_if_due(machine, operation, group)
    has_changed = have_names_changed or regex_change is not RegexChange.NONE
    return _reconcile(machine, operation, group, Member(member.member_id, after, member.progress), step, has_changed)


def _reconcile(
    machine: GroupMachine, operation: Operation, group: ConsumerGroup, member: Member, step: Step, has_changed: bool
) -> Member:
    before = member.progress
    if not has_changed and before.is_reconciled(group.assignment_epoch):
        return member
    aim = Aim(
        group.assignment_epoch,
        group.target_of(member.member_id),
        existing_ids(machine.topics, group.topics_of(step.profile)),
        has_changed,
        step.owned,
        functools.partial(group.is_free_for, member.member_id),
    )
    after = reconcile(before, aim)
    if after == before:
        return member
    write_progress(operation, group.group_id, member.member_id, after)
    member = member._replace(progress=after)
    if not member.is_classic:  # those have a time to join again instead
        if after.state is MemberState.UNREVOKED:
            start_rebalance_timer(operation, group, member)
        else:
            cancel_timers(operation, group, member.member_id, REBALANCE)
    return member
