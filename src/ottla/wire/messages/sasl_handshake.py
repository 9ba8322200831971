"""SaslHandshake (17), versions 0 to 1: chooses the SASL mechanism.

After 0 the tokens follow bare on the connection, after 1 in SaslAuthenticate. Never flexible.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response
from ottla.wire.types import Int16, String


class SaslHandshakeRequest(Request, api=apis.SASL_HANDSHAKE):
    mechanism: String


class SaslHandshakeResponse(Response, api=apis.SASL_HANDSHAKE):
    error_code: Int16
    mechanisms: list[String]
