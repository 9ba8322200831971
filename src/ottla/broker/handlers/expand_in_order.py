"""ExpandInOrder (30004), version 0. Ottla's own. The answer says that topics have begun to grow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.loop.slices import mapped
from ottla.broker.quotas.mutations import Mutations
from ottla.controller.changes import NewPartitions
from ottla.controller.growing import InOrder
from ottla.wire.errors import ApiError
from ottla.wire.messages.create_partitions import CreatePartitionsTopic
from ottla.wire.messages.expand_in_order import ExpandedTopicResult, ExpandInOrderRequest, ExpandInOrderResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context
    from ottla.broker.loop.slices import Steps

FIRST_STRICT_VERSION = 0


def handle(broker: Broker, request: ExpandInOrderRequest, context: Context) -> Steps:
    mutations = Mutations(broker, context, FIRST_STRICT_VERSION)
    decisions = yield from broker.topic_requests.expand(
        [CreatePartitionsTopic(name=topic.name, count=topic.count, assignments=None) for topic in request.topics],
        validate_only=request.validate_only,
        charge=mutations.charge,
        in_order={topic.name: InOrder(topic.partitioner, topic.quiet_ms) for topic in request.topics},
    )
    results = yield from mapped(lambda item: _result(*item), decisions.items())
    return ExpandInOrderResponse(throttle_time_ms=mutations.throttle(), results=results)


def _result(name: str, decision: NewPartitions | ApiError) -> ExpandedTopicResult:
    result = ExpandedTopicResult(name=name, error_code=0)
    if isinstance(decision, ApiError):
        result.error_code, result.error_message = decision.code, decision.message
    return result
