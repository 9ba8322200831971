"""ConsumerGroupHeartbeat (68), versions 0 to 1: all that members of consumer groups do is in their heartbeats."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ottla.broker.coordinators.groups import client_of, serves_consumer_groups
from ottla.broker.in_steps import InSteps
from ottla.coordinator.consumer.heartbeat import refused
from ottla.coordinator.operation import Reply
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context


WRITTEN_AT_ONCE = 500  # topics of an assignment


def handle(
    broker: Broker, request: ConsumerGroupHeartbeatRequest, context: Context
) -> ConsumerGroupHeartbeatResponse | None:
    if not serves_consumer_groups(broker):
        return refused(ErrorCode.UNSUPPORTED_VERSION)
    reply = Reply(functools.partial(_send, broker, context), refused)
    version, client = context.version, client_of(context)
    broker.groups.submit(
        request.group_id,
        reply,
        lambda machine, operation: machine.consumer_heartbeat(operation, reply, request, version, client),
    )
    return None


def _send(broker: Broker, context: Context, response: ConsumerGroupHeartbeatResponse) -> None:
    assignment = response.assignment
    if assignment is not None and len(assignment.topic_partitions) > WRITTEN_AT_ONCE:
        context.in_steps = InSteps(broker.request_slices)
    context.reply(response)
