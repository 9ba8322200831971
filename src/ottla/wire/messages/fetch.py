"""Fetch (1), versions 4 to 18: reads record batches from partitions, for consumers and for followers.

7 brings fetch sessions; 9 the leader epoch; 10 allows zstd; 11 fetching from a near replica; 12 is
flexible and finds divergence by epochs; 13 names topics by id; 15 moves the replica id into a tag; 16
hints at new leaders; 18 lets a follower tell the high watermark it knows.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct, at, ignorable, tagged
from ottla.wire.types import Int8, Int16, Int32, Int64, Records, String, Uuid
from ottla.wire.uuids import ZERO_UUID


class ReplicaState(Struct):
    replica_id: Int32 = -1  # -1 is a consumer
    replica_epoch: Int64 = -1


class FetchPartition(Struct):
    partition: Int32
    current_leader_epoch: Int32 = ignorable("9+", -1)
    fetch_offset: Int64
    last_fetched_epoch: Int32 = at("12+", -1)
    log_start_offset: Int64 = ignorable("5+", -1)
    partition_max_bytes: Int32
    replica_directory_id: Uuid = tagged(0, "17+", ZERO_UUID, ignorable=True)
    high_watermark: Int64 = tagged(1, "18+", 0x7FFF_FFFF_FFFF_FFFF, ignorable=True)


class FetchTopic(Struct):
    topic: String = ignorable("0-12", "")
    topic_id: Uuid = ignorable("13+", ZERO_UUID)
    partitions: list[FetchPartition]


class ForgottenTopic(Struct):
    topic: String = ignorable("7-12", "")
    topic_id: Uuid = ignorable("13+", ZERO_UUID)
    partitions: list[Int32]


class FetchRequest(Request, api=apis.FETCH):
    cluster_id: String | None = tagged(0, "12+", None, ignorable=True)
    replica_id: Int32 = at("0-14", -1)  # -1 is a consumer
    replica_state: ReplicaState | None = tagged(1, "15+", None)
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = 0x7FFF_FFFF
    isolation_level: Int8 = 0  # 0 read uncommitted, 1 read committed
    session_id: Int32 = ignorable("7+", 0)
    session_epoch: Int32 = ignorable("7+", -1)
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic] = at("7+", [])
    rack_id: String = ignorable("11+", "")


class EpochEndOffset(Struct):
    epoch: Int32 = -1
    end_offset: Int64 = -1


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class SnapshotId(Struct):
    end_offset: Int64 = -1
    epoch: Int32 = -1


class AbortedTransaction(Struct):
    producer_id: Int64
    first_offset: Int64


class PartitionData(Struct):
    partition_index: Int32
    error_code: Int16
    high_watermark: Int64
    last_stable_offset: Int64 = -1
    log_start_offset: Int64 = ignorable("5+", -1)
    diverging_epoch: EpochEndOffset | None = tagged(0, "12+", None)
    current_leader: LeaderIdAndEpoch | None = tagged(1, "12+", None)
    snapshot_id: SnapshotId | None = tagged(2, "12+", None)
    aborted_transactions: list[AbortedTransaction] | None  # null for read uncommitted
    preferred_read_replica: Int32 = at("11+", -1)  # -1: the leader
    records: Records | None


class FetchableTopicResponse(Struct):
    topic: String = ignorable("0-12", "")
    topic_id: Uuid = ignorable("13+", ZERO_UUID)
    partitions: list[PartitionData]


class NodeEndpoint(Struct):
    node_id: Int32
    host: String
    port: Int32
    rack: String | None = None


class FetchResponse(Response, api=apis.FETCH):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = ignorable("7+", 0)
    session_id: Int32 = at("7+", 0)  # 0: no session
    responses: list[FetchableTopicResponse]
    node_endpoints: list[NodeEndpoint] = tagged(0, "16+", [])
