"""DescribeTransactions (65), version 0: shows the state of transactional ids.

Flexible from the start.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct
from ottla.wire.types import Int16, Int32, Int64, String


class DescribeTransactionsRequest(Request, api=apis.DESCRIBE_TRANSACTIONS):
    transactional_ids: list[String]


class TopicData(Struct):
    topic: String
    partitions: list[Int32]


class TransactionState(Struct):
    error_code: Int16
    transactional_id: String
    transaction_state: String
    transaction_timeout_ms: Int32
    transaction_start_time_ms: Int64
    producer_id: Int64
    producer_epoch: Int16
    topics: list[TopicData]


class DescribeTransactionsResponse(Response, api=apis.DESCRIBE_TRANSACTIONS):
    throttle_time_ms: Int32 = 0
    transaction_states: list[TransactionState]
