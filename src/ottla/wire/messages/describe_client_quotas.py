"""DescribeClientQuotas (48), versions 0 to 1: shows the quotas of clients.

1 is flexible.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct
from ottla.wire.types import Bool, Float64, Int8, Int16, Int32, String


class ComponentData(Struct):
    entity_type: String
    match_type: Int8
    match: String | None


class DescribeClientQuotasRequest(Request, api=apis.DESCRIBE_CLIENT_QUOTAS):
    components: list[ComponentData]
    strict: Bool


class EntityData(Struct):
    entity_type: String
    entity_name: String | None


class ValueData(Struct):
    key: String
    value: Float64


class EntryData(Struct):
    entity: list[EntityData]
    values: list[ValueData]


class DescribeClientQuotasResponse(Response, api=apis.DESCRIBE_CLIENT_QUOTAS):
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: String | None = None
    entries: list[EntryData] | None
