"""AddPartitionsToTxn (24), versions 0 to 5: adds partitions to a transaction.

Clients use 0-3. 3 is flexible; from 4 brokers ask for several transactions at once, or only whether a
partition is in; 5 knows of abortable errors.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct, at, ignorable
from ottla.wire.types import Bool, Int16, Int32, Int64, String


class AddPartitionsToTxnTopic(Struct):
    name: String
    partitions: list[Int32]


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    verify_only: Bool = False  # asks, adds nothing
    topics: list[AddPartitionsToTxnTopic]


class AddPartitionsToTxnRequest(Request, api=apis.ADD_PARTITIONS_TO_TXN):
    transactions: list[AddPartitionsToTxnTransaction] = at("4+", [])
    v3_and_below_transactional_id: String = at("0-3", "")
    v3_and_below_producer_id: Int64 = at("0-3", 0)
    v3_and_below_producer_epoch: Int16 = at("0-3", 0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = at("0-3", [])


class AddPartitionsToTxnTopicResult(Struct):
    name: String
    results_by_partition: list[AddPartitionsToTxnPartitionResult]


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: Int32
    partition_error_code: Int16


class AddPartitionsToTxnResult(Struct):
    transactional_id: String
    topic_results: list[AddPartitionsToTxnTopicResult]


class AddPartitionsToTxnResponse(Response, api=apis.ADD_PARTITIONS_TO_TXN):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = ignorable("4+", 0)
    results_by_transaction: list[AddPartitionsToTxnResult] = at("4+", [])
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = at("0-3", [])
