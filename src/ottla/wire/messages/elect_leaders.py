"""ElectLeaders (43), versions 0 to 2: elects the leaders of partitions.

1 may elect a replica that is not in sync; 2 is flexible.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct, at
from ottla.wire.types import Int8, Int16, Int32, String


class TopicPartitions(Struct):
    topic: String
    partitions: list[Int32]


class ElectLeadersRequest(Request, api=apis.ELECT_LEADERS):
    election_type: Int8 = at("1+", 0)  # 0 preferred, 1 unclean
    topic_partitions: list[TopicPartitions] | None  # null asks for all
    timeout_ms: Int32 = 60000


class PartitionResult(Struct):
    partition_id: Int32
    error_code: Int16
    error_message: String | None = None


class ReplicaElectionResult(Struct):
    topic: String
    partition_result: list[PartitionResult]


class ElectLeadersResponse(Response, api=apis.ELECT_LEADERS):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = at("1+", 0)
    replica_election_results: list[ReplicaElectionResult]
