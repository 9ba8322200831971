"""IncrementalAlterConfigs (44), versions 0 to 1: sets, removes or extends single configuration values.

1 is flexible.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct
from ottla.wire.types import Bool, Int8, Int16, Int32, String


class AlterableConfig(Struct):
    name: String
    config_operation: Int8  # 0 set, 1 delete, 2 append, 3 subtract
    value: String | None


class AlterConfigsResource(Struct):
    resource_type: Int8
    resource_name: String
    configs: list[AlterableConfig]


class IncrementalAlterConfigsRequest(Request, api=apis.INCREMENTAL_ALTER_CONFIGS):
    resources: list[AlterConfigsResource]
    validate_only: Bool


class AlterConfigsResourceResponse(Struct):
    error_code: Int16
    error_message: String | None = None
    resource_type: Int8
    resource_name: String


class IncrementalAlterConfigsResponse(Response, api=apis.INCREMENTAL_ALTER_CONFIGS):
    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse]
