"""ListPartitionReassignments (46), version 0: lists the moves of partitions that are under way.

Flexible from the start.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct
from ottla.wire.types import Int16, Int32, String


class ListPartitionReassignmentsTopics(Struct):
    name: String
    partition_indexes: list[Int32]


class ListPartitionReassignmentsRequest(Request, api=apis.LIST_PARTITION_REASSIGNMENTS):
    timeout_ms: Int32 = 60000
    topics: list[ListPartitionReassignmentsTopics] | None = None  # null asks for all


class OngoingPartitionReassignment(Struct):
    partition_index: Int32
    replicas: list[Int32]
    adding_replicas: list[Int32]
    removing_replicas: list[Int32]


class OngoingTopicReassignment(Struct):
    name: String
    partitions: list[OngoingPartitionReassignment]


class ListPartitionReassignmentsResponse(Response, api=apis.LIST_PARTITION_REASSIGNMENTS):
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: String | None = None
    topics: list[OngoingTopicReassignment]
