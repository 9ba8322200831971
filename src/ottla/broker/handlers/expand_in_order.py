"""ExpandInOrder (30004), version 0. Ottla's own. The answer says that topics have begun to grow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.handlers.create_partitions import expand
from ottla.broker.quotas.mutations import Mutations
from ottla.controller.growing import InOrder
from ottla.wire.messages.create_partitions import CreatePartitionsTopic
from ottla.wire.messages.expand_in_order import ExpandInOrderRequest, ExpandInOrderResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context
    from ottla.broker.loop.slices import Steps

FIRST_STRICT_VERSION = 0


def handle(broker: Broker, request: ExpandInOrderRequest, context: Context) -> Steps:
    topics = [CreatePartitionsTopic(name=topic.name, count=topic.count, assignments=None) for topic in request.topics]
    in_order = {topic.name: InOrder(topic.partitioner, topic.quiet_ms) for topic in request.topics}
    mutations = Mutations(broker, context, FIRST_STRICT_VERSION)
    results = yield from expand(broker, topics, mutations, validate_only=request.validate_only, in_order=in_order)
    return ExpandInOrderResponse(throttle_time_ms=mutations.throttle(), results=results)
