"""EndTxn (26), versions 0 to 5: commits or aborts a transaction.

2 knows that producers are fenced; 3 is flexible; 4 knows of abortable errors; 5 raises the epoch with
each transaction and answers with it.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, ignorable
from ottla.wire.types import Bool, Int16, Int32, Int64, String


class EndTxnRequest(Request, api=apis.END_TXN):
    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    committed: Bool  # false aborts


class EndTxnResponse(Response, api=apis.END_TXN):
    throttle_time_ms: Int32 = 0
    error_code: Int16
    producer_id: Int64 = ignorable("5+", -1)
    producer_epoch: Int16 = ignorable("5+", -1)
