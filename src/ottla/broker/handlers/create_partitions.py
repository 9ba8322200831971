"""CreatePartitions (37), versions 0 to 3."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.loop.slices import mapped
from ottla.broker.quotas.mutations import Mutations
from ottla.controller.changes import NewPartitions
from ottla.wire.errors import ApiError
from ottla.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context
    from ottla.broker.loop.slices import Steps

FIRST_STRICT_VERSION = 3


def handle(broker: Broker, request: CreatePartitionsRequest, context: Context) -> Steps:
    mutations = Mutations(broker, context, FIRST_STRICT_VERSION)
    decisions = yield from broker.topic_requests.expand(
        request.topics, validate_only=request.validate_only, charge=mutations.charge
    )
    results = yield from mapped(lambda item: _result(*item), decisions.items())
    return CreatePartitionsResponse(throttle_time_ms=mutations.throttle(), results=results)


def _result(name: str, decision: NewPartitions | ApiError) -> CreatePartitionsTopicResult:
    result = CreatePartitionsTopicResult(name=name, error_code=0)
    if isinstance(decision, ApiError):
        result.error_code, result.error_message = decision.code, decision.message
    return result
