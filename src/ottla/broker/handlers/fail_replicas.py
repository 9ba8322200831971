"""FailReplicas (30005), version 0: others lead what a broker cannot lead, since its disk failed. Ottla's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.loop.slices import Steps
from ottla.controller.changes import Change
from ottla.controller.leaders import replicas_failed
from ottla.controller.steps import InSteps
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fail_replicas import FailReplicasRequest, FailReplicasResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context


def handle(broker: Broker, request: FailReplicasRequest, context: Context) -> Steps:
    controller, node_id = broker.controller, request.broker_id
    response = FailReplicasResponse()
    failed = [(topic.topic_id, index) for topic in request.topics for index in topic.partitions]

    def decide() -> InSteps[list[Change]]:
        known = controller.cluster.brokers.get(node_id)
        if known is None or not known.is_alive or known.epoch != request.broker_epoch:
            response.error_code = ErrorCode.STALE_BROKER_EPOCH
            return []
        changes = yield from replicas_failed(controller.cluster, broker.membership.rules(), node_id, failed)
        return changes

    for _, refusal in (yield from controller.decided(decide)):
        if refusal is not None:
            response.error_code = refusal.code
    return response
