"""Members of the classic protocol in a consumer group: their joins and syncs, for as long as a group is mixed.

To them the group looks like one of their own, in which nobody leads: each is told its share when it asks.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.coordinator.classic.generation import CONSUMER_PROTOCOL
from ottla.coordinator.classic.join import FIRST_VERSION_WITH_REQUIRED_IDS, Joiner
from ottla.coordinator.classic.rebalance import NOBODY, refused_sync
from ottla.coordinator.classic.session import left
from ottla.coordinator.consumer.group import ConsumerGroup
from ottla.coordinator.consumer.member import ClassicSide, Member, MemberState, Profile
from ottla.coordinator.consumer.membership import Admission, Membership, Step, check_room, find_member
from ottla.coordinator.consumer.migration import Migration, encoded_assignment
from ottla.coordinator.consumer.settings import MigrationPolicy
from ottla.coordinator.consumer.timers import JOIN, REBALANCE, SYNC
from ottla.coordinator.operation import Operation, Reply
from ottla.coordinator.told import told_subscription
from ottla.coordinator.topics_view import TopicsView
from ottla.wire.errors import ApiError, ErrorCode, ProtocolError
from ottla.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupResponse
from ottla.wire.messages.leave_group import MemberIdentity, MemberResponse
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.wire.uuids import uuid_text

if TYPE_CHECKING:
    from ottla.coordinator.group_machine import GroupMachine


class ClassicMembers:
    """Serves the requests of the classic protocol in consumer groups."""

    def __init__(self, machine: GroupMachine) -> None:
        self._machine = machine
        self._membership = Membership(machine)
        self._migration = Migration(machine)

    def join(self, operation: Operation, group: ConsumerGroup, joiner: Joiner) -> bool:
        """Let a classic member in; False if the group has made way for a classic one, which is to be joined."""
        request = joiner.request
        if group.is_empty and not request.member_id:
            group.write_tombstones(operation)
            return False
        member_id = request.member_id or uuid_text(self._machine.make_uuid().bytes)
        try:
            _check_join(group, joiner, member_id)
            admission = _admission(group, joiner, member_id)
            subscription = _subscription(joiner)
        except ApiError as refusal:
            is_pending = refusal.code is ErrorCode.MEMBER_ID_REQUIRED
            joiner.refuse(operation, refusal.code, member_id if is_pending else NOBODY)
            return True
        replaced = admission.member if admission.replaced_by is not None else None
        if replaced is not None and not replaced.is_classic and self._is_last_of_its_protocol(group, replaced):
            self._membership.remove(operation, group, [replaced])
            if self._machine.groups.get(group.group_id) is group:  # it was the only one
                group.write_tombstones(operation)
            return False
        member = self._membership.admit(operation, group.group_id, admission)
        owned = functools.partial(_owned, self._machine.topics, subscription)
        step = Step(_merged(member.profile, joiner, subscription), owned)
        member = self._membership.take_step(operation, group.group_id, member, step)
        group.timers.cancel(operation, member.member_id, JOIN, REBALANCE)
        group.timers.start_session(operation, member)
        group.timers.start_sync(operation, member)
        operation.answer(joiner.reply, _joined(member))
        return True

    def sync(self, operation: Operation, group: ConsumerGroup, reply: Reply, request: SyncGroupRequest) -> None:
        try:
            member = _syncing(operation, group, request)
        except ApiError as refusal:
            operation.answer(reply, refused_sync(refusal.code))
            return
        group.timers.cancel(operation, member.member_id, SYNC)
        group.timers.start_session(operation, member)
        classic = member.profile.classic
        assert classic is not None
        response = SyncGroupResponse(
            error_code=ErrorCode.NONE,
            protocol_type=CONSUMER_PROTOCOL,
            protocol_name=_protocol_name(member),
            assignment=encoded_assignment(self._machine.topics, classic, member.progress.assigned),
        )
        operation.answer(reply, response)

    def heartbeat(self, operation: Operation, group: ConsumerGroup, reply: Reply, request: HeartbeatRequest) -> None:
        code = ErrorCode.NONE
        try:
            member = _classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
            group.timers.start_session(operation, member)
            if group.epoch > group.target.epoch and group.is_all_classic:
                group.assign_if_due(operation)  # there is nobody else whose heartbeats would
            if _has_to_join(group, member):
                group.timers.start_join(operation, member)
                code = ErrorCode.REBALANCE_IN_PROGRESS
        except ApiError as refusal:
            code = refusal.code
        operation.answer(reply, HeartbeatResponse(error_code=code))

    def leave(
        self, operation: Operation, group: ConsumerGroup, leaving: Sequence[MemberIdentity]
    ) -> list[MemberResponse]:
        """LeaveGroup, for members of both protocols: one epoch for all who leave."""
        members: dict[str, Member] = {}
        responses = []
        for identity in leaving:
            code = ErrorCode.NONE
            try:
                member = _leaving(group, identity)
                members[member.member_id] = member
            except ApiError as refusal:
                code = refusal.code
            responses.append(left(identity, code))
        self._membership.remove(operation, group, list(members.values()))
        return responses

    def _is_last_of_its_protocol(self, group: ConsumerGroup, member: Member) -> bool:
        return len(group.members) == 1 or self._migration.can_downgrade(group, [member])


def _check_join(group: ConsumerGroup, joiner: Joiner, member_id: str) -> None:
    """The classic members of a group must have a protocol in common, in case they are left alone."""
    request = joiner.request
    if group.is_empty:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
    if group.settings.migration_policy is MigrationPolicy.DISABLED:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    check_room(group, member_id)
    is_understood = group.subscriptions.counts.is_offered_by_all(name for name, _ in joiner.protocols)
    if request.protocol_type != CONSUMER_PROTOCOL or not is_understood:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    is_nobody = not request.member_id and request.group_instance_id is None
    if is_nobody and joiner.version >= FIRST_VERSION_WITH_REQUIRED_IDS:
        raise ApiError(ErrorCode.MEMBER_ID_REQUIRED)


def _admission(group: ConsumerGroup, joiner: Joiner, member_id: str) -> Admission:
    instance_id = joiner.request.group_instance_id
    if instance_id is None:
        return Admission(group.members.get(member_id) or Member(member_id))
    if joiner.request.member_id:
        return Admission(find_member(group, member_id, instance_id))
    owner = group.static_member(instance_id)
    return Admission(Member(member_id)) if owner is None else Admission(owner, replaced_by=member_id)


def _subscription(joiner: Joiner) -> ConsumerProtocolSubscription:
    try:
        return told_subscription(joiner.protocols[0][1])
    except ProtocolError as error:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR) from error


def _merged(profile: Profile, joiner: Joiner, subscription: ConsumerProtocolSubscription) -> Profile:
    request = joiner.request
    protocols = tuple((name, bytes(metadata)) for name, metadata in joiner.protocols)
    return Profile(
        profile.instance_id if request.group_instance_id is None else request.group_instance_id,
        subscription.rack_id or profile.rack_id,
        joiner.client.client_id,
        joiner.client.client_host,
        frozenset(subscription.topics),
        "",
        request.rebalance_timeout_ms,
        profile.server_assignor,
        ClassicSide(request.session_timeout_ms, protocols),
    )


def _owned(topics: TopicsView, subscription: ConsumerProtocolSubscription) -> Mapping[bytes, frozenset[int]]:
    """What it works on; one that does not say lets go of everything before it joins."""
    by_name = topics.by_name
    return {
        by_name[part.topic].topic_id: frozenset(part.partitions)
        for part in subscription.owned_partitions
        if part.topic in by_name
    }


def _joined(member: Member) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=ErrorCode.NONE,
        generation_id=member.progress.epoch,
        protocol_type=CONSUMER_PROTOCOL,
        protocol_name=_protocol_name(member),
        leader=NOBODY,
        member_id=member.member_id,
        members=[],
    )


def _protocol_name(member: Member) -> str:
    """The protocol that a classic member works by here: the one it likes best."""
    assert member.profile.classic is not None
    return member.profile.classic.protocols[0][0]


def _syncing(operation: Operation, group: ConsumerGroup, request: SyncGroupRequest) -> Member:
    member = _classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
    names = None, _protocol_name(member)
    if request.protocol_type not in (None, CONSUMER_PROTOCOL) or request.protocol_name not in names:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if member.progress.epoch < group.target.epoch and member.progress.state is not MemberState.UNREVOKED:
        group.timers.start_join(operation, member)
        raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
    return member


def _classic_member(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> Member:
    member = find_member(group, member_id, instance_id)
    if not member.is_classic:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
    if generation != member.progress.epoch:
        raise ApiError(ErrorCode.ILLEGAL_GENERATION)
    return member


def _has_to_join(group: ConsumerGroup, member: Member) -> bool:
    """Whether joining again would bring a member on."""
    progress = member.progress
    if progress.epoch < group.target.epoch or progress.state is MemberState.UNREVOKED:
        return True
    return progress.state is MemberState.UNRELEASED and all(
        group.is_free_for(member.member_id, topic_id, number)
        for topic_id, numbers in group.target_of(member.member_id).items()
        for number in numbers.difference(progress.assigned.get(topic_id, ()))
    )


def _leaving(group: ConsumerGroup, identity: MemberIdentity) -> Member:
    """An administrator names an instance alone."""
    member_id, instance_id = identity.member_id, identity.group_instance_id
    if not member_id and instance_id is not None:
        member_id = group.static_members.get(instance_id, "")
    return find_member(group, member_id, instance_id)
