"""ListOffsets (2), versions 1 to 11: finds offsets by timestamp, or the first and last of a partition.

2 brings the isolation level; 4 the leader epoch; 6 is flexible; 7 asks for the largest timestamp (-3); 8
for the first offset on local disk (-4); 9 and 11 for the edges of tiered storage (-5, -6); 10 has a
timeout.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct, at, ignorable
from ottla.wire.types import Int8, Int16, Int32, Int64, String


class ListOffsetsPartition(Struct):
    partition_index: Int32
    current_leader_epoch: Int32 = ignorable("4+", -1)
    timestamp: Int64  # negative: see the header


class ListOffsetsTopic(Struct):
    name: String
    partitions: list[ListOffsetsPartition]


class ListOffsetsRequest(Request, api=apis.LIST_OFFSETS):
    replica_id: Int32  # -1 is a consumer
    isolation_level: Int8 = at("2+", 0)  # 0 read uncommitted, 1 read committed
    topics: list[ListOffsetsTopic]
    timeout_ms: Int32 = ignorable("10+", 0)


class ListOffsetsPartitionResponse(Struct):
    partition_index: Int32
    error_code: Int16
    timestamp: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Int32 = at("4+", -1)


class ListOffsetsTopicResponse(Struct):
    name: String
    partitions: list[ListOffsetsPartitionResponse]


class ListOffsetsResponse(Response, api=apis.LIST_OFFSETS):
    throttle_time_ms: Int32 = ignorable("2+", 0)
    topics: list[ListOffsetsTopicResponse]
