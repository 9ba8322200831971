"""LeaveGroup (13), versions 0 to 5."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.loop.slices import Steps, parts_of
from ottla.coordinator.operation import Operation, Reply
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context
    from ottla.coordinator.group_machine import GroupMachine

LEAVING_AT_ONCE = 500
FIRST_VERSION_WITH_SEVERAL_MEMBERS = 3


def handle(broker: Broker, request: LeaveGroupRequest, context: Context) -> Steps:
    if not request.group_id:
        return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    is_single = context.version < FIRST_VERSION_WITH_SEVERAL_MEMBERS
    leaving = [MemberIdentity(member_id=request.member_id)] if is_single else request.members

    parts = list(parts_of(leaving, LEAVING_AT_ONCE)) or [leaving]

    def leave(machine: GroupMachine, operation: Operation, reply: Reply, place: int) -> None:
        machine.leave(operation, reply, request.group_id, parts[place])

    names = [request.group_id] * len(parts)
    answers = yield from broker.groups.ask_each(names, leave, lambda _, code: LeaveGroupResponse(error_code=code))
    refused = [answer for answer in answers if answer.error_code]
    members = [member for answer in answers for member in answer.members]
    if refused:
        return refused[0]  # who asks again is told of each member
    if is_single and members:
        return LeaveGroupResponse(error_code=members[0].error_code)
    return LeaveGroupResponse(error_code=ErrorCode.NONE, members=members)
