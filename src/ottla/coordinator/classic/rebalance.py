"""How a classic group gets from one generation to the next: all join, one of them leads, all fetch their share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from ottla.coordinator.classic.generation import ClassicState
from ottla.coordinator.classic.group import JOIN, SESSION, SYNC, ClassicGroup, FirstWait
from ottla.coordinator.classic.member import ClassicMember
from ottla.coordinator.group import GroupSettings
from ottla.coordinator.operation import Operation, Work
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from ottla.wire.messages.sync_group import SyncGroupResponse

NOBODY = ""
ANSWERED_AT_ONCE = 100  # members
TOLD_AT_ONCE_BYTES = 1 << 15  # what members tell of themselves, which is looked into


def rebalance(operation: Operation, group: ClassicGroup, settings: GroupSettings) -> None:
    """Something changed: begin a rebalance, or end the one that waits only for this."""
    if group.state is ClassicState.PREPARING:
        complete_if_all_joined(operation, group)
    else:
        prepare(operation, group, settings)


def prepare(operation: Operation, group: ClassicGroup, settings: GroupSettings) -> None:
    """Ask all members to join again."""
    _end_syncs(operation, group)
    was_empty = group.state is ClassicState.EMPTY
    group.enter(ClassicState.PREPARING, operation.now_ms)
    if was_empty:
        delay_ms = settings.initial_rebalance_delay_ms
        group.first_wait = FirstWait(delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
        operation.set_timer((JOIN, group.group_id), delay_ms)
    elif group.have_all_joined:
        complete_join(operation, group)
    else:
        operation.set_timer((JOIN, group.group_id), group.rebalance_timeout_ms)


def _end_syncs(operation: Operation, group: ClassicGroup) -> None:
    """There will be no assignment in this generation any more."""
    operation.cancel_timer((SYNC, group.group_id))
    group.pending_sync_members.clear()
    for member in group.members.values():
        if group.state is ClassicState.COMPLETING:
            member.assignment = b""
        if member.sync_reply is not None:
            answer_sync(operation, group, member, ErrorCode.REBALANCE_IN_PROGRESS)
            group.watch(operation, member)


def complete_if_all_joined(operation: Operation, group: ClassicGroup) -> None:
    if group.state is ClassicState.PREPARING and group.first_wait is None and group.have_all_joined:
        complete_join(operation, group)


def join_time_over(operation: Operation, group: ClassicGroup, settings: GroupSettings) -> None:
    """Members that have not joined by now are too late. Only a group that was empty and still grows waits longer."""
    if group.state is not ClassicState.PREPARING:
        return
    wait = group.first_wait
    if wait is not None and wait.has_grown and wait.left_ms > 0:
        delay_ms = min(settings.initial_rebalance_delay_ms, wait.left_ms)
        group.first_wait = FirstWait(delay_ms, max(wait.left_ms - wait.delay_ms, 0))
        operation.set_timer((JOIN, group.group_id), delay_ms)
    else:
        complete_join(operation, group)


def complete_join(operation: Operation, group: ClassicGroup) -> None:
    """Begin the next generation with those who joined, and the static members, who may be about to come back."""
    operation.cancel_timer((JOIN, group.group_id))
    group.first_wait = None
    for member in list(group.members.values()):
        if member.join_reply is None and not member.is_static:
            drop(operation, group, member)
    if group.members and not group.forming().elect_leader():
        # Only static members are left, and none is here: wait until one comes, or their sessions end.
        operation.set_timer((JOIN, group.group_id), group.rebalance_timeout_ms)
        return
    if not group.members:
        group.write_empty(operation)
        return
    group.next_generation(operation.now_ms)
    operation.set_timer((SYNC, group.group_id), group.rebalance_timeout_ms)
    _go_on(operation, group, _telling_joined(group))


def _go_on(operation: Operation, group: ClassicGroup, work: Work) -> None:
    """Do the rest at once in a group of usual size. In a large one others have their turn in between."""
    if len(group.members) > ANSWERED_AT_ONCE or group.told_bytes > TOLD_AT_ONCE_BYTES:
        operation.go_on_with(work)
    else:
        for event in work:
            event(operation)


def _telling_joined(group: ClassicGroup) -> Work:
    """Answer those who joined. Until then they are as those who wait: if a rebalance begins first, they are in it."""
    number = group.generation
    for _ in group.current.find_topics():
        yield _let_others_in
        if not _is_current(group, number):
            return
    yield from _some(group, functools.partial(_tell_joined, group, number))


def _let_others_in(_operation: Operation) -> None:
    """Nothing is to be done, or written."""


def _is_current(group: ClassicGroup, generation: int) -> bool:
    """Whether the members of a generation are still those of the group."""
    return group.generation == generation and group.state in (ClassicState.COMPLETING, ClassicState.STABLE)


def _some(group: ClassicGroup, tell: Callable[[Sequence[str], Operation], None]) -> Work:
    """Events for all who are members now, some at a time; who leads comes first, for all others wait for it."""
    member_ids = list(group.members)
    if len(member_ids) > ANSWERED_AT_ONCE and group.leader_id in group.members:
        member_ids.sort(key=lambda member_id: member_id != group.leader_id)
    for start in range(0, len(member_ids), ANSWERED_AT_ONCE):
        yield functools.partial(tell, member_ids[start : start + ANSWERED_AT_ONCE])


def _tell_joined(group: ClassicGroup, generation: int, member_ids: Sequence[str], operation: Operation) -> None:
    if not _is_current(group, generation):
        return
    for member in filter(None, map(group.members.get, member_ids)):
        if member.join_reply is not None:
            members = group.members_for_leader() if member.member_id == group.leader_id else []
            operation.answer(member.join_reply, joined(group, member.member_id, group.leader_id, members))
            member.join_reply = None
        group.watch(operation, member)
        member.is_new = False


def joined(
    group: ClassicGroup,
    member_id: str,
    leader_id: str | None,
    members: list[JoinGroupResponseMember],
    *,
    skip_assignment: bool = False,
) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=ErrorCode.NONE,
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=leader_id or NOBODY,
        skip_assignment=skip_assignment,
        member_id=member_id,
        members=members,
    )


def refused_join(code: ErrorCode, member_id: str) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, leader=NOBODY, member_id=member_id, members=[])


# Assignments


def assign(operation: Operation, group: ClassicGroup, assignments: dict[str, bytes]) -> None:
    """The leader has shared out the work: keep that, and tell those who wait for it."""
    group.write_assigned(operation, assignments)
    _go_on(operation, group, _some(group, functools.partial(_tell_assigned, group, group.generation)))


def _tell_assigned(group: ClassicGroup, generation: int, member_ids: Sequence[str], operation: Operation) -> None:
    """Who waits when a rebalance has begun in between was told of that."""
    if not _is_current(group, generation):
        return
    for member in filter(None, map(group.members.get, member_ids)):
        if member.sync_reply is not None:
            answer_sync(operation, group, member)
            group.watch(operation, member)


def refuse_assignment(operation: Operation, group: ClassicGroup, settings: GroupSettings) -> None:
    """It cannot be kept: tell those who wait, as Kafka does, and let the group find another."""
    for member in group.members.values():
        if member.sync_reply is not None:
            answer_sync(operation, group, member, ErrorCode.UNKNOWN_SERVER_ERROR)
    prepare(operation, group, settings)


def answer_sync(
    operation: Operation, group: ClassicGroup, member: ClassicMember, code: ErrorCode = ErrorCode.NONE
) -> None:
    assert member.sync_reply is not None
    response = refused_sync(code) if code is not ErrorCode.NONE else assignment_of(group, member)
    operation.answer(member.sync_reply, response)
    member.sync_reply = None


def assignment_of(group: ClassicGroup, member: ClassicMember) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=ErrorCode.NONE,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        assignment=member.assignment,
    )


def refused_sync(code: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code, assignment=b"")


def sync_time_over(operation: Operation, group: ClassicGroup, settings: GroupSettings) -> None:
    """Members that have not fetched their assignment by now are taken out."""
    if group.state not in (ClassicState.COMPLETING, ClassicState.STABLE) or not group.pending_sync_members:
        return
    for member_id in list(group.pending_sync_members):
        drop(operation, group, group.members[member_id])
    prepare(operation, group, settings)


# Members that go


def drop(operation: Operation, group: ClassicGroup, member: ClassicMember) -> None:
    """Take a member out, and tell it so if it waits."""
    member = group.remove(member.member_id)
    operation.cancel_timer((SESSION, group.group_id, member.member_id))
    if member.join_reply is not None:
        operation.answer(member.join_reply, refused_join(ErrorCode.UNKNOWN_MEMBER_ID, NOBODY))
        member.join_reply = None
    if member.sync_reply is not None:
        operation.answer(member.sync_reply, refused_sync(ErrorCode.UNKNOWN_MEMBER_ID))
        member.sync_reply = None


def remove_pending(operation: Operation, group: ClassicGroup, member_id: str) -> None:
    group.pending_members.discard(member_id)
    operation.cancel_timer((SESSION, group.group_id, member_id))


def go_on_without(operation: Operation, group: ClassicGroup, settings: GroupSettings) -> None:
    """After members have gone, or pending members: what is left of the group finds itself anew."""
    if group.state is ClassicState.PREPARING:
        complete_if_all_joined(operation, group)
    elif group.state is not ClassicState.EMPTY:
        prepare(operation, group, settings)


def session_over(operation: Operation, group: ClassicGroup, member_id: str, settings: GroupSettings) -> None:
    """No sign of life came from a member, or a pending member did not join."""
    if member_id in group.pending_members:
        remove_pending(operation, group, member_id)
        complete_if_all_joined(operation, group)
        return
    member = group.members.get(member_id)
    if member is None or (member.awaits_rebalance and not member.is_new):
        return  # who waits for an answer lives; its session begins again with the answer
    drop(operation, group, member)
    go_on_without(operation, group, settings)
