"""UnregisterBroker (64), version 0: removes a broker from the cluster's metadata.

Flexible from the start.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response
from ottla.wire.types import Int16, Int32, String


class UnregisterBrokerRequest(Request, api=apis.UNREGISTER_BROKER):
    broker_id: Int32


class UnregisterBrokerResponse(Response, api=apis.UNREGISTER_BROKER):
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: String | None = None
