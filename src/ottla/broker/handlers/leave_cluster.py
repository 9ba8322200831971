"""LeaveCluster (30002), version 0: others lead what a broker leads that is about to stop. Ottla's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.loop.slices import Steps
from ottla.controller.changes import Change
from ottla.controller.leaders import broker_leaving, led_by
from ottla.controller.steps import InSteps
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.leave_cluster import LeaveClusterRequest, LeaveClusterResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context


def handle(broker: Broker, request: LeaveClusterRequest, context: Context) -> Steps:
    controller, node_id = broker.controller, request.broker_id
    response = LeaveClusterResponse()

    def decide() -> InSteps[list[Change]]:
        known = controller.cluster.brokers.get(node_id)
        if known is None or not known.is_alive or known.epoch != request.broker_epoch:
            response.error_code = ErrorCode.STALE_BROKER_EPOCH
            return []
        changes = yield from broker_leaving(controller.cluster, broker.membership.rules(), node_id)
        return changes

    for _, refusal in (yield from controller.decided(decide)):
        if refusal is not None:
            response.error_code = refusal.code
    response.partitions_left = sum(1 for _ in led_by(controller.cluster, node_id))
    return response
