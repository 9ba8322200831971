"""OffsetCommit (8), versions 2 to 10: keeps the offsets of a group.

2-4 could say how long; 6 adds the leader epoch; 7 static members; 8 is flexible; 9 serves the new
consumer groups; 10 names topics by id.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct, at, ignorable
from ottla.wire.types import Int16, Int32, Int64, String, Uuid
from ottla.wire.uuids import ZERO_UUID


class OffsetCommitRequestPartition(Struct):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = ignorable("6+", -1)
    committed_metadata: String | None


class OffsetCommitRequestTopic(Struct):
    name: String = ignorable("0-9", "")
    topic_id: Uuid = ignorable("10+", ZERO_UUID)
    partitions: list[OffsetCommitRequestPartition]


class OffsetCommitRequest(Request, api=apis.OFFSET_COMMIT):
    group_id: String
    generation_id_or_member_epoch: Int32 = -1  # -1: no member
    member_id: String
    group_instance_id: String | None = at("7+", None)
    retention_time_ms: Int64 = ignorable("2-4", -1)
    topics: list[OffsetCommitRequestTopic]


class OffsetCommitResponsePartition(Struct):
    partition_index: Int32
    error_code: Int16


class OffsetCommitResponseTopic(Struct):
    name: String = ignorable("0-9", "")
    topic_id: Uuid = ignorable("10+", ZERO_UUID)
    partitions: list[OffsetCommitResponsePartition]


class OffsetCommitResponse(Response, api=apis.OFFSET_COMMIT):
    throttle_time_ms: Int32 = ignorable("3+", 0)
    topics: list[OffsetCommitResponseTopic]
