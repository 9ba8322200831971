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
from ottla.wire.messages.consumer_protocol import TopicPartition, decode_assignment, decode_subscription
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
    held = _held(machine.topics, classic)
    members = [_converted(classic, member, held.get(member.member_id, {})) for member in classic.members.values()]
    _send_away(operation, classic)
    classic.write_tombstones(operation)
    group_id, epoch = classic.group_id, classic.generation
    names: set[str] = set()
    for member in members:
        write_member(operation, group_id, member.member_id, member.profile)
        names |= member.profile.topic_names
    write_epoch(operation, group_id, epoch, topics_hash(machine.topics, names))
    group = machine.groups[group_id]
    assert isinstance(group, ConsumerGroup)
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


def _converted(group: ClassicGroup, member: ClassicMember, held: Held) -> Member:
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
    return Member(member.member_id, profile, Progress(epoch, epoch, MemberState.STABLE, held))


def _held(topics: TopicsView, group: ClassicGroup) -> dict[str, Held]:
    """What each member works on, of partitions that are there. It was shared out by members, who may be wrong: of two
    who have the same partition, one has it.
    """
    held: dict[str, Held] = {}
    taken: set[tuple[bytes, int]] = set()
    for member, parts in _claims(group):
        for part in parts:
            topic = topics.by_name.get(part.topic)
            if topic is None:
                continue
            topic_id = topic.topic_id
            for number in part.partitions:
                if 0 <= number < topic.partition_count and (topic_id, number) not in taken:
                    taken.add((topic_id, number))
                    held.setdefault(member.member_id, {}).setdefault(topic_id, {})[number] = group.generation
    return held


def _claims(group: ClassicGroup) -> list[tuple[ClassicMember, list[TopicPartition]]]:
    """What members were assigned; then what others, whose generation was not shared out, said that they have kept."""
    assigned, kept = [], []
    for member in group.members.values():
        if member.assignment:
            assigned.append((member, decode_assignment(member.assignment).assigned_partitions))
        else:
            subscription = decode_subscription(_metadata(group, member))
            kept.append((subscription.generation_id, member, subscription.owned_partitions))
    kept.sort(key=lambda claim: claim[0], reverse=True)
    return [*assigned, *((member, parts) for _, member, parts in kept)]
