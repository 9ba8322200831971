"""TxnOffsetCommit (28), versions 0 to 5: keeps the offsets of a group as part of a transaction.

2 adds the leader epoch; 3 is flexible and checks the member; 4 knows of abortable errors; 5 adds the
group to the transaction by itself.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct, at, ignorable
from ottla.wire.types import Int16, Int32, Int64, String


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = ignorable("2+", -1)
    committed_metadata: String | None


class TxnOffsetCommitRequestTopic(Struct):
    name: String
    partitions: list[TxnOffsetCommitRequestPartition]


class TxnOffsetCommitRequest(Request, api=apis.TXN_OFFSET_COMMIT):
    transactional_id: String
    group_id: String
    producer_id: Int64
    producer_epoch: Int16
    generation_id: Int32 = at("3+", -1)
    member_id: String = at("3+", "")
    group_instance_id: String | None = at("3+", None)
    topics: list[TxnOffsetCommitRequestTopic]


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: Int32
    error_code: Int16


class TxnOffsetCommitResponseTopic(Struct):
    name: String
    partitions: list[TxnOffsetCommitResponsePartition]


class TxnOffsetCommitResponse(Response, api=apis.TXN_OFFSET_COMMIT):
    throttle_time_ms: Int32 = 0
    topics: list[TxnOffsetCommitResponseTopic]
