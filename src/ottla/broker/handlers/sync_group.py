"""SyncGroup (14), versions 0 to 5: brings the leader's assignment, and answers when there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.classic.rebalance import refused_sync
from ottla.coordinator.operation import Reply
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context


FIRST_VERSION_WITH_PROTOCOL = 5


def handle(broker: Broker, request: SyncGroupRequest, context: Context) -> SyncGroupResponse | None:
    if context.version >= FIRST_VERSION_WITH_PROTOCOL and None in (request.protocol_type, request.protocol_name):
        return refused_sync(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not request.group_id:
        return refused_sync(ErrorCode.INVALID_GROUP_ID)
    reply = Reply(context.reply, refused_sync)
    broker.groups.submit(request.group_id, reply, lambda machine, operation: machine.sync(operation, reply, request))
    return None
