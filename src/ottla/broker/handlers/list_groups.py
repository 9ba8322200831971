"""ListGroups (16), versions 0 to 5."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.group import list_groups
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context
    from ottla.broker.loop.slices import Steps

STEP_GROUPS = 200


def handle(broker: Broker, request: ListGroupsRequest, context: Context) -> Steps:
    if broker.groups.is_loading:
        return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, groups=[])
    groups = [group for shard in broker.groups.shards() for group in shard.machine.groups.values()]
    listed = []
    for start in range(0, len(groups), STEP_GROUPS):
        listed += list_groups(groups[start : start + STEP_GROUPS], request.states_filter, request.types_filter)
        yield None
    return ListGroupsResponse(error_code=ErrorCode.NONE, groups=listed)
