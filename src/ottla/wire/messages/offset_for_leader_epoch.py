"""OffsetForLeaderEpoch (23), versions 2 to 4: tells where a leader epoch ends.

3 says who asks; 4 is flexible.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct, ignorable
from ottla.wire.types import Int16, Int32, Int64, String


class OffsetForLeaderPartition(Struct):
    partition: Int32
    current_leader_epoch: Int32 = -1
    leader_epoch: Int32


class OffsetForLeaderTopic(Struct):
    topic: String
    partitions: list[OffsetForLeaderPartition]


class OffsetForLeaderEpochRequest(Request, api=apis.OFFSET_FOR_LEADER_EPOCH):
    replica_id: Int32 = ignorable("3+", -2)  # -1 is a consumer, -2 one that debugs
    topics: list[OffsetForLeaderTopic]


class EpochEndOffset(Struct):
    error_code: Int16
    partition: Int32
    leader_epoch: Int32 = -1
    end_offset: Int64 = -1


class OffsetForLeaderTopicResult(Struct):
    topic: String
    partitions: list[EpochEndOffset]


class OffsetForLeaderEpochResponse(Response, api=apis.OFFSET_FOR_LEADER_EPOCH):
    throttle_time_ms: Int32 = 0
    topics: list[OffsetForLeaderTopicResult]
