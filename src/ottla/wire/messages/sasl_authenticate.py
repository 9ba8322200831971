"""SaslAuthenticate (36), versions 0 to 2: carries the tokens of SASL.

1 tells how long the session lives; 2 is flexible.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, ignorable
from ottla.wire.types import Bytes, Int16, Int64, String


class SaslAuthenticateRequest(Request, api=apis.SASL_AUTHENTICATE):
    auth_bytes: Bytes


class SaslAuthenticateResponse(Response, api=apis.SASL_AUTHENTICATE):
    error_code: Int16
    error_message: String | None = None
    auth_bytes: Bytes
    session_lifetime_ms: Int64 = ignorable("1+", 0)  # 0: endless
