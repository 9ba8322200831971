"""ConsumerGroupDescribe (69), versions 0 to 1."""

from __future__ import annotations

from types import GeneratorType
from typing import TYPE_CHECKING

from ottla.broker.access.authorizer import GROUP_OPERATIONS
from ottla.broker.coordinators.groups import serves_consumer_groups
from ottla.broker.loop.slices import MOST_REPEATED_GROUPS, with_few_repeats
from ottla.coordinator.consumer.describe import describe_consumer_group, undescribed
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
    from ottla.broker.loop.slices import Steps
    from ottla.coordinator.group_machine import GroupMachine


def handle(broker: Broker, request: ConsumerGroupDescribeRequest, context: Context) -> Steps:
    names = with_few_repeats(request.group_ids, MOST_REPEATED_GROUPS)
    if not serves_consumer_groups(broker):
        groups = [undescribed(name, ErrorCode.UNSUPPORTED_VERSION) for name in names]
        return ConsumerGroupDescribeResponse(groups=groups)

    def run(machine: GroupMachine, operation: Operation, reply: Reply, place: int) -> None:
        name = names[place]
        described = describe_consumer_group(machine, name) if name else undescribed(name, ErrorCode.INVALID_GROUP_ID)
        operation.answer(reply, described)

    def refusal(place: int, code: ErrorCode) -> DescribedGroup:
        return undescribed(names[place], code)

    groups = yield from broker.groups.ask_each(names, run, refusal)
    for place, described in enumerate(groups):
        if isinstance(described, GeneratorType):
            groups[place] = group = yield from described
            if request.include_authorized_operations:
                group.authorized_operations = GROUP_OPERATIONS
    return ConsumerGroupDescribeResponse(groups=groups)
