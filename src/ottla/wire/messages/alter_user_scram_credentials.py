"""AlterUserScramCredentials (51), version 0: sets and removes SCRAM credentials of users.

Flexible from the start.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct
from ottla.wire.types import Bytes, Int8, Int16, Int32, String


class ScramCredentialDeletion(Struct):
    name: String
    mechanism: Int8


class ScramCredentialUpsertion(Struct):
    name: String
    mechanism: Int8
    iterations: Int32
    salt: Bytes
    salted_password: Bytes


class AlterUserScramCredentialsRequest(Request, api=apis.ALTER_USER_SCRAM_CREDENTIALS):
    deletions: list[ScramCredentialDeletion]
    upsertions: list[ScramCredentialUpsertion]


class AlterUserScramCredentialsResult(Struct):
    user: String
    error_code: Int16
    error_message: String | None = None


class AlterUserScramCredentialsResponse(Response, api=apis.ALTER_USER_SCRAM_CREDENTIALS):
    throttle_time_ms: Int32 = 0
    results: list[AlterUserScramCredentialsResult]
