"""DescribeUserScramCredentials (50), version 0: shows which SCRAM credentials users have, never the secrets.

Flexible from the start.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct
from ottla.wire.types import Int8, Int16, Int32, String


class UserName(Struct):
    name: String


class DescribeUserScramCredentialsRequest(Request, api=apis.DESCRIBE_USER_SCRAM_CREDENTIALS):
    users: list[UserName] | None  # null asks for all


class CredentialInfo(Struct):
    mechanism: Int8
    iterations: Int32


class DescribeUserScramCredentialsResult(Struct):
    user: String
    error_code: Int16
    error_message: String | None = None
    credential_infos: list[CredentialInfo]


class DescribeUserScramCredentialsResponse(Response, api=apis.DESCRIBE_USER_SCRAM_CREDENTIALS):
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: String | None = None
    results: list[DescribeUserScramCredentialsResult]
