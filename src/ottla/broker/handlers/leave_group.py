"""LeaveGroup (13), versions 0 to 5."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.operation import Reply
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

FIRST_VERSION_WITH_SEVERAL_MEMBERS = 3


def handle(broker: Broker, request: LeaveGroupRequest, context: Context) -> LeaveGroupResponse | None:
    if not request.group_id:
        return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    is_single = context.version < FIRST_VERSION_WITH_SEVERAL_MEMBERS
    leaving = [MemberIdentity(member_id=request.member_id)] if is_single else request.members

    def send(response: LeaveGroupResponse) -> None:
        if is_single and response.members:
            response = LeaveGroupResponse(error_code=response.members[0].error_code)
        context.reply(response)

    reply = Reply(send, lambda code: LeaveGroupResponse(error_code=code))
    broker.groups.submit(
        request.group_id, reply, lambda machine, operation: machine.leave(operation, reply, request.group_id, leaving)
    )
    return None
