"""ListPartitionReassignments (46), version 0: the partitions that move to other brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.controller.reassignments import moving
from ottla.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context
    from ottla.broker.loop.slices import Steps

NAMED_IN_A_STEP = 500


def handle(broker: Broker, request: ListPartitionReassignmentsRequest, context: Context) -> Steps:
    asked = None
    if request.topics is not None:
        asked = [(topic.name, topic.partition_indexes) for topic in request.topics]
    topics: dict[str, OngoingTopicReassignment] = {}
    for number, (name, index, placement) in enumerate(list(moving(broker.cluster, asked))):
        topic = topics.setdefault(name, OngoingTopicReassignment(name=name, partitions=[]))
        topic.partitions.append(
            OngoingPartitionReassignment(
                partition_index=index,
                replicas=placement.replicas,
                adding_replicas=placement.adding,
                removing_replicas=placement.removing,
            )
        )
        if number % NAMED_IN_A_STEP == NAMED_IN_A_STEP - 1:
            yield None
    return ListPartitionReassignmentsResponse(error_code=0, topics=list(topics.values()))
