"""FindCoordinator (10), versions 0 to 6.

Nothing is coordinated by this broker yet, so every key is told that its coordinator is not available. It is served
all the same, because librdkafka compresses with lz4 only for brokers that list this API.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.wire.errors import ErrorCode
from ottla.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

FIRST_VERSION_WITH_SEVERAL_KEYS = 4
NO_NODE = -1


def handle(broker: Broker, request: FindCoordinatorRequest, context: Context) -> FindCoordinatorResponse:
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    if context.version < FIRST_VERSION_WITH_SEVERAL_KEYS:
        return FindCoordinatorResponse(error_code=code, node_id=NO_NODE, host="", port=NO_NODE)
    coordinators = [
        Coordinator(key=key, node_id=NO_NODE, host="", port=NO_NODE, error_code=code)
        for key in request.coordinator_keys
    ]
    return FindCoordinatorResponse(coordinators=coordinators)
