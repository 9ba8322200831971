"""Produce (0), versions 3 to 13: appends record batches to partitions.

Versions 0-2 are advertised only: they carried older record formats. 5 answers with the log's start; 7
allows zstd; 8 says which records were refused; 9 is flexible; 10 hints at the new leader; 12 adds
partitions to the transaction by itself; 13 names topics by id.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct, ignorable, tagged
from ottla.wire.types import Int16, Int32, Int64, Records, String, Uuid
from ottla.wire.uuids import ZERO_UUID


class PartitionProduceData(Struct):
    index: Int32
    records: Records | None


class TopicProduceData(Struct):
    name: String = ignorable("0-12", "")
    topic_id: Uuid = ignorable("13+", ZERO_UUID)
    partition_data: list[PartitionProduceData]


class ProduceRequest(Request, api=apis.PRODUCE):
    transactional_id: String | None = None
    acks: Int16  # -1 all in-sync replicas, 0 no answer, 1 the leader
    timeout_ms: Int32
    topic_data: list[TopicProduceData]


class BatchIndexAndErrorMessage(Struct):
    batch_index: Int32
    batch_index_error_message: String | None = None


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class PartitionProduceResponse(Struct):
    index: Int32
    error_code: Int16
    base_offset: Int64
    log_append_time_ms: Int64 = -1  # -1 unless the broker stamps the records
    log_start_offset: Int64 = ignorable("5+", -1)
    record_errors: list[BatchIndexAndErrorMessage] = ignorable("8+", [])
    error_message: String | None = ignorable("8+", None)
    current_leader: LeaderIdAndEpoch | None = tagged(0, "10+", None)


class TopicProduceResponse(Struct):
    name: String = ignorable("0-12", "")
    topic_id: Uuid = ignorable("13+", ZERO_UUID)
    partition_responses: list[PartitionProduceResponse]


class NodeEndpoint(Struct):
    node_id: Int32
    host: String
    port: Int32
    rack: String | None = None


class ProduceResponse(Response, api=apis.PRODUCE):
    responses: list[TopicProduceResponse]
    throttle_time_ms: Int32 = 0
    node_endpoints: list[NodeEndpoint] = tagged(0, "10+", [])
