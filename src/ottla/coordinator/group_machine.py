"""The groups of one partition of __consumer_offsets, and their offsets."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, TypeAlias

from ottla.coordinator import consumer_classic
from ottla.coordinator.classic_group import JOIN, SESSION, SYNC, ClassicGroup
from ottla.coordinator.classic_join import Joiner, check_join, join
from ottla.coordinator.classic_rebalance import join_time_over, prepare, refused_sync, session_over, sync_time_over
from ottla.coordinator.classic_session import heartbeat, leave, left, sync
from ottla.coordinator.consumer_group import ConsumerGroup
from ottla.coordinator.consumer_leave import CONSUMER_TIMERS
from ottla.coordinator.consumer_replay import CONSUMER_REPLAYS
from ottla.coordinator.consumer_settings import ConsumerSettings
from ottla.coordinator.consumer_topics import note_changed_topics
from ottla.coordinator.group import Client, Group
from ottla.coordinator.group_settings import GroupSettings
from ottla.coordinator.offset_removal import EXPIRY, expire, forget_topics, is_abandoned, watch_age
from ottla.coordinator.offsets import Committed, Offsets, PartitionKey
from ottla.coordinator.operation import Operation, Reply, Undo, Work
from ottla.coordinator.topics_view import TopicsView
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.group_records import GROUP_RECORDS
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupRequest
from ottla.wire.messages.leave_group import LeaveGroupResponse, MemberIdentity
from ottla.wire.messages.offset_and_group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.wire.messages.sync_group import SyncGroupRequest
from ottla.wire.schema import Message

LOOKED_AT_ONCE = 100
"""How many groups and members one operation looks at where it concerns all of them."""

Replay: TypeAlias = Callable[["GroupMachine", Any, Any], None]


class GroupMachine:
    record_types = GROUP_RECORDS

    def __init__(
        self,
        topics: TopicsView,
        settings: Callable[[], GroupSettings],
        make_uuid: Callable[[], uuid.UUID] = uuid.uuid4,
        consumer_settings: Callable[[str], ConsumerSettings] = lambda _group_id: ConsumerSettings(),
    ) -> None:
        """`consumer_settings`: those of a consumer group, by its id."""
        self.topics = topics
        self.settings = settings
        self.make_uuid = make_uuid
        self.consumer_settings = consumer_settings
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets()

    # Replay

    def replay(self, key: Message, value: Message | None, producer_id: int) -> Undo | None:
        if isinstance(key, OffsetCommitKey | LegacyOffsetCommitKey):
            return self._replay_offset(key, value, producer_id)
        replay = _REPLAYS.get(type(key))
        if replay is not None:
            replay(self, key, value)
        return None

    def _replay_offset(
        self, key: OffsetCommitKey | LegacyOffsetCommitKey, value: Message | None, producer_id: int
    ) -> Undo | None:
        if isinstance(value, LegacyOffsetCommitValue):
            value = OffsetCommitValue(
                offset=value.offset, metadata=value.metadata, commit_timestamp=value.commit_timestamp
            )
        partition = key.topic, key.partition
        if value is None:
            self.offsets.remove(key.group, partition)
            return None
        assert isinstance(value, OffsetCommitValue)
        is_new = key.group not in self.groups
        if is_new:  # one that only keeps offsets here
            self.groups[key.group] = ClassicGroup(key.group)
        before = self.offsets.put(key.group, partition, value, producer_id)
        return functools.partial(self._take_offset_back, key.group, partition, producer_id, before, is_new)

    def _take_offset_back(
        self, group_id: str, partition: PartitionKey, producer_id: int, before: Committed | None, is_new: bool
    ) -> None:
        """Undo a commit, and with it the group that came into being by it, unless somebody has joined that."""
        self.offsets.take_back(group_id, partition, producer_id, before)
        if is_new and is_abandoned(self, self.groups[group_id]):
            del self.groups[group_id]

    def replay_marker(self, producer_id: int, is_commit: bool) -> None:
        self.offsets.end_transaction(producer_id, is_commit)

    # What members of classic groups ask

    def join(self, operation: Operation, reply: Reply, request: JoinGroupRequest, client: Client, version: int) -> None:
        joiner = Joiner(reply, request, client, version)
        group = self.groups.get(request.group_id)
        code = check_join(self, request)
        if code is not ErrorCode.NONE:
            joiner.refuse(operation, code, request.member_id)
        elif isinstance(group, ConsumerGroup) and consumer_classic.join(self, operation, group, joiner):
            pass
        else:
            group = self.groups.get(request.group_id)
            assert group is None or isinstance(group, ClassicGroup)
            join(self, operation, group, joiner)

    def sync(self, operation: Operation, reply: Reply, request: SyncGroupRequest) -> None:
        group = self.groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            sync(operation, group, reply, request, self.settings())
        elif isinstance(group, ConsumerGroup):
            consumer_classic.sync(self, operation, group, reply, request)
        else:
            operation.answer(reply, refused_sync(ErrorCode.UNKNOWN_MEMBER_ID))

    def heartbeat(self, operation: Operation, reply: Reply, request: HeartbeatRequest) -> None:
        group = self.groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            heartbeat(operation, group, reply, request)
        elif isinstance(group, ConsumerGroup):
            consumer_classic.heartbeat(self, operation, group, reply, request)
        else:
            operation.answer(reply, HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))

    def leave(self, operation: Operation, reply: Reply, group_id: str, leaving: Sequence[MemberIdentity]) -> None:
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            members = leave(operation, group, leaving, self.settings())
        elif isinstance(group, ConsumerGroup):
            members = consumer_classic.leave(self, operation, group, leaving)
        else:
            members = [left(identity, ErrorCode.UNKNOWN_MEMBER_ID) for identity in leaving]
        operation.answer(reply, LeaveGroupResponse(error_code=ErrorCode.NONE, members=members))

    # The world around

    def topics_changed(self, operation: Operation, names: set[str]) -> None:
        """Topics have come, gone or got more partitions: what was committed for those that are gone goes, too."""
        operation.go_on_with(self._after_topics_changed(names))

    def _after_topics_changed(self, names: set[str]) -> Work:
        for some in self._some_groups():
            yield lambda _operation, some=some: note_changed_topics(self, names, some)  # type: ignore[misc]
        yield from forget_topics(self, sorted(names))

    def _some_groups(self) -> Iterator[list[str]]:
        """The groups that are there now, some at a time: fewer where they have many members."""
        some: list[str] = []
        size = 0
        for group_id, group in list(self.groups.items()):
            some.append(group_id)
            size += 1 + group.member_count
            if size >= LOOKED_AT_ONCE:
                yield some
                some, size = [], 0
        yield some

    def loaded(self, operation: Operation) -> None:
        operation.go_on_with(self._after_loaded())
        watch_age(self, operation)

    def _after_loaded(self) -> Work:
        for some in self._some_groups():
            yield lambda operation, some=some: self._set_timers(operation, some)  # type: ignore[misc]

    def _set_timers(self, operation: Operation, group_ids: list[str]) -> None:
        settings = self.settings()
        for group_id in group_ids:
            group = self.groups.get(group_id)
            if group is not None:
                group.set_timers(operation)
            if isinstance(group, ClassicGroup) and len(group.members) > settings.max_size:
                prepare(operation, group, settings)  # the limit is lower than it was: not all may join again

    def expired(self, operation: Operation, timer: Hashable) -> None:
        """Timers are named by what they are for, then the group, then the rest."""
        assert isinstance(timer, tuple)
        kind, *details = timer
        _TIMERS[kind](self, operation, *details)

    def resigned(self) -> list[Reply]:
        return [reply for group in self.groups.values() for reply in group.waiting()]


def _replay_classic_group(machine: GroupMachine, key: GroupMetadataKey, value: GroupMetadataValue | None) -> None:
    group = machine.groups.get(key.group)
    if value is None:
        if isinstance(group, ClassicGroup):
            del machine.groups[key.group]
        return
    if not isinstance(group, ClassicGroup):
        group = machine.groups[key.group] = ClassicGroup(key.group)
    group.replay(value)


_REPLAYS: dict[type[Message], Replay] = {
    GroupMetadataKey: _replay_classic_group,
    **CONSUMER_REPLAYS,
}
"""What takes in a record, by its key; other records are passed over."""


def _classic_timer(
    due: Callable[[Operation, ClassicGroup, GroupSettings], None],
) -> Callable[[GroupMachine, Operation, str], None]:
    """For a timer of a classic group, which may be gone by now."""

    def expired(machine: GroupMachine, operation: Operation, group_id: str) -> None:
        group = machine.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            due(operation, group, machine.settings())

    return expired


def _session_over(machine: GroupMachine, operation: Operation, group_id: str, member_id: str) -> None:
    group = machine.groups.get(group_id)
    if isinstance(group, ClassicGroup):
        session_over(operation, group, member_id, machine.settings())


_TIMERS: dict[str, Callable[..., None]] = {
    SESSION: _session_over,
    JOIN: _classic_timer(join_time_over),
    SYNC: _classic_timer(sync_time_over),
    EXPIRY: expire,
    **CONSUMER_TIMERS,
}
"""What to do when a timer is due, by its kind."""
