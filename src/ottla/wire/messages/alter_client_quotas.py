"""AlterClientQuotas (49), versions 0 to 1: sets and removes the quotas of clients.

1 is flexible.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct
from ottla.wire.types import Bool, Float64, Int16, Int32, String


class EntityData(Struct):
    entity_type: String
    entity_name: String | None  # null is the default


class OpData(Struct):
    key: String
    value: Float64
    remove: Bool


class EntryData(Struct):
    entity: list[EntityData]
    ops: list[OpData]


class AlterClientQuotasRequest(Request, api=apis.ALTER_CLIENT_QUOTAS):
    entries: list[EntryData]
    validate_only: Bool


class EntryResult(Struct):
    error_code: Int16
    error_message: String | None = None
    entity: list[EntityData]


class AlterClientQuotasResponse(Response, api=apis.ALTER_CLIENT_QUOTAS):
    throttle_time_ms: Int32 = 0
    entries: list[EntryResult]
