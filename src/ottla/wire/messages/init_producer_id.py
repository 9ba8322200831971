"""InitProducerId (22), versions 0 to 5: gives a producer its id and epoch, and fences its predecessors.

2 is flexible; 3 passes the current id and epoch, to go on after an error; 4 knows that producers are
fenced; 5 of abortable errors. Kafka defines 6, for two-phase commit, but does not advertise it.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, at
from ottla.wire.types import Int16, Int32, Int64, String


class InitProducerIdRequest(Request, api=apis.INIT_PRODUCER_ID):
    transactional_id: String | None  # null: idempotent only
    transaction_timeout_ms: Int32
    producer_id: Int64 = at("3+", -1)
    producer_epoch: Int16 = at("3+", -1)


class InitProducerIdResponse(Response, api=apis.INIT_PRODUCER_ID):
    throttle_time_ms: Int32 = 0
    error_code: Int16
    producer_id: Int64 = -1
    producer_epoch: Int16
