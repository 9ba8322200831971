"""The groups of one partition of __consumer_offsets, and their offsets."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

from ottla.coordinator.classic.generation import ClassicState
from ottla.coordinator.classic.group import JOIN, SESSION, SYNC, ClassicGroup
from ottla.coordinator.classic.join import Joiner, Joins, check_join
from ottla.coordinator.classic.rebalance import join_time_over, prepare, refused_sync, session_over, sync_time_over
from ottla.coordinator.classic.session import heartbeat, leave, left, sync
from ottla.coordinator.consumer.classic import ClassicMembers
from ottla.coordinator.consumer.group import CONSUMER_KEYS, ConsumerGroup
from ottla.coordinator.consumer.heartbeat import Heartbeats
from ottla.coordinator.consumer.membership import Membership
from ottla.coordinator.consumer.settings import ConsumerSettings
from ottla.coordinator.consumer.timers import JOIN as CONSUMER_JOIN
from ottla.coordinator.consumer.timers import REBALANCE, RESOLVE
from ottla.coordinator.consumer.timers import SESSION as CONSUMER_SESSION
from ottla.coordinator.consumer.timers import SYNC as CONSUMER_SYNC
from ottla.coordinator.group import Client, Group, GroupSettings
from ottla.coordinator.held import NOTHING_HELD, added_to, assigned_in, held_of, without_held
from ottla.coordinator.offsets.beginnings import begin_new_partitions
from ottla.coordinator.offsets.offsets import Committed, Offsets, PartitionKey
from ottla.coordinator.offsets.removal import EXPIRY, OffsetRemoval
from ottla.coordinator.operation import Operation, Reply, Undo, Work
from ottla.coordinator.topics_view import TopicsView
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.consumer_group_records import ConsumerGroupMetadataKey
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

OFFSET_KEYS = (OffsetCommitKey, LegacyOffsetCommitKey)
LOOKED_AT_ONCE = 100
"""How many groups and members one operation looks at where it concerns all of them."""


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

    @property
    def membership(self) -> Membership:
        """Made anew each time, as all that serves requests: a machine is in no cycle, and goes when it is let go of."""
        return Membership(self)

    @property
    def removal(self) -> OffsetRemoval:
        return OffsetRemoval(self)

    # Replay

    def replay(self, key: Message, value: Message | None, producer_id: int) -> Undo | None:
        if isinstance(key, OFFSET_KEYS):
            return self._replay_offset(key, value, producer_id)
        if isinstance(key, GroupMetadataKey):
            assert value is None or isinstance(value, GroupMetadataValue)
            self._replay_classic_group(key.group, value)
        elif type(key) in CONSUMER_KEYS:
            self._replay_consumer_group(key, value)
        return None  # records of other kinds are passed over

    def _replay_classic_group(self, group_id: str, value: GroupMetadataValue | None) -> None:
        group = self.groups.get(group_id)
        if value is None:
            if isinstance(group, ClassicGroup):
                del self.groups[group_id]
            return
        if not isinstance(group, ClassicGroup):
            group = self.groups[group_id] = ClassicGroup(group_id)
        group.replay(value)

    def _replay_consumer_group(self, key: Any, value: Message | None) -> None:
        """The group is made if need be, in the place of a classic one that only keeps offsets."""
        group_id = key.group_id
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            if value is None:
                return  # what is not there need not be made to have something taken away
            group = self.groups[group_id] = ConsumerGroup(group_id, self.consumer_settings, self.topics, self.offsets)
        if value is None and isinstance(key, ConsumerGroupMetadataKey):
            group.is_removed = True
            del self.groups[group_id]
            if self.offsets.of_group(group_id) or self.offsets.has_pending(group_id):
                self.groups[group_id] = ClassicGroup(group_id)
        else:
            group.replay(key, value)

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
        if is_new and self.removal.is_abandoned(self.groups[group_id]):
            del self.groups[group_id]

    def replay_marker(self, producer_id: int, is_commit: bool) -> None:
        self.offsets.end_transaction(producer_id, is_commit)

    # What members of classic groups ask

    def join(self, operation: Operation, reply: Reply, request: JoinGroupRequest, client: Client, version: int) -> None:
        joiner = Joiner(reply, request, client, version)
        group = self.groups.get(request.group_id)
        code = check_join(self.settings(), request)
        if code is not ErrorCode.NONE:
            joiner.refuse(operation, code, request.member_id)
        elif isinstance(group, ConsumerGroup) and ClassicMembers(self).join(operation, group, joiner):
            pass
        else:
            group = self.groups.get(request.group_id)
            assert group is None or isinstance(group, ClassicGroup)
            Joins(self).join(operation, group, joiner)

    def sync(self, operation: Operation, reply: Reply, request: SyncGroupRequest) -> None:
        group = self.groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            self._hold_back(group, request)
            sync(operation, group, reply, request, self.settings())
        elif isinstance(group, ConsumerGroup):
            ClassicMembers(self).sync(operation, group, reply, request)
        else:
            operation.answer(reply, refused_sync(ErrorCode.UNKNOWN_MEMBER_ID))

    def heartbeat(self, operation: Operation, reply: Reply, request: HeartbeatRequest) -> None:
        group = self.groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            if group.held is None or group.held:
                self._release(operation, group)
            heartbeat(operation, group, reply, request)
        elif isinstance(group, ConsumerGroup):
            ClassicMembers(self).heartbeat(operation, group, reply, request)
        else:
            operation.answer(reply, HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))

    def leave(self, operation: Operation, reply: Reply, group_id: str, leaving: Sequence[MemberIdentity]) -> None:
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            members = leave(operation, group, leaving, self.settings())
        elif isinstance(group, ConsumerGroup):
            members = ClassicMembers(self).leave(operation, group, leaving)
        else:
            members = [left(identity, ErrorCode.UNKNOWN_MEMBER_ID) for identity in leaving]
        operation.answer(reply, LeaveGroupResponse(error_code=ErrorCode.NONE, members=members))

    # Topics that grow in order

    def _hold_back(self, group: ClassicGroup, request: SyncGroupRequest) -> None:
        """Take out of the leader's assignment what the group may not read yet.

        One that comes again, or late, changes nothing: it does not count, and another was given out.
        """
        is_awaited = group.state is ClassicState.COMPLETING and group.generation == request.generation_id
        if not is_awaited or group.leader_id != request.member_id:
            return
        held = held_of(self.topics, group.topics, self.offsets.of_group(group.group_id))
        if held:
            protocol = group.protocol or ""
            for each in request.assignments:
                member = group.members.get(each.member_id)
                subscription = b"" if member is None else bytes(member.metadata(protocol))
                each.assignment = without_held(bytes(each.assignment), held, subscription)
        group.held = held

    def _release(self, operation: Operation, group: ClassicGroup) -> None:
        """Have a group assigned anew that may read more than it was given, or was given what it may not read yet."""
        if group.state is not ClassicState.STABLE:
            return
        held = held_of(self.topics, group.topics, self.offsets.of_group(group.group_id))
        known, is_early = group.held, False
        if known is None:
            added = added_to(self.topics, group.topics)
            given = assigned_in(member.assignment for member in group.members.values()) if added else NOTHING_HELD
            known, is_early = added - given, not given.isdisjoint(held)
        group.held = known
        if is_early or known - held:
            prepare(operation, group, self.settings())

    # What members of consumer groups ask

    def consumer_heartbeat(
        self, operation: Operation, reply: Reply, request: ConsumerGroupHeartbeatRequest, version: int, client: Client
    ) -> None:
        Heartbeats(self).heartbeat(operation, reply, request, version, client)

    # The world around

    def topics_changed(self, operation: Operation, names: set[str]) -> None:
        """Topics have come, gone or got more partitions: what was committed for those that are gone goes, too."""
        operation.go_on_with(self._after_topics_changed(names, begin_new_partitions(self, sorted(names))))

    def _after_topics_changed(self, names: set[str], beginnings: Work) -> Work:
        yield from beginnings
        have_come = any(name in self.topics.by_name for name in names)
        for some in self._some_groups():
            yield functools.partial(self._note_changed_topics, names, have_come, some)
        yield from self.removal.forget_topics(sorted(names))

    def _note_changed_topics(
        self, names: set[str], have_come: bool, some: dict[str, list[str]], _operation: Operation
    ) -> None:
        for group_id in some:
            group = self.groups.get(group_id)
            if isinstance(group, ConsumerGroup):
                group.subscriptions.note_changed_topics(names, have_come)
                group.target.held = None
            elif isinstance(group, ClassicGroup) and not names.isdisjoint(group.topics):
                group.held = None

    def _some_groups(self) -> Iterator[dict[str, list[str]]]:
        """The groups that are there now with their members, some at a time: a large one is in several."""
        some: dict[str, list[str]] = {}
        room = LOOKED_AT_ONCE
        for group_id, group in list(self.groups.items()):
            member_ids = group.member_ids()
            for start in range(0, len(member_ids) or 1, LOOKED_AT_ONCE):
                some[group_id] = member_ids[start : start + LOOKED_AT_ONCE]
                room -= 1 + len(some[group_id])
                if room <= 0:
                    yield some
                    some, room = {}, LOOKED_AT_ONCE
        yield some

    def loaded(self, operation: Operation) -> None:
        operation.go_on_with(self._after_loaded(begin_new_partitions(self, list(self.topics.by_name))))
        self.removal.watch_age(operation)

    def _after_loaded(self, beginnings: Work) -> Work:
        yield from beginnings
        for some in self._some_groups():
            yield functools.partial(self._set_timers, some)
        for some in self._some_groups():
            yield functools.partial(self._rebalance_too_large, list(some))

    def _set_timers(self, some: dict[str, list[str]], operation: Operation) -> None:
        for group_id, member_ids in some.items():
            group = self.groups.get(group_id)
            if group is not None:
                group.set_timers(operation, member_ids)

    def _rebalance_too_large(self, group_ids: list[str], operation: Operation) -> None:
        """The limit may be lower than it was: then not all may join again."""
        settings = self.settings()
        for group_id in group_ids:
            group = self.groups.get(group_id)
            is_settled = isinstance(group, ClassicGroup) and group.state is not ClassicState.PREPARING
            if is_settled and isinstance(group, ClassicGroup) and len(group.members) > settings.max_size:
                prepare(operation, group, settings)

    def expired(self, operation: Operation, timer: Hashable) -> None:
        """Timers are named by what they are for, then the group, then the rest."""
        assert isinstance(timer, tuple)
        kind, *details = timer
        _TIMERS[kind](self, operation, *details)

    def pending_replies(self) -> list[Reply]:
        return [reply for group in self.groups.values() for reply in group.waiting()]


def _session_over(machine: GroupMachine, operation: Operation, group_id: str, member_id: str) -> None:
    group = machine.groups.get(group_id)
    if isinstance(group, ClassicGroup):
        session_over(operation, group, member_id, machine.settings())


def _join_time_over(machine: GroupMachine, operation: Operation, group_id: str) -> None:
    group = machine.groups.get(group_id)
    if isinstance(group, ClassicGroup):
        join_time_over(operation, group, machine.settings())


def _sync_time_over(machine: GroupMachine, operation: Operation, group_id: str) -> None:
    group = machine.groups.get(group_id)
    if isinstance(group, ClassicGroup):
        sync_time_over(operation, group, machine.settings())


def _expire_member(machine: GroupMachine, operation: Operation, group_id: str, member_id: str) -> None:
    machine.membership.expire(operation, group_id, member_id)


def _expire_offsets(machine: GroupMachine, operation: Operation) -> None:
    machine.removal.expire(operation)


def _expire_rebalance(machine: GroupMachine, operation: Operation, group_id: str, member_id: str) -> None:
    machine.membership.expire_rebalance(operation, group_id, member_id)


def _resolve(machine: GroupMachine, operation: Operation, group_id: str) -> None:
    group = machine.groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        group.resolve(operation)


_TIMERS: dict[str, Callable[..., None]] = {
    SESSION: _session_over,
    JOIN: _join_time_over,
    SYNC: _sync_time_over,
    EXPIRY: _expire_offsets,
    CONSUMER_SESSION: _expire_member,
    CONSUMER_JOIN: _expire_member,
    CONSUMER_SYNC: _expire_member,
    REBALANCE: _expire_rebalance,
    RESOLVE: _resolve,
}
"""What to do when a timer is due, by its kind. Its group may be gone by now."""
