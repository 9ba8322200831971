"""ListTransactions (66), versions 0 to 2: lists the transactional ids that a broker coordinates.

Flexible from the start; 1 filters by duration; 2 by a pattern of the id.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct, at
from ottla.wire.types import Int16, Int32, Int64, String


class ListTransactionsRequest(Request, api=apis.LIST_TRANSACTIONS):
    state_filters: list[String]
    producer_id_filters: list[Int64]
    duration_filter: Int64 = at("1+", -1)
    transactional_id_pattern: String | None = at("2+", None)


class TransactionState(Struct):
    transactional_id: String
    producer_id: Int64
    transaction_state: String


class ListTransactionsResponse(Response, api=apis.LIST_TRANSACTIONS):
    throttle_time_ms: Int32 = 0
    error_code: Int16
    unknown_state_filters: list[String]
    transaction_states: list[TransactionState]
