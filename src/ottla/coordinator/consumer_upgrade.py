"""A classic group becomes a consumer group, with all its members, when the first member of that protocol joins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.classic_group import CONSUMER_PROTOCOL, JOIN, SESSION, SYNC, ClassicGroup
from ottla.coordinator.classic_member import ClassicMember
from ottla.coordinator.classic_rebalance import answer_sync, refused_join
from ottla.coordinator.consumer_group import ConsumerGroup
from ottla.coordinator.consumer_member import ClassicSide, Held, Member, MemberState, Profile, Progress, partitions_of
from ottla.coordinator.consumer_records import (
    write_epoch,
    write_member,
    write_progress,
    write_target,
    write_target_epoch,
)
from ottla.coordinator.consumer_timers import start_session
from ottla.coordinator.consumer_topics import topics_hash
from ottla.coordinator.group_refusal import GroupRefusal
from ottla.coordinator.operation import Operation
from ottla.coordinator.topics_view import TopicsView
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_protocol import decode_assignment, decode_subscription
from ottla.wire.protocol_error import ProtocolError

if TYPE_CHECKING:
    from ottla.coordinator.group_machine import GroupMachine

NEVER_MS = 0
"""When the target was computed: a new one may be computed at once."""

_CUSTOM_ASSIGNOR = (
    "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default assignor "
    "before re-attempting the upgrade"
)


def check_upgrade(machine: GroupMachine, group: ClassicGroup, member_id: str) -> None:
    """Refuse to let a member of the consumer protocol into a classic group that has to stay one."""
    settings = machine.consumer_settings(group.group_id)
    if not settings.migration_policy.allows_upgrade:
        raise _refusal(group, "online upgrade is disabled")
    if group.protocol_type != CONSUMER_PROTOCOL:
        raise _refusal(group, "the group does not use the consumer embedded protocol")
    if len(group.members) > settings.max_size:
        raise _refusal(group, "the group size exceeds the consumer group maximum size")
    try:
        for member in group.members.values():
            decode_subscription(_metadata(group, member))
            if member.assignment and decode_assignment(member.assignment).user_data:
                raise _refusal(group, _CUSTOM_ASSIGNOR)
    except ProtocolError as error:
        raise _refusal(group, "the embedded consumer protocol is malformed") from error
    if len(group.members) >= settings.max_size and member_id not in group.members:
        message = f"The consumer group has reached its maximum capacity of {settings.max_size} members."
        raise GroupRefusal(ErrorCode.GROUP_MAX_SIZE_REACHED, message)


def _refusal(group: ClassicGroup, reason: str) -> GroupRefusal:
    return GroupRefusal(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}.",
    )


def _metadata(group: ClassicGroup, member: ClassicMember) -> bytes:
    """What a member told in the protocol they agreed on, or would first like to agree on."""
    return member.metadata(group.protocol) if group.protocol is not None else member.protocols[0][1]


def upgrade(machine: GroupMachine, operation: Operation, classic: ClassicGroup) -> ConsumerGroup:
    """Go on as a consumer group in the epoch that was the generation, everybody with what they have."""
    members = [_converted(machine.topics, classic, member) for member in classic.members.values()]
    _send_away(operation, classic)
    classic.write_tombstones(operation)
    group_id, epoch = classic.group_id, classic.generation
    for member in members:
        write_member(operation, group_id, member.member_id, member.profile)
    group = machine.groups[group_id]
    assert isinstance(group, ConsumerGroup)
    write_epoch(operation, group_id, epoch, topics_hash(machine.topics, group.topic_names))
    for member in members:
        write_target(operation, group_id, member.member_id, partitions_of(member.progress.assigned))
    write_target_epoch(operation, group_id, epoch, NEVER_MS)
    for member in members:
        write_progress(operation, group_id, member.member_id, member.progress)
        start_session(operation, group, member)
    return group


def _send_away(operation: Operation, classic: ClassicGroup) -> None:
    """Those who wait are to come again, and find the other group."""
    for member in classic.members.values():
        if member.join_reply is not None:
            code = ErrorCode.REBALANCE_IN_PROGRESS
            operation.answer(member.join_reply, refused_join(code, member.member_id))
            member.join_reply = None
        if member.sync_reply is not None:
            answer_sync(operation, classic, member, ErrorCode.REBALANCE_IN_PROGRESS)
    operation.cancel_timer((JOIN, classic.group_id))
    operation.cancel_timer((SYNC, classic.group_id))
    for member_id in (*classic.members, *classic.promised):
        operation.cancel_timer((SESSION, classic.group_id, member_id))


def _converted(topics: TopicsView, group: ClassicGroup, member: ClassicMember) -> Member:
    subscription = decode_subscription(_metadata(group, member))
    profile = Profile(
        instance_id=member.instance_id,
        rack_id=subscription.rack_id or None,
        client_id=member.client.client_id,
        client_host=member.client.client_host,
        topic_names=frozenset(subscription.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicSide(
            member.session_timeout_ms, tuple((name, bytes(metadata)) for name, metadata in member.protocols)
        ),
    )
    epoch = group.generation
    assigned = _assigned(topics, member.assignment, epoch)
    return Member(member.member_id, profile, Progress(epoch, epoch, MemberState.STABLE, assigned))


def _assigned(topics: TopicsView, assignment: bytes, epoch: int) -> Held:
    """What a member has of topics that still exist."""
    assigned: Held = {}
    for part in decode_assignment(assignment).assigned_partitions if assignment else ():
        topic = topics.by_name.get(part.topic)
        if topic is not None and part.partitions:
            assigned[topic.topic_id] = dict.fromkeys(part.partitions, epoch)
    return assigned
