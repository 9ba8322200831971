"""The timers of members of consumer groups: named by what they are for, then the group, then the member."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.consumer_member import Member
from ottla.coordinator.operation import Operation

if TYPE_CHECKING:
    from ottla.coordinator.consumer_group import ConsumerGroup

SESSION = "consumer session"  # it gives signs of life
REBALANCE = "consumer rebalance"  # it lets go of partitions that it has to let go of
JOIN = "consumer join"  # of the classic protocol: it joins again after it was told to
SYNC = "consumer sync"  # of the classic protocol: it asks for its assignment after it joined
RESOLVE = "consumer regexes"  # not of a member: the group's regular expressions are to be resolved


def start_session(operation: Operation, group: ConsumerGroup, member: Member) -> None:
    classic = member.profile.classic
    timeout_ms = group.settings.session_timeout_ms if classic is None else classic.session_timeout_ms
    operation.set_timer((SESSION, group.group_id, member.member_id), timeout_ms)


def start_rebalance_timer(operation: Operation, group: ConsumerGroup, member: Member) -> None:
    timer = REBALANCE, group.group_id, member.member_id
    operation.set_timer(timer, member.profile.rebalance_timeout_ms)


def start_join_timer(operation: Operation, group: ConsumerGroup, member: Member) -> None:
    """From the first time that a classic member is told to join again, it has its rebalance timeout."""
    if member.member_id not in group.told_to_join:
        group.told_to_join.add(member.member_id)
        operation.set_timer((JOIN, group.group_id, member.member_id), member.profile.rebalance_timeout_ms)


def start_sync_timer(operation: Operation, group: ConsumerGroup, member: Member) -> None:
    operation.set_timer((SYNC, group.group_id, member.member_id), member.profile.rebalance_timeout_ms)


def cancel_timers(operation: Operation, group: ConsumerGroup, member_id: str, *kinds: str) -> None:
    for kind in kinds or (SESSION, REBALANCE, JOIN, SYNC):
        operation.cancel_timer((kind, group.group_id, member_id))
        if kind == JOIN:
            group.told_to_join.discard(member_id)
