"""Who a member of a consumer group is, before it is served: checks that write nothing, and then its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.coordinator.classic_group import ClassicGroup
from ottla.coordinator.consumer_group import ConsumerGroup
from ottla.coordinator.consumer_member import Member, MemberState
from ottla.coordinator.consumer_records import (
    write_member,
    write_member_tombstones,
    write_progress,
    write_target,
)
from ottla.coordinator.consumer_timers import cancel_timers
from ottla.coordinator.group_refusal import GroupRefusal
from ottla.coordinator.operation import Operation
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

if TYPE_CHECKING:
    from ottla.coordinator.group_machine import GroupMachine


class Admission(NamedTuple):
    """A member that may go on, and what has to be done for that."""

    member: Member  # as it is known; of a new one nothing but the id
    replaced_by: str | None = None  # the id under which a static member goes on
    upgraded: ClassicGroup | None = None  # the group that is to become a consumer group first
    replaces_group: bool = False  # an empty classic group makes way


def check_room(group: ConsumerGroup, member_id: str) -> None:
    most = group.settings.max_size
    if len(group.members) >= most and member_id not in group.members:
        message = f"The consumer group has reached its maximum capacity of {most} members."
        raise GroupRefusal(ErrorCode.GROUP_MAX_SIZE_REACHED, message)


def find_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> Member:
    """The member that asks: if it gives an instance id, the one that goes by it."""
    if instance_id is None:
        member = group.members.get(member_id)
        if member is None:
            message = f"Member {member_id} is not a member of group {group.group_id}."
            raise GroupRefusal(ErrorCode.UNKNOWN_MEMBER_ID, message)
        return member
    owner = group.static_member(instance_id)
    if owner is None:
        raise GroupRefusal(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if owner.member_id != member_id:
        raise GroupRefusal(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {owner.member_id}.",
        )
    return owner


def check_epoch(member: Member, request: ConsumerGroupHeartbeatRequest) -> None:
    """Refuse one that works by another epoch, unless it can only have missed the last answer."""
    epoch, known = request.member_epoch, member.progress
    owned = request.topic_partitions
    if epoch > known.epoch:
        raise _fenced("greater", epoch, known.epoch)
    if epoch < known.epoch:
        has_missed_answer = (
            epoch == known.previous_epoch
            and owned is not None
            and all(known.assigned.get(topic.topic_id, {}).keys() >= set(topic.partitions) for topic in owned)
        )
        if not has_missed_answer:
            raise _fenced("smaller", epoch, known.epoch)
    if known.state is MemberState.UNKNOWN and (owned is None or owned):
        raise GroupRefusal(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin.",
        )


def _fenced(how: str, epoch: int, known_epoch: int) -> GroupRefusal:
    return GroupRefusal(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {how} member epoch ({epoch}) than the one known by the group coordinator "
        f"({known_epoch}). The member must abandon all its partitions and rejoin.",
    )


def admit(machine: GroupMachine, operation: Operation, group_id: str, admission: Admission) -> Member:
    """Make a place for a member that may go on; as it is then known."""
    group = machine.groups.get(group_id)
    member = admission.member
    if admission.replaces_group and group is not None:
        group.write_tombstones(operation)
    if isinstance(group, ConsumerGroup) and admission.replaced_by is not None:
        return _replace(operation, group, member, admission.replaced_by)
    return member


def _replace(operation: Operation, group: ConsumerGroup, old: Member, member_id: str) -> Member:
    """Let a static member go on under another id, with what it has and is to have."""
    new = Member(member_id, old.profile, old.progress._replace(epoch=0, previous_epoch=0))
    target = dict(group.target_of(old.member_id))
    cancel_timers(operation, group, old.member_id)
    write_member_tombstones(operation, group.group_id, old.member_id)
    write_member(operation, group.group_id, member_id, new.profile)
    write_target(operation, group.group_id, member_id, target)
    write_progress(operation, group.group_id, member_id, new.progress)
    return new
