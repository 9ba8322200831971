"""SyncGroup (14), versions 0 to 5: brings the leader's assignment, and answers when there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.classic_rebalance import refused_sync
from ottla.coordinator.operation import Reply
from ottla.wire.messages.sync_group import SyncGroupRequest

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context


def handle(broker: Broker, request: SyncGroupRequest, context: Context) -> None:
    reply = Reply(context.reply, refused_sync)
    broker.groups.submit(request.group_id, reply, lambda machine, operation: machine.sync(operation, reply, request))
