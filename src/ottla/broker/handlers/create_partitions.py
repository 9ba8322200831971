"""CreatePartitions (37), versions 0 to 3."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING

from ottla.broker.loop.slices import mapped
from ottla.broker.quotas.mutations import Mutations
from ottla.controller.changes import NewPartitions
from ottla.controller.growing import NOT_IN_ORDER, InOrder
from ottla.wire.errors import ApiError
from ottla.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context
    from ottla.broker.loop.slices import Steps, Waiting

FIRST_STRICT_VERSION = 3


def handle(broker: Broker, request: CreatePartitionsRequest, context: Context) -> Steps:
    mutations = Mutations(broker, context, FIRST_STRICT_VERSION)
    results = yield from expand(broker, request.topics, mutations, validate_only=request.validate_only)
    return CreatePartitionsResponse(throttle_time_ms=mutations.throttle(), results=results)


def expand(
    broker: Broker,
    topics: list[CreatePartitionsTopic],
    mutations: Mutations,
    *,
    validate_only: bool,
    in_order: Mapping[str, InOrder] = NOT_IN_ORDER,
) -> Generator[Waiting | None, None, list[CreatePartitionsTopicResult]]:
    decisions = yield from broker.topic_requests.expand(
        topics, validate_only=validate_only, charge=mutations.charge, in_order=in_order
    )
    return (yield from mapped(lambda item: _result(*item), decisions.items()))


def _result(name: str, decision: NewPartitions | ApiError) -> CreatePartitionsTopicResult:
    result = CreatePartitionsTopicResult(name=name, error_code=0)
    if isinstance(decision, ApiError):
        result.error_code, result.error_message = decision.code, decision.message
    return result
