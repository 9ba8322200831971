"""DeleteGroups (42), versions 0 to 2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.operation import Operation, Reply
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context
    from ottla.broker.loop.slices import Steps
    from ottla.coordinator.group_machine import GroupMachine


def handle(broker: Broker, request: DeleteGroupsRequest, context: Context) -> Steps:
    """A group with very many offsets is deleted a part of them at a time, and itself with the last."""
    codes: dict[str, ErrorCode | None] = dict.fromkeys(request.groups_names)
    while left := [name for name, code in codes.items() if code is None]:
        codes.update(zip(left, (yield from _delete(broker, left)), strict=True))
    results = [DeletableGroupResult(group_id=name, error_code=code or ErrorCode.NONE) for name, code in codes.items()]
    return DeleteGroupsResponse(results=results)


def _delete(broker: Broker, names: list[str]) -> Steps:
    def run(machine: GroupMachine, operation: Operation, reply: Reply, place: int) -> None:
        operation.answer(reply, machine.removal.delete_group(operation, names[place]))

    return (yield from broker.groups.ask_each(names, run, lambda _, code: code))
