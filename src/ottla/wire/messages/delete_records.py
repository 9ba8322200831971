"""DeleteRecords (21), versions 0 to 2: moves the start of partitions forward.

2 is flexible.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct
from ottla.wire.types import Int16, Int32, Int64, String


class DeleteRecordsPartition(Struct):
    partition_index: Int32
    offset: Int64  # -1 is the high watermark


class DeleteRecordsTopic(Struct):
    name: String
    partitions: list[DeleteRecordsPartition]


class DeleteRecordsRequest(Request, api=apis.DELETE_RECORDS):
    topics: list[DeleteRecordsTopic]
    timeout_ms: Int32


class DeleteRecordsPartitionResult(Struct):
    partition_index: Int32
    low_watermark: Int64
    error_code: Int16


class DeleteRecordsTopicResult(Struct):
    name: String
    partitions: list[DeleteRecordsPartitionResult]


class DeleteRecordsResponse(Response, api=apis.DELETE_RECORDS):
    throttle_time_ms: Int32 = 0
    topics: list[DeleteRecordsTopicResult]
