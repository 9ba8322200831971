"""A group of the consumer protocol: members that each reconcile on their own with what the group is to have.

Everything here but marks and timers lasts, and changes only by a replayed record.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from ottla.coordinator.consumer.member import Member, Profile, Progress, profile_of, progress_of
from ottla.coordinator.consumer.records import write_epoch, write_group_tombstones
from ottla.coordinator.consumer.settings import ConsumerSettings
from ottla.coordinator.consumer.subscriptions import Resolved, Subscriptions
from ottla.coordinator.consumer.target import HeldPartitions, TargetAssignment
from ottla.coordinator.consumer.timers import RESOLVE, MemberTimers
from ottla.coordinator.group import Committer, Group, OffsetToCommit
from ottla.coordinator.held import HeldBack, added_to, held_of
from ottla.coordinator.offsets.offsets import Offsets
from ottla.coordinator.operation import Operation, Reply
from ottla.coordinator.topics_view import TopicsView
from ottla.wire.errors import ErrorCode
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
from ottla.wire.schema import Message

FIRST_EPOCH = 1
FIRST_COMMIT_WITH_EPOCHS = 9
"""The version of OffsetCommit in which a member can tell its epoch."""


class ConsumerState(enum.Enum):
    EMPTY = "Empty"
    ASSIGNING = "Assigning"  # somebody is to compute who is to have what
    RECONCILING = "Reconciling"  # members are on their way to that
    STABLE = "Stable"


class ConsumerGroup(Group):
    type_name = "consumer"

    def __init__(
        self, group_id: str, settings: Callable[[str], ConsumerSettings], topics: TopicsView, offsets: Offsets
    ) -> None:
        super().__init__(group_id)
        self._settings = settings
        self._topics = topics
        self._offsets = offsets
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}  # member ids by instance id
        self.subscriptions = Subscriptions(group_id, settings, topics)
        self.target = TargetAssignment(group_id, settings)
        self.timers = MemberTimers(group_id, settings)
        self.is_removed = False  # from its machine
        self._has_found_more = False  # or less, by its regular expressions, while they are resolved
        self._owners: dict[tuple[bytes, int], str] = {}  # who may be at work on a partition

    @property
    def settings(self) -> ConsumerSettings:
        return self._settings(self.group_id)

    # What is asked of any group

    @property
    def state(self) -> ConsumerState:
        if not self.members:
            return ConsumerState.EMPTY
        if self.epoch > self.target.epoch:
            return ConsumerState.ASSIGNING
        epoch = self.target.epoch
        if all(member.progress.is_reconciled(epoch) for member in self.members.values()):
            return ConsumerState.STABLE
        return ConsumerState.RECONCILING

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

    def check_commit(self, committer: Committer, offsets: Sequence[OffsetToCommit]) -> ErrorCode:
        member_id, instance_id, epoch, version, is_transactional = committer
        if epoch < 0 and (not self.members or (is_transactional and not member_id and instance_id is None)):
            return ErrorCode.NONE
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not is_transactional and not member.is_classic and version < FIRST_COMMIT_WITH_EPOCHS:
            return ErrorCode.UNSUPPORTED_VERSION
        progress = member.progress
        if epoch == progress.epoch or (epoch < progress.epoch and _were_given(progress, epoch, offsets)):
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
        return topic in self.subscriptions.topic_names

    def offset_age_from_ms(self, commit_timestamp_ms: int) -> int | None:
        return commit_timestamp_ms

    def write_tombstones(self, operation: Operation) -> None:
        write_group_tombstones(operation, self)

    def member_ids(self) -> list[str]:
        return list(self.members)

    def set_timers(self, operation: Operation, member_ids: Iterable[str]) -> None:
        for member_id in member_ids:
            member = self.members.get(member_id)
            if member is not None:
                self.timers.start_loaded(operation, member)

    def waiting(self) -> list[Reply]:
        return []  # every request is answered at once

    # Epochs

    def bump_if_changed(self, operation: Operation, *, is_due: bool) -> None:
        """Begin another epoch if one is due, or if the topics of the group are not what they were."""
        metadata_hash = self.subscriptions.topics_hash()
        self.subscriptions.are_topics_changed = False
        if is_due or metadata_hash != self.metadata_hash:
            write_epoch(operation, self.group_id, self.epoch + 1, metadata_hash)

    def assign_if_due(self, operation: Operation) -> None:
        """Compute a target for the group's epoch if it has none."""
        if self.target.is_due(self.epoch, operation.now_ms):
            self.target.held = self._held_back()
            self.target.assign(operation, self.epoch, self.members, self.subscriptions, lambda: not self.is_removed)

    # Topics that grow in order

    def _held_back(self) -> HeldPartitions:
        """The partitions that the group may not read yet."""
        offsets = self._offsets.of_group(self.group_id)
        return self._by_id(held_of(self._topics, self.subscriptions.topic_names, offsets))

    def _by_id(self, partitions: HeldBack) -> HeldPartitions:
        by_name = self._topics.by_name
        return frozenset((by_name[name].topic_id, index) for name, index in partitions)

    def may_read_more(self) -> bool:
        """Whether the group may read partitions by now that it was not given."""
        known = self.target.held
        if known is not None and not known:
            return False
        held = self._held_back()
        if known is None:
            added = self._by_id(added_to(self._topics, self.subscriptions.topic_names))
            known = added - self.target.partitions() if added else frozenset()
            self.target.held = known
        return bool(known - held)

    def resolve_if_due(self, operation: Operation) -> None:
        """Have the group's regular expressions resolved if that is worth it."""
        if self.subscriptions.is_resolving_due(operation.now_ms):
            self.subscriptions.is_resolving = True
            operation.set_timer((RESOLVE, self.group_id), 0)

    def resolve(self, operation: Operation) -> None:
        if self.subscriptions.is_resolving:
            operation.go_on_with(self.subscriptions.resolving(self._found, self._resolved))

    def _found(self, operation: Operation, regex: str, topics: frozenset[str]) -> None:
        if not self.is_removed:
            self._has_found_more |= self.subscriptions.keep_resolved(operation, regex, topics)

    def _resolved(self, operation: Operation) -> None:
        self.subscriptions.is_resolving = False
        is_due, self._has_found_more = self._has_found_more, False
        if not self.is_removed:
            self.bump_if_changed(operation, is_due=is_due)

    # Members

    def static_member(self, instance_id: str) -> Member | None:
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    @property
    def is_all_classic(self) -> bool:
        return self.subscriptions.counts.classic == len(self.members)

    def target_of(self, member_id: str) -> Mapping[bytes, frozenset[int]]:
        return self.target.of(member_id)

    def is_free_for(self, member_id: str, topic_id: bytes, number: int) -> bool:
        """Whether nobody else is at work on a partition."""
        return self._owners.get((topic_id, number), member_id) == member_id

    # Replay

    def replay(self, key: Message, value: Message | None) -> None:
        """Take in a record of this group; without a value it takes away."""
        self._replays[type(key)](self, key, value)

    def _replay_epoch(self, _key: ConsumerGroupMetadataKey, value: ConsumerGroupMetadataValue | None) -> None:
        if value is not None:
            self.epoch, self.metadata_hash = value.epoch, value.metadata_hash

    def _replay_member(
        self, key: ConsumerGroupMemberMetadataKey, value: ConsumerGroupMemberMetadataValue | None
    ) -> None:
        member_id, profile = key.member_id, None if value is None else profile_of(value)
        member = self.members.get(member_id)
        before = Profile() if member is None else member.profile
        if profile is None:
            if member is not None:
                self._disown(member)
                del self.members[member_id]
        else:
            self.members[member_id] = (member or Member(member_id))._replace(profile=profile)
        self._replace_instance(member_id, before.instance_id, None if profile is None else profile.instance_id)
        self.subscriptions.replay_profile(before, profile or Profile())

    def _replace_instance(self, member_id: str, before: str | None, after: str | None) -> None:
        if before is not None and self.static_members.get(before) == member_id:
            del self.static_members[before]
        if after is not None:
            self.static_members[after] = member_id

    def _replay_progress(
        self, key: ConsumerGroupCurrentMemberAssignmentKey, value: ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> None:
        member_id, progress = key.member_id, None if value is None else progress_of(value)
        member = self.members.get(member_id)
        if member is None and progress is None:
            return
        before = Progress() if member is None else member.progress
        member = self.members[member_id] = (member or Member(member_id))._replace(progress=progress or Progress())
        for partition in before.partitions(unlike=member.progress):
            if self._owners.get(partition) == member_id:
                del self._owners[partition]
        for partition in member.progress.partitions(unlike=before):
            self._owners[partition] = member_id

    def _disown(self, member: Member) -> None:
        for partition in member.progress.partitions():
            if self._owners.get(partition) == member.member_id:
                del self._owners[partition]

    def _replay_target(
        self, key: ConsumerGroupTargetAssignmentMemberKey, value: ConsumerGroupTargetAssignmentMemberValue | None
    ) -> None:
        partitions = None
        if value is not None:
            partitions = {topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions}
        self.target.replay(key.member_id, partitions)

    def _replay_target_epoch(
        self,
        _key: ConsumerGroupTargetAssignmentMetadataKey,
        value: ConsumerGroupTargetAssignmentMetadataValue | None,
    ) -> None:
        if value is None:
            self.target.replay_epoch(0, 0)
        else:
            self.target.replay_epoch(value.assignment_epoch, value.assignment_timestamp)

    def _replay_regex(
        self, key: ConsumerGroupRegularExpressionKey, value: ConsumerGroupRegularExpressionValue | None
    ) -> None:
        resolved = None if value is None else Resolved(frozenset(value.topics), value.timestamp)
        self.subscriptions.replay_regex(key.regular_expression, resolved)

    _replays: ClassVar[dict[type[Message], Callable[[Any, Any, Any], None]]] = {
        ConsumerGroupMetadataKey: _replay_epoch,
        ConsumerGroupMemberMetadataKey: _replay_member,
        ConsumerGroupTargetAssignmentMetadataKey: _replay_target_epoch,
        ConsumerGroupTargetAssignmentMemberKey: _replay_target,
        ConsumerGroupCurrentMemberAssignmentKey: _replay_progress,
        ConsumerGroupRegularExpressionKey: _replay_regex,
    }


CONSUMER_KEYS = frozenset(ConsumerGroup._replays)
"""The keys of a consumer group's records."""


def _were_given(progress: Progress, epoch: int, offsets: Sequence[OffsetToCommit]) -> bool:
    """Whether a member has had the partitions of all of these since that epoch, or an earlier one."""
    for offset in offsets:
        given = progress.holds(offset.topic_id, offset.partition)
        if given is None or epoch < given:
            return False
    return True


def _stale(member: Member) -> ErrorCode:
    return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH
