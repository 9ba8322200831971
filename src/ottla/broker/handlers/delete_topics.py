"""DeleteTopics (20), versions 1 to 6. Topics are gone when the answer leaves; their files go later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.loop.slices import mapped
from ottla.broker.quotas.mutations import Mutations
from ottla.controller.topics import DeletionDecision
from ottla.wire.errors import ApiError, ErrorCode
from ottla.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.wire.uuids import ZERO_UUID

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context
    from ottla.broker.loop.slices import Steps

FIRST_VERSION_WITH_IDS = 6
FIRST_STRICT_VERSION = 5
FIRST_VERSION_WITH_DISABLED = 3


def handle(broker: Broker, request: DeleteTopicsRequest, context: Context) -> Steps:
    asked = request.topics
    if context.version < FIRST_VERSION_WITH_IDS:
        asked = [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in request.topic_names]
    if not broker.settings.config.delete_topic_enable:
        return _disabled(asked, context.version)
    mutations = Mutations(broker, context, FIRST_STRICT_VERSION)
    decisions = yield from broker.topic_requests.delete(asked, charge=mutations.charge)
    results = yield from mapped(_result, decisions)
    return DeleteTopicsResponse(throttle_time_ms=mutations.throttle(), responses=results)


def _result(answer: DeletionDecision) -> DeletableTopicResult:
    result = DeletableTopicResult(name=answer.name, topic_id=answer.topic_id, error_code=0)
    if isinstance(answer.decision, ApiError):
        result.error_code, result.error_message = answer.decision.code, answer.decision.message
    return result


def _disabled(asked: list[DeleteTopicState], version: int) -> DeleteTopicsResponse:
    code = ErrorCode.TOPIC_DELETION_DISABLED
    if version < FIRST_VERSION_WITH_DISABLED:
        code = ErrorCode.INVALID_REQUEST
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(
                name=topic.name, topic_id=topic.topic_id, error_code=code, error_message="Topic deletion is disabled."
            )
            for topic in asked
        ]
    )
