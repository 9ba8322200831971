"""A group of the consumer protocol: members that each walk on their own towards what the group is to have.

Everything here but the marks at the end of `__init__` lasts, and changes only by a replayed record.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ottla.coordinator.assignors import Partitions
from ottla.coordinator.assignors.subscriber import NO_PARTITIONS
from ottla.coordinator.consumer_counts import MemberCounts
from ottla.coordinator.consumer_member import Member, MemberState, Profile, Progress
from ottla.coordinator.consumer_records import write_group_tombstones
from ottla.coordinator.consumer_settings import ConsumerSettings
from ottla.coordinator.consumer_timers import start_rebalance_timer, start_session
from ottla.coordinator.group import Committer, Group
from ottla.coordinator.operation import Operation, Reply
from ottla.wire.errors import ErrorCode

FIRST_EPOCH = 1
FIRST_COMMIT_WITH_EPOCHS = 9
"""The version of OffsetCommit in which a member can tell its epoch."""


class State(enum.Enum):
    EMPTY = "Empty"
    ASSIGNING = "Assigning"  # somebody is to compute who is to have what
    RECONCILING = "Reconciling"  # members are on their way to that
    STABLE = "Stable"


class Resolved(NamedTuple):
    """The topics that a regular expression matched, and when that was found out."""

    topics: frozenset[str]
    timestamp_ms: int


class ConsumerGroup(Group):
    type_name = "consumer"

    def __init__(self, group_id: str, settings: Callable[[str], ConsumerSettings]) -> None:
        super().__init__(group_id)
        self._settings = settings
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.assignment_timestamp_ms = 0
        self.members: dict[str, Member] = {}
        self.targets: dict[str, Partitions] = {}
        self.regexes: dict[str, Resolved] = {}
        self.static_members: dict[str, str] = {}  # member ids by instance id
        self.counts = MemberCounts()
        self._owners: dict[tuple[bytes, int], str] = {}  # who may be at work on a partition
        self._topic_names: frozenset[str] | None = frozenset()  # None: to be gathered anew
        # Marks that a machine makes anew; a heartbeat looks at them.
        self.are_topics_changed = True  # those it subscribes to, since it last looked
        self.are_topics_new = True  # topics have come since regular expressions were last resolved
        self.resolving: dict[str, frozenset[str]] | None = None  # what expressions match, while that is found out
        self.told_to_join: set[str] = set()  # classic members that are to join again

    @property
    def settings(self) -> ConsumerSettings:
        return self._settings(self.group_id)

    # What is asked of any group

    @property
    def state(self) -> State:
        if not self.members:
            return State.EMPTY
        if self.epoch > self.assignment_epoch:
            return State.ASSIGNING
        epoch = self.assignment_epoch
        if all(member.progress.is_reconciled(epoch) for member in self.members.values()):
            return State.STABLE
        return State.RECONCILING

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def protocol_type(self) -> str:
        return "consumer"

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def member_count(self) -> int:
        return len(self.members)

    def check_commit(self, committer: Committer, partitions: Iterable[tuple[bytes, int]]) -> ErrorCode:
        member_id, instance_id, epoch, version, is_transactional = committer
        if epoch < 0 and (not self.members or (is_transactional and not member_id and instance_id is None)):
            return ErrorCode.NONE
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not is_transactional and not member.is_classic and version < FIRST_COMMIT_WITH_EPOCHS:
            return ErrorCode.UNSUPPORTED_VERSION
        progress = member.progress
        if epoch == progress.epoch or (epoch < progress.epoch and _were_given(progress, epoch, partitions)):
            return ErrorCode.NONE
        return ErrorCode.ILLEGAL_GENERATION if is_transactional else _stale(member)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        if member_id is None and member_epoch < 0:
            return ErrorCode.NONE
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member_epoch == member.progress.epoch else _stale(member)

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.topic_names

    def offset_age_from_ms(self, commit_timestamp_ms: int) -> int | None:
        return commit_timestamp_ms

    def write_tombstones(self, operation: Operation) -> None:
        write_group_tombstones(operation, self)

    def set_timers(self, operation: Operation) -> None:
        for member in self.members.values():
            start_session(operation, self, member)
            if member.progress.state is MemberState.UNREVOKED and not member.is_classic and not member.is_away:
                start_rebalance_timer(operation, self, member)

    def waiting(self) -> list[Reply]:
        return []  # every request is answered at once

    # Subscriptions

    def topics_of(self, profile: Profile) -> frozenset[str]:
        """The names that a member subscribes to, as far as they are known."""
        resolved = self.regexes.get(profile.regex) if profile.regex else None
        return profile.topic_names if resolved is None else profile.topic_names | resolved.topics

    @property
    def topic_names(self) -> frozenset[str]:
        """All names that members subscribe to."""
        if self._topic_names is None:
            matched = [self.regexes[regex].topics for regex in self.counts.regexes if regex in self.regexes]
            self._topic_names = frozenset(self.counts.names).union(*matched)
        return self._topic_names

    @property
    def resolved_at_ms(self) -> int | None:
        """When regular expressions were last resolved, which is done for all of them at once."""
        resolved = next(iter(self.regexes.values()), None)
        return None if resolved is None else resolved.timestamp_ms

    # Members

    def static_member(self, instance_id: str) -> Member | None:
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    @property
    def is_all_classic(self) -> bool:
        return self.counts.classic == len(self.members)

    def target_of(self, member_id: str) -> Mapping[bytes, frozenset[int]]:
        return self.targets.get(member_id, NO_PARTITIONS)

    def is_free_for(self, member_id: str, topic_id: bytes, number: int) -> bool:
        """Whether nobody else is at work on a partition."""
        return self._owners.get((topic_id, number), member_id) == member_id

    # Replay

    def replay_member(self, member_id: str, profile: Profile | None) -> None:
        member = self.members.get(member_id)
        before = Profile() if member is None else member.profile
        if profile is None:
            if member is not None:
                self._disown(member)
                del self.members[member_id]
        else:
            self.members[member_id] = (member or Member(member_id))._replace(profile=profile)
        self._replace_instance(member_id, before.instance_id, None if profile is None else profile.instance_id)
        if self.counts.replace(before, profile or Profile()):
            self._topic_names = None

    def _replace_instance(self, member_id: str, before: str | None, after: str | None) -> None:
        if before is not None and self.static_members.get(before) == member_id:
            del self.static_members[before]
        if after is not None:
            self.static_members[after] = member_id

    def replay_progress(self, member_id: str, progress: Progress | None) -> None:
        member = self.members.get(member_id)
        if member is not None:
            self._disown(member)
        elif progress is None:
            return
        member = (member or Member(member_id))._replace(progress=progress or Progress())
        self.members[member_id] = member
        for partition in member.progress.partitions():
            self._owners[partition] = member_id

    def _disown(self, member: Member) -> None:
        for partition in member.progress.partitions():
            if self._owners.get(partition) == member.member_id:
                del self._owners[partition]

    def replay_target(self, member_id: str, target: Partitions | None) -> None:
        if target is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = target

    def replay_regex(self, regex: str, resolved: Resolved | None) -> None:
        if resolved is None:
            self.regexes.pop(regex, None)
        else:
            self.regexes[regex] = resolved
        self._topic_names = None


def _were_given(progress: Progress, epoch: int, partitions: Iterable[tuple[bytes, int]]) -> bool:
    """Whether a member has had all of these since that epoch, or an earlier one."""
    for topic_id, number in partitions:
        given = progress.holds(topic_id, number)
        if given is None or epoch < given:
            return False
    return True


def _stale(member: Member) -> ErrorCode:
    return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH
