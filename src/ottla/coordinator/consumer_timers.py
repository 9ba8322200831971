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


def start_classic_timer(operation: Operation, kind: str, group: ConsumerGroup, member: Member) -> None:
    """Of joining or of asking for the assignment."""
    operation.set_timer((kind, group.group_id, member.member_id), member.profile.rebalance_timeout_ms)


def cancel_timer(operation: Operation, kind: str, group: ConsumerGroup, member: Member) -> None:
    operation.cancel_timer((kind, group.group_id, member.member_id))


def cancel_timers(operation: Operation, group: ConsumerGroup, member: Member) -> None:
    for kind in (SESSION, REBALANCE, JOIN, SYNC):
        cancel_timer(operation, kind, group, member)
