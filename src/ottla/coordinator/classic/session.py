"""What members of a classic group do between two joins: fetch their assignment, give signs of life, leave."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.coordinator.classic.generation import ClassicState
from ottla.coordinator.classic.group import SYNC, ClassicGroup
from ottla.coordinator.classic.rebalance import (
    assign,
    assignment_of,
    drop,
    go_on_without,
    refuse_assignment,
    refused_sync,
    remove_pending,
)
from ottla.coordinator.group import GroupSettings
from ottla.coordinator.operation import Operation, Reply
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.leave_group import MemberIdentity, MemberResponse
from ottla.wire.messages.sync_group import SyncGroupRequest


def sync(
    operation: Operation, group: ClassicGroup, reply: Reply, request: SyncGroupRequest, settings: GroupSettings
) -> None:
    code = _check_sync(group, request)
    if code is not ErrorCode.NONE:
        operation.answer(reply, refused_sync(code))
        return
    member = group.members[request.member_id]
    group.pending_sync_members.discard(member.member_id)
    if not group.pending_sync_members:
        operation.cancel_timer((SYNC, group.group_id))
    if group.state is ClassicState.STABLE:
        group.watch(operation, member)
        operation.answer(reply, assignment_of(group, member))
        return
    if member.sync_reply is not None:  # an earlier try of the same member
        operation.answer(member.sync_reply, refused_sync(ErrorCode.REBALANCE_IN_PROGRESS))
    member.sync_reply = reply
    if group.leader_id == member.member_id:
        assignments = {each.member_id: each.assignment for each in request.assignments}
        if group.size_with(assignments) <= operation.most_bytes:
            assign(operation, group, assignments)
        else:
            refuse_assignment(operation, group, settings)


def _check_sync(group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode:
    code = group.check_member(request.member_id, request.group_instance_id)
    if code is not ErrorCode.NONE:
        return code
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if request.protocol_type not in (None, group.protocol_type) or request.protocol_name not in (None, group.protocol):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is ClassicState.PREPARING else ErrorCode.NONE


def heartbeat(operation: Operation, group: ClassicGroup, reply: Reply, request: HeartbeatRequest) -> None:
    code = group.check_member(request.member_id, request.group_instance_id)
    if code is ErrorCode.NONE:
        if request.generation_id != group.generation:
            code = ErrorCode.ILLEGAL_GENERATION
        else:
            group.watch(operation, group.members[request.member_id])
            if group.state is ClassicState.PREPARING:
                code = ErrorCode.REBALANCE_IN_PROGRESS
    operation.answer(reply, HeartbeatResponse(error_code=code))


def leave(
    operation: Operation, group: ClassicGroup, leaving: Sequence[MemberIdentity], settings: GroupSettings
) -> list[MemberResponse]:
    """Take out those who leave, by their ids or, for an administrator, by the names of their instances."""
    responses = [left(identity, _leave_one(operation, group, identity)) for identity in leaving]
    if any(response.error_code == ErrorCode.NONE for response in responses):
        go_on_without(operation, group, settings)
    return responses


def left(identity: MemberIdentity, code: ErrorCode) -> MemberResponse:
    return MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code)


def _leave_one(operation: Operation, group: ClassicGroup, identity: MemberIdentity) -> ErrorCode:
    member_id, instance_id = identity.member_id, identity.group_instance_id
    if not member_id and instance_id is not None:
        member_id = group.static_members.get(instance_id, "")
    if member_id in group.pending_members:
        remove_pending(operation, group, member_id)
        return ErrorCode.NONE
    code = group.check_member(member_id, instance_id)
    if code is ErrorCode.NONE:
        drop(operation, group, group.members[member_id])
    return code
