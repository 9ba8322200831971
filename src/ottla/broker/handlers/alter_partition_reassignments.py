"""AlterPartitionReassignments (45), versions 0 and 1: moves partitions to other brokers, or takes that back.

The controller decides. The move goes on when this is answered; ListPartitionReassignments tells when it is over.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

from ottla.broker.loop.slices import TopicPart, Waiting, parts_by_topic
from ottla.controller.reassignments import Moves, Reassignment
from ottla.wire.errors import ApiError
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context
    from ottla.broker.loop.slices import Steps
    from ottla.controller.changes import Change

MOVED_AT_ONCE = 500


def handle(broker: Broker, request: AlterPartitionReassignmentsRequest, context: Context) -> Steps:
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=0,
        error_message=None if request.topics else "",  # as Kafka has it
        responses=[],
    )
    for part in parts_by_topic(request.topics, MOVED_AT_ONCE):
        refusals = yield from _reassign(broker, part, request.allow_replication_factor_change)
        for topic, partitions, goes_on in part:
            if not goes_on:
                response.responses.append(ReassignableTopicResponse(name=topic.name, partitions=[]))
            response.responses[-1].partitions += [
                _result(partition.partition_index, refusals.pop(0)) for partition in partitions
            ]
    return response


def _reassign(
    broker: Broker, part: Sequence[TopicPart], may_change_factor: bool
) -> Generator[Waiting, None, list[ApiError | None]]:
    """What became of each partition."""
    refusals: list[ApiError | None] = []

    def decide() -> list[Change]:
        moves = Moves(broker.controller.cluster, broker.membership.rules())
        for topic, partitions, _ in part:
            for partition in partitions:
                asked = Reassignment(topic.name, partition.partition_index, partition.replicas)
                try:
                    moves.reassign(asked, may_change_factor=may_change_factor)
                except ApiError as refusal:
                    refusals.append(refusal.bare)
                else:
                    refusals.append(None)
        return moves.changes()

    outcomes = yield from broker.controller.decided(decide)
    failed = next((refusal for _, refusal in outcomes if refusal is not None), None)
    return [refusal or failed for refusal in refusals]


def _result(index: int, refusal: ApiError | None) -> ReassignablePartitionResponse:
    if refusal is None:
        return ReassignablePartitionResponse(partition_index=index, error_code=0)
    return ReassignablePartitionResponse(partition_index=index, error_code=refusal.code, error_message=refusal.message)
