"""WriteTxnMarkers (27), versions 1 to 2: ends a transaction in its partitions.

The coordinator sends it to their leaders. 1 is flexible; 2 tells the transaction version.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct, ignorable
from ottla.wire.types import Bool, Int8, Int16, Int32, Int64, String


class WritableTxnMarkerTopic(Struct):
    name: String
    partition_indexes: list[Int32]


class WritableTxnMarker(Struct):
    producer_id: Int64
    producer_epoch: Int16
    transaction_result: Bool  # false aborts
    topics: list[WritableTxnMarkerTopic]
    coordinator_epoch: Int32
    transaction_version: Int8 = ignorable("2+", 0)


class WriteTxnMarkersRequest(Request, api=apis.WRITE_TXN_MARKERS):
    markers: list[WritableTxnMarker]


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: Int32
    error_code: Int16


class WritableTxnMarkerTopicResult(Struct):
    name: String
    partitions: list[WritableTxnMarkerPartitionResult]


class WritableTxnMarkerResult(Struct):
    producer_id: Int64
    topics: list[WritableTxnMarkerTopicResult]


class WriteTxnMarkersResponse(Response, api=apis.WRITE_TXN_MARKERS):
    markers: list[WritableTxnMarkerResult]
