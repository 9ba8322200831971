"""Heartbeat (12), versions 0 to 4."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.operation import Reply
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context


def handle(broker: Broker, request: HeartbeatRequest, context: Context) -> HeartbeatResponse | None:
    if not request.group_id:
        return HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    reply = Reply(context.reply, lambda code: HeartbeatResponse(error_code=code))
    broker.groups.submit(
        request.group_id, reply, lambda machine, operation: machine.heartbeat(operation, reply, request)
    )
    return None
