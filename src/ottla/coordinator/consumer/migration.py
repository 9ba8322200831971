"""A group changes its protocol while it has members: classic to consumer when the first member of that protocol joins,
and back when the last one has left classic members behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.coordinator.classic.generation import CONSUMER_PROTOCOL, Generation
from ottla.coordinator.classic.group import JOIN, SESSION, SYNC, ClassicGroup, write_group
from ottla.coordinator.classic.member import ClassicMember
from ottla.coordinator.classic.rebalance import answer_sync, prepare, refused_join
from ottla.coordinator.consumer.group import FIRST_EPOCH, ConsumerGroup
from ottla.coordinator.consumer.member import ClassicSide, Held, Member, MemberState, Profile, Progress, partitions_of
from ottla.coordinator.consumer.records import (
    write_epoch,
    write_member,
    write_progress,
    write_target,
    write_target_epoch,
)
from ottla.coordinator.consumer.subscriptions import topics_hash
from ottla.coordinator.consumer.target import NEVER_MS
from ottla.coordinator.group import Client
from ottla.coordinator.operation import Operation
from ottla.coordinator.told import told_assignment, told_subscription
from ottla.coordinator.topics_view import TopicsView
from ottla.wire.errors import ApiError, ErrorCode, ProtocolError
from ottla.wire.messages.consumer_protocol import ConsumerProtocolAssignment, TopicPartition
from ottla.wire.versioned import encode_versioned, read_int16

if TYPE_CHECKING:
    from ottla.coordinator.group_machine import GroupMachine


# Of a group that changes its protocol. It does so in one step, which is written as one batch.
MOST_MEMBERS = 500
MOST_TOLD_BYTES = 1 << 18
MOST_PARTITIONS = 10_000

_CUSTOM_ASSIGNOR = (
    "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default assignor "
    "before re-attempting the upgrade"
)


class Migration:
    def __init__(self, machine: GroupMachine) -> None:
        self._machine = machine

    def check_upgrade(self, group: ClassicGroup, member_id: str) -> None:
        """Refuse to let a member of the consumer protocol into a classic group that has to stay one."""
        settings = self._machine.consumer_settings(group.group_id)
        if not settings.migration_policy.allows_upgrade:
            raise _not_upgraded(group, "online upgrade is disabled")
        if group.protocol_type != CONSUMER_PROTOCOL:
            raise _not_upgraded(group, "the group does not use the consumer embedded protocol")
        if len(group.members) > settings.max_size:
            raise _not_upgraded(group, "the group size exceeds the consumer group maximum size")
        told_bytes = group.told_bytes + sum([len(member.assignment) for member in group.members.values()])
        if len(group.members) > MOST_MEMBERS or told_bytes > MOST_TOLD_BYTES:
            raise _not_upgraded(group, "the group is too large to be upgraded while it has members")
        partitions = 0
        try:
            for member in group.members.values():
                told_subscription(_metadata(group, member))
                if member.assignment:
                    assignment = told_assignment(member.assignment)
                    if assignment.user_data:
                        raise _not_upgraded(group, _CUSTOM_ASSIGNOR)
                    partitions += sum([len(part.partitions) for part in assignment.assigned_partitions])
        except ProtocolError as error:
            raise _not_upgraded(group, "the embedded consumer protocol is malformed") from error
        if partitions > MOST_PARTITIONS:
            raise _not_upgraded(group, "the group is too large to be upgraded while it has members")
        if len(group.members) >= settings.max_size and member_id not in group.members:
            message = f"The consumer group has reached its maximum capacity of {settings.max_size} members."
            raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED, message)

    def upgrade(self, operation: Operation, classic: ClassicGroup) -> ConsumerGroup:
        """Go on as a consumer group in the epoch that was the generation, everybody with what they have."""
        held = _held(self._machine.topics, classic)
        members = [_converted(classic, member, held.get(member.member_id, {})) for member in classic.members.values()]
        _send_away(operation, classic)
        classic.write_tombstones(operation)
        group_id, epoch = classic.group_id, _epoch(classic)
        names: set[str] = set()
        for member in members:
            write_member(operation, group_id, member.member_id, member.profile)
            names |= member.profile.topic_names
        write_epoch(operation, group_id, epoch, topics_hash(self._machine.topics, frozenset(names)))
        group = self._machine.groups[group_id]
        assert isinstance(group, ConsumerGroup)
        for member in members:
            write_target(operation, group_id, member.member_id, partitions_of(member.progress.assigned))
        write_target_epoch(operation, group_id, epoch, NEVER_MS)
        for member in members:
            write_progress(operation, group_id, member.member_id, member.progress)
            group.timers.start_session(operation, member)
        return group

    def can_downgrade(self, group: ConsumerGroup, leaving: Sequence[Member]) -> bool:
        """Whether the group is a classic one without these. One that is too large goes on as it is."""
        left = len(group.members) - len(leaving)
        classic_left = group.subscriptions.counts.classic - sum(member.is_classic for member in leaving)
        return (
            0 < left == classic_left
            and group.settings.migration_policy.allows_downgrade
            and left <= min(self._machine.settings().max_size, MOST_MEMBERS)
            and sum(map(_told_bytes, group.members.values())) <= MOST_TOLD_BYTES
            and group.target.size <= MOST_PARTITIONS
        )

    def downgrade(self, operation: Operation, group: ConsumerGroup, leaving: Sequence[Member]) -> None:
        """Go on without those who leave as a classic group, in the generation that was the epoch, and rebalance."""
        gone = {member.member_id for member in leaving}
        members = [member for member in group.members.values() if member.member_id not in gone]
        generation = Generation(group.epoch, CONSUMER_PROTOCOL)
        assignments = {}
        for member in members:
            side = member.profile.classic
            assert side is not None
            assignments[member.member_id] = encoded_assignment(
                self._machine.topics, side, group.target_of(member.member_id)
            )
            generation.put(_as_classic(member, side))
        for member_id in group.members:
            group.timers.cancel(operation, member_id)
        group.write_tombstones(operation)
        generation.protocol = generation.chosen_protocol()
        write_group(operation, group.group_id, generation.assigned_record(assignments, operation.now_ms))
        replayed = self._machine.groups[group.group_id]
        assert isinstance(replayed, ClassicGroup)
        for member_id, offering in generation.members.items():
            replayed.note_offer(member_id, offering.protocols)
        replayed.set_timers(operation, replayed.members)
        prepare(operation, replayed, self._machine.settings())


def _told_bytes(member: Member) -> int:
    return 0 if member.profile.classic is None else sum([len(told) for _, told in member.profile.classic.protocols])


def _not_upgraded(group: ClassicGroup, reason: str) -> ApiError:
    return ApiError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}.",
    )


def _metadata(group: ClassicGroup, member: ClassicMember) -> bytes:
    """What a member told in the protocol they agreed on, or would first like to agree on."""
    return member.metadata(group.protocol) if group.protocol is not None else member.protocols[0][1]


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
    for member_id in (*classic.members, *classic.pending_members):
        operation.cancel_timer((SESSION, classic.group_id, member_id))


def _epoch(group: ClassicGroup) -> int:
    """Before the first generation was made that is none: a member in it would not be in the group."""
    return max(group.generation, FIRST_EPOCH)


def _converted(group: ClassicGroup, member: ClassicMember, held: Held) -> Member:
    subscription = told_subscription(_metadata(group, member))
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
    epoch = _epoch(group)
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
                    held.setdefault(member.member_id, {}).setdefault(topic_id, {})[number] = _epoch(group)
    return held


def _claims(group: ClassicGroup) -> list[tuple[ClassicMember, list[TopicPartition]]]:
    """What members were assigned; then what others, whose generation was not shared out, said that they have kept."""
    assigned, kept = [], []
    for member in group.members.values():
        if member.assignment:
            assigned.append((member, told_assignment(member.assignment).assigned_partitions))
        else:
            subscription = told_subscription(_metadata(group, member))
            kept.append((subscription.generation_id, member, subscription.owned_partitions))
    kept.sort(key=lambda claim: claim[0], reverse=True)
    return [*assigned, *((member, parts) for _, member, parts in kept)]


def _as_classic(member: Member, side: ClassicSide) -> ClassicMember:
    profile = member.profile
    return ClassicMember(
        member.member_id,
        profile.instance_id,
        Client(profile.client_id, profile.client_host),
        profile.rebalance_timeout_ms,
        side.session_timeout_ms,
        side.protocols,
    )


def encoded_assignment(topics: TopicsView, classic: ClassicSide, partitions: Mapping[bytes, Iterable[int]]) -> bytes:
    """Partitions for a classic member, in the version that it speaks itself."""
    by_id = topics.by_id
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            TopicPartition(topic=by_id[topic_id].name, partitions=sorted(numbers))
            for topic_id, numbers in partitions.items()
            if topic_id in by_id
        ]
    )
    return encode_versioned(assignment, _spoken_version(classic))


def _spoken_version(classic: ClassicSide) -> int:
    """The version of what it told in the protocol it likes best, which need not be the one that all agreed on."""
    try:
        spoken = read_int16(classic.protocols[0][1], "subscription")
    except ProtocolError:
        return 0
    return max(0, min(spoken, ConsumerProtocolAssignment.versions.highest))
