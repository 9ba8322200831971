"""AlterConfigs (33), versions 0 to 2: replaces the configuration of topics and brokers.

2 is flexible. IncrementalAlterConfigs has taken its place.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct
from ottla.wire.types import Bool, Int8, Int16, Int32, String


class AlterableConfig(Struct):
    name: String
    value: String | None


class AlterConfigsResource(Struct):
    resource_type: Int8
    resource_name: String
    configs: list[AlterableConfig]


class AlterConfigsRequest(Request, api=apis.ALTER_CONFIGS):
    resources: list[AlterConfigsResource]
    validate_only: Bool


class AlterConfigsResourceResponse(Struct):
    error_code: Int16
    error_message: String | None = None
    resource_type: Int8
    resource_name: String


class AlterConfigsResponse(Response, api=apis.ALTER_CONFIGS):
    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse]
