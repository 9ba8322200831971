"""ClusterFeed (30000), version 0: a broker asks the controller for what was decided. Ottla's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.wire.errors import ErrorCode
from ottla.wire.messages.cluster_feed import ClusterFeedRequest, ClusterFeedResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context


def handle(broker: Broker, request: ClusterFeedRequest, context: Context) -> ClusterFeedResponse | None:
    liveness = broker.membership.liveness
    if liveness is None:
        return ClusterFeedResponse(error_code=ErrorCode.NOT_CONTROLLER)

    def reply(response: ClusterFeedResponse) -> None:
        if context.connection.is_open:
            context.reply(response)

    liveness.polled(request, context.connection, reply)
    return None
