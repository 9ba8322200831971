"""ListConfigResources (74), versions 0 to 1: lists resources that have configurations.

Flexible from the start; 0 lists only client metrics; 1 any kind.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct, at, ignorable
from ottla.wire.types import Int8, Int16, Int32, String


class ListConfigResourcesRequest(Request, api=apis.LIST_CONFIG_RESOURCES):
    resource_types: list[Int8] = at("1+", [])


class ConfigResource(Struct):
    resource_name: String
    resource_type: Int8 = ignorable("1+", 16)


class ListConfigResourcesResponse(Response, api=apis.LIST_CONFIG_RESOURCES):
    throttle_time_ms: Int32 = 0
    error_code: Int16
    config_resources: list[ConfigResource]
