"""DeleteGroups (42), versions 0 to 2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.offset_removal import delete_group
from ottla.coordinator.operation import Operation, Reply
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context
    from ottla.broker.slices import Steps
    from ottla.coordinator.group_machine import GroupMachine


def handle(broker: Broker, request: DeleteGroupsRequest, context: Context) -> Steps:
    names = list(dict.fromkeys(request.groups_names))

    def result(place: int, code: ErrorCode) -> DeletableGroupResult:
        return DeletableGroupResult(group_id=names[place], error_code=code)

    def run(machine: GroupMachine, operation: Operation, reply: Reply, place: int) -> None:
        operation.answer(reply, result(place, delete_group(machine, operation, names[place])))

    def done(results: list[DeletableGroupResult]) -> None:
        context.reply(DeleteGroupsResponse(results=results))

    yield from broker.groups.submit_each(names, run, result, done)
