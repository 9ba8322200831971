"""DescribeGroups (15), versions 0 to 6: classic groups; of others it knows nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.access.authorizer import GROUP_OPERATIONS
from ottla.broker.loop.slices import MOST_REPEATED_GROUPS, with_few_repeats
from ottla.coordinator.classic.describe import describe, describe_unknown
from ottla.coordinator.classic.group import ClassicGroup
from ottla.coordinator.operation import Operation, Reply
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context
    from ottla.broker.loop.slices import Steps
    from ottla.coordinator.group_machine import GroupMachine

FIRST_VERSION_WITH_NOT_FOUND = 6


def handle(broker: Broker, request: DescribeGroupsRequest, context: Context) -> Steps:
    names = with_few_repeats(request.groups, MOST_REPEATED_GROUPS)

    def run(machine: GroupMachine, operation: Operation, reply: Reply, place: int) -> None:
        group = machine.groups.get(names[place])
        if isinstance(group, ClassicGroup):
            described = describe(group)
        elif context.version >= FIRST_VERSION_WITH_NOT_FOUND:
            reason = "not found" if group is None else "is not a classic group"
            message = f"Group {names[place]} {reason}."
            described = describe_unknown(names[place], ErrorCode.GROUP_ID_NOT_FOUND, message)
        else:
            described = describe_unknown(names[place], ErrorCode.NONE)
        if request.include_authorized_operations and described.error_code == ErrorCode.NONE:
            described.authorized_operations = GROUP_OPERATIONS
        operation.answer(reply, described)

    def refusal(place: int, code: ErrorCode) -> DescribedGroup:
        return describe_unknown(names[place], code)

    return DescribeGroupsResponse(groups=(yield from broker.groups.ask_each(names, run, refusal)))
