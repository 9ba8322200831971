"""JoinGroup (11), versions 0 to 9: answered when the next generation of the group has come together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.coordinators.groups import client_of
from ottla.broker.in_steps import InSteps
from ottla.coordinator.classic.rebalance import refused_join
from ottla.coordinator.operation import Reply
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

FIRST_VERSION_WITH_REBALANCE_TIMEOUT = 1
FIRST_VERSION_WITHOUT_PROTOCOL = 7
WRITTEN_AT_ONCE = 500  # members that the leader is told of


def handle(broker: Broker, request: JoinGroupRequest, context: Context) -> None:
    version = context.version
    if version < FIRST_VERSION_WITH_REBALANCE_TIMEOUT:
        request.rebalance_timeout_ms = request.session_timeout_ms

    def send(response: JoinGroupResponse) -> None:
        if response.protocol_name is None and version < FIRST_VERSION_WITHOUT_PROTOCOL:
            response.protocol_name = ""
        if len(response.members) > WRITTEN_AT_ONCE:
            context.in_steps = InSteps(broker.request_slices)
        context.reply(response)

    reply = Reply(send, lambda code: refused_join(code, request.member_id))
    client = client_of(context)
    broker.groups.submit(
        request.group_id,
        reply,
        lambda machine, operation: machine.join(operation, reply, request, client, version),
    )
