"""OffsetFetch (9), versions 1 to 10: reads the committed offsets of groups.

2 takes null for all topics; 5 tells leader epochs; 6 is flexible; 7 can wait for open transactions; 8
asks for several groups; 9 checks a member of a new consumer group; 10 names topics by id.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct, at, ignorable
from ottla.wire.types import Bool, Int16, Int32, Int64, String, Uuid
from ottla.wire.uuids import ZERO_UUID


class OffsetFetchRequestTopic(Struct):
    name: String
    partition_indexes: list[Int32]


class OffsetFetchRequestTopics(Struct):
    name: String = ignorable("8-9", "")
    topic_id: Uuid = ignorable("10+", ZERO_UUID)
    partition_indexes: list[Int32]


class OffsetFetchRequestGroup(Struct):
    group_id: String
    member_id: String | None = ignorable("9+", None)
    member_epoch: Int32 = ignorable("9+", -1)
    topics: list[OffsetFetchRequestTopics] | None  # null asks for all


class OffsetFetchRequest(Request, api=apis.OFFSET_FETCH):
    group_id: String = at("0-7", "")
    topics: list[OffsetFetchRequestTopic] | None = at("0-7", [], nullable="2-7")  # null asks for all
    groups: list[OffsetFetchRequestGroup] = at("8+", [])
    require_stable: Bool = at("7+", False)


class OffsetFetchResponsePartition(Struct):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = ignorable("5-7", -1)
    metadata: String | None
    error_code: Int16


class OffsetFetchResponseTopic(Struct):
    name: String
    partitions: list[OffsetFetchResponsePartition]


class OffsetFetchResponsePartitions(Struct):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = -1
    metadata: String | None
    error_code: Int16


class OffsetFetchResponseTopics(Struct):
    name: String = ignorable("8-9", "")
    topic_id: Uuid = ignorable("10+", ZERO_UUID)
    partitions: list[OffsetFetchResponsePartitions]


class OffsetFetchResponseGroup(Struct):
    group_id: String
    topics: list[OffsetFetchResponseTopics]
    error_code: Int16 = 0


class OffsetFetchResponse(Response, api=apis.OFFSET_FETCH):
    throttle_time_ms: Int32 = ignorable("3+", 0)
    topics: list[OffsetFetchResponseTopic] = at("0-7", [])
    error_code: Int16 = ignorable("2-7", 0)
    groups: list[OffsetFetchResponseGroup] = at("8+", [])
