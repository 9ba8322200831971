"""The timers of members of a consumer group: named by what they are for, then the group, then the member."""

from __future__ import annotations

from collections.abc import Callable

from ottla.coordinator.consumer.member import Member, MemberState
from ottla.coordinator.consumer.settings import ConsumerSettings
from ottla.coordinator.operation import Operation

SESSION = "consumer session"  # it gives signs of life
REBALANCE = "consumer rebalance"  # it lets go of partitions that it has to let go of
JOIN = "consumer join"  # of the classic protocol: it joins again after it was told to
SYNC = "consumer sync"  # of the classic protocol: it asks for its assignment after it joined
RESOLVE = "consumer regexes"  # not of a member: the group's regular expressions are to be resolved


class MemberTimers:
    def __init__(self, group_id: str, settings: Callable[[str], ConsumerSettings]) -> None:
        self._group_id = group_id
        self._settings = settings
        self.told_to_join: set[str] = set()  # classic members that are to join again

    def start_session(self, operation: Operation, member: Member) -> None:
        classic = member.profile.classic
        timeout_ms = (
            self._settings(self._group_id).session_timeout_ms if classic is None else classic.session_timeout_ms
        )
        operation.set_timer((SESSION, self._group_id, member.member_id), timeout_ms)

    def start_rebalance(self, operation: Operation, member: Member) -> None:
        timer = REBALANCE, self._group_id, member.member_id
        operation.set_timer(timer, member.profile.rebalance_timeout_ms)

    def start_join(self, operation: Operation, member: Member) -> None:
        """From the first time that a classic member is told to join again, it has its rebalance timeout."""
        if member.member_id not in self.told_to_join:
            self.told_to_join.add(member.member_id)
            operation.set_timer((JOIN, self._group_id, member.member_id), member.profile.rebalance_timeout_ms)

    def start_sync(self, operation: Operation, member: Member) -> None:
        operation.set_timer((SYNC, self._group_id, member.member_id), member.profile.rebalance_timeout_ms)

    def start_loaded(self, operation: Operation, member: Member) -> None:
        """Those of a member that a log has told of."""
        self.start_session(operation, member)
        if member.progress.state is MemberState.UNREVOKED and not member.is_classic and not member.is_away:
            self.start_rebalance(operation, member)

    def cancel(self, operation: Operation, member_id: str, *kinds: str) -> None:
        """Those of these kinds, or all of a member."""
        for kind in kinds or (SESSION, REBALANCE, JOIN, SYNC):
            operation.cancel_timer((kind, self._group_id, member_id))
            if kind == JOIN:
                self.told_to_join.discard(member_id)
