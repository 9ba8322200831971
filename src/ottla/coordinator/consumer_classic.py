"""Members of the classic protocol in a consumer group: their joins and syncs, for as long as a group is mixed.

To them the group looks like one of their own, in which nobody leads: each is told its share when it asks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.coordinator.classic_group import CONSUMER_PROTOCOL
from ottla.coordinator.classic_join import FIRST_VERSION_WITH_PROMISED_IDS, Joiner
from ottla.coordinator.classic_rebalance import NOBODY, refused_sync
from ottla.coordinator.classic_session import left
from ottla.coordinator.consumer_admission import Admission, admit, check_room, find_member
from ottla.coordinator.consumer_assignment import encoded_assignment
from ottla.coordinator.consumer_downgrade import can_downgrade
from ottla.coordinator.consumer_epoch import assign_if_due
from ottla.coordinator.consumer_group import ConsumerGroup
from ottla.coordinator.consumer_leave import remove_members
from ottla.coordinator.consumer_member import ClassicSide, Member, MemberState, Profile
from ottla.coordinator.consumer_settings import MigrationPolicy
from ottla.coordinator.consumer_step import Step, take_step
from ottla.coordinator.consumer_timers import (
    JOIN,
    REBALANCE,
    SYNC,
    cancel_timers,
    start_join_timer,
    start_session,
    start_sync_timer,
)
from ottla.coordinator.group_refusal import GroupRefusal
from ottla.coordinator.operation import Operation, Reply
from ottla.coordinator.topics_view import TopicsView
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_protocol import ConsumerProtocolSubscription, decode_subscription
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupResponse
from ottla.wire.messages.leave_group import MemberIdentity, MemberResponse
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.uuids import uuid_text

if TYPE_CHECKING:
    from ottla.coordinator.group_machine import GroupMachine


def join(machine: GroupMachine, operation: Operation, group: ConsumerGroup, joiner: Joiner) -> bool:
    """Let a classic member in; False if the group has made way for a classic one, which is to be joined."""
    request = joiner.request
    if group.is_empty and not request.member_id:
        group.write_tombstones(operation)
        return False
    member_id = request.member_id or uuid_text(machine.make_uuid().bytes)
    try:
        _check_join(group, joiner, member_id)
        admission = _admission(group, joiner, member_id)
        subscription = _subscription(joiner)
    except GroupRefusal as refusal:
        is_promise = refusal.code is ErrorCode.MEMBER_ID_REQUIRED
        joiner.refuse(operation, refusal.code, member_id if is_promise else NOBODY)
        return True
    replaced = admission.member if admission.replaced_by is not None else None
    if replaced is not None and not replaced.is_classic and _is_last_of_its_protocol(machine, group, replaced):
        remove_members(machine, operation, group, [replaced])
        if machine.groups.get(group.group_id) is group:  # it was the only one
            group.write_tombstones(operation)
        return False
    member = admit(machine, operation, group.group_id, admission)
    step = Step(_merged(member.profile, joiner, subscription), _owned(machine.topics, subscription))
    member = take_step(machine, operation, group.group_id, member, step)
    cancel_timers(operation, group, member.member_id, JOIN, REBALANCE)
    start_session(operation, group, member)
    start_sync_timer(operation, group, member)
    operation.answer(joiner.reply, _joined(member))
    return True


def _check_join(group: ConsumerGroup, joiner: Joiner, member_id: str) -> None:
    """The classic members of a group must have a protocol in common, in case they are left alone."""
    request = joiner.request
    if group.is_empty:
        raise GroupRefusal(ErrorCode.UNKNOWN_MEMBER_ID)
    if group.settings.migration_policy is MigrationPolicy.DISABLED:
        raise GroupRefusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    check_room(group, member_id)
    is_understood = group.counts.is_offered_by_all(name for name, _ in joiner.protocols)
    if request.protocol_type != CONSUMER_PROTOCOL or not is_understood:
        raise GroupRefusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    is_nobody = not request.member_id and request.group_instance_id is None
    if is_nobody and joiner.version >= FIRST_VERSION_WITH_PROMISED_IDS:
        raise GroupRefusal(ErrorCode.MEMBER_ID_REQUIRED)


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
        return decode_subscription(joiner.protocols[0][1])
    except ProtocolError as error:
        raise GroupRefusal(ErrorCode.UNKNOWN_SERVER_ERROR) from error


def _is_last_of_its_protocol(machine: GroupMachine, group: ConsumerGroup, member: Member) -> bool:
    return len(group.members) == 1 or can_downgrade(machine, group, [member])


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


# Between joins


def sync(
    machine: GroupMachine, operation: Operation, group: ConsumerGroup, reply: Reply, request: SyncGroupRequest
) -> None:
    try:
        member = _syncing(operation, group, request)
    except GroupRefusal as refusal:
        operation.answer(reply, refused_sync(refusal.code))
        return
    cancel_timers(operation, group, member.member_id, SYNC)
    start_session(operation, group, member)
    classic = member.profile.classic
    assert classic is not None
    response = SyncGroupResponse(
        error_code=ErrorCode.NONE,
        protocol_type=CONSUMER_PROTOCOL,
        protocol_name=_protocol_name(member),
        assignment=encoded_assignment(machine.topics, classic, member.progress.assigned),
    )
    operation.answer(reply, response)


def _syncing(operation: Operation, group: ConsumerGroup, request: SyncGroupRequest) -> Member:
    member = _classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
    names = None, _protocol_name(member)
    if request.protocol_type not in (None, CONSUMER_PROTOCOL) or request.protocol_name not in names:
        raise GroupRefusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if member.progress.epoch < group.assignment_epoch and member.progress.state is not MemberState.UNREVOKED:
        start_join_timer(operation, group, member)
        raise GroupRefusal(ErrorCode.REBALANCE_IN_PROGRESS)
    return member


def heartbeat(
    machine: GroupMachine, operation: Operation, group: ConsumerGroup, reply: Reply, request: HeartbeatRequest
) -> None:
    code = ErrorCode.NONE
    try:
        member = _classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
        start_session(operation, group, member)
        if group.epoch > group.assignment_epoch and group.is_all_classic:
            assign_if_due(machine, operation, group)  # there is nobody else whose heartbeats would
        if _has_to_join(group, member):
            start_join_timer(operation, group, member)
            code = ErrorCode.REBALANCE_IN_PROGRESS
    except GroupRefusal as refusal:
        code = refusal.code
    operation.answer(reply, HeartbeatResponse(error_code=code))


def _classic_member(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> Member:
    member = find_member(group, member_id, instance_id)
    if not member.is_classic:
        raise GroupRefusal(ErrorCode.UNKNOWN_MEMBER_ID)
    if generation != member.progress.epoch:
        raise GroupRefusal(ErrorCode.ILLEGAL_GENERATION)
    return member


def _has_to_join(group: ConsumerGroup, member: Member) -> bool:
    """Whether joining again would bring a member on."""
    progress = member.progress
    if progress.epoch < group.assignment_epoch or progress.state is MemberState.UNREVOKED:
        return True
    return progress.state is MemberState.UNRELEASED and all(
        group.is_free_for(member.member_id, topic_id, number)
        for topic_id, numbers in group.target_of(member.member_id).items()
        for number in numbers.difference(progress.assigned.get(topic_id, ()))
    )


def leave(
    machine: GroupMachine, operation: Operation, group: ConsumerGroup, leaving: Sequence[MemberIdentity]
) -> list[MemberResponse]:
    """LeaveGroup, for members of both protocols: one epoch for all who leave."""
    members: dict[str, Member] = {}
    responses = []
    for identity in leaving:
        code = ErrorCode.NONE
        try:
            member = _leaving(group, identity)
            members[member.member_id] = member
        except GroupRefusal as refusal:
            code = refusal.code
        responses.append(left(identity, code))
    remove_members(machine, operation, group, list(members.values()))
    return responses


def _leaving(group: ConsumerGroup, identity: MemberIdentity) -> Member:
    """An administrator names an instance alone."""
    member_id, instance_id = identity.member_id, identity.group_instance_id
    if not member_id and instance_id is not None:
        member_id = group.static_members.get(instance_id, "")
    return find_member(group, member_id, instance_id)
