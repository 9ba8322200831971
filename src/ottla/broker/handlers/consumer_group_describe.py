"""ConsumerGroupDescribe (69), versions 0 to 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.groups import serves_consumer_groups
from ottla.broker.operations import GROUP_OPERATIONS
from ottla.coordinator.consumer_describe import describe_consumer_group, undescribed
from ottla.coordinator.operation import Operation, Reply
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context
    from ottla.broker.slices import Steps
    from ottla.coordinator.group_machine import GroupMachine


def handle(broker: Broker, request: ConsumerGroupDescribeRequest, context: Context) -> Steps:
    names = request.group_ids
    if not serves_consumer_groups(broker):
        groups = [undescribed(name, ErrorCode.UNSUPPORTED_VERSION) for name in names]
        return ConsumerGroupDescribeResponse(groups=groups)

    def run(machine: GroupMachine, operation: Operation, reply: Reply, place: int) -> None:
        name = names[place]
        described = describe_consumer_group(machine, name) if name else undescribed(name, ErrorCode.INVALID_GROUP_ID)
        if request.include_authorized_operations and described.error_code == ErrorCode.NONE:
            described.authorized_operations = GROUP_OPERATIONS
        operation.answer(reply, described)

    def refusal(place: int, code: ErrorCode) -> DescribedGroup:
        return undescribed(names[place], code)

    def done(groups: list[DescribedGroup]) -> None:
        context.reply(ConsumerGroupDescribeResponse(groups=groups))

    yield from broker.groups.submit_each(names, run, refusal, done)
    return None
