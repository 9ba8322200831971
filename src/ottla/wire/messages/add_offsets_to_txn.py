"""AddOffsetsToTxn (25), versions 0 to 4: adds the offsets of a group to a transaction.

2 knows that producers are fenced; 3 is flexible; 4 knows of abortable errors.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response
from ottla.wire.types import Int16, Int32, Int64, String


class AddOffsetsToTxnRequest(Request, api=apis.ADD_OFFSETS_TO_TXN):
    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    group_id: String


class AddOffsetsToTxnResponse(Response, api=apis.ADD_OFFSETS_TO_TXN):
    throttle_time_ms: Int32 = 0
    error_code: Int16
