"""Forward (30001), version 0: a broker has the controller answer a request that came to it.

Ottla's own: it is not advertised. Flexible from the start.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response
from ottla.wire.types import Bytes, Int16, Int32, Int64, String


class ForwardRequest(Request, api=apis.FORWARD):
    broker_id: Int32  # to which it came
    api_key: Int16
    api_version: Int16
    client_id: String
    listener: String
    principal: String
    body: Bytes


class ForwardResponse(Response, api=apis.FORWARD):
    error_code: Int16 = 0
    controller_epoch: Int32 = -1
    position: Int64 = -1  # of the feed when the answer was given
    body: Bytes = b""
