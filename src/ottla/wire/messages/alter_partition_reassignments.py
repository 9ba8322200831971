"""AlterPartitionReassignments (45), versions 0 to 1: starts or cancels moves of partitions to other brokers.

Flexible from the start; 1 may forbid to change the number of replicas.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct, at, ignorable
from ottla.wire.types import Bool, Int16, Int32, String


class ReassignablePartition(Struct):
    partition_index: Int32
    replicas: list[Int32] | None = None  # null cancels


class ReassignableTopic(Struct):
    name: String
    partitions: list[ReassignablePartition]


class AlterPartitionReassignmentsRequest(Request, api=apis.ALTER_PARTITION_REASSIGNMENTS):
    timeout_ms: Int32 = 60000
    allow_replication_factor_change: Bool = at("1+", True)
    topics: list[ReassignableTopic]


class ReassignablePartitionResponse(Struct):
    partition_index: Int32
    error_code: Int16
    error_message: String | None = None


class ReassignableTopicResponse(Struct):
    name: String
    partitions: list[ReassignablePartitionResponse]


class AlterPartitionReassignmentsResponse(Response, api=apis.ALTER_PARTITION_REASSIGNMENTS):
    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Bool = ignorable("1+", True)
    error_code: Int16
    error_message: String | None = None
    responses: list[ReassignableTopicResponse]
