"""DescribeConfigs (32), versions 1 to 4: shows the configuration of topics, brokers and groups.

1 tells where a value comes from; 3 its type and documentation; 4 is flexible.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct, at, ignorable
from ottla.wire.types import Bool, Int8, Int16, Int32, String


class DescribeConfigsResource(Struct):
    resource_type: Int8
    resource_name: String
    configuration_keys: list[String] | None  # null asks for all


class DescribeConfigsRequest(Request, api=apis.DESCRIBE_CONFIGS):
    resources: list[DescribeConfigsResource]
    include_synonyms: Bool = False
    include_documentation: Bool = at("3+", False)


class DescribeConfigsSynonym(Struct):
    name: String
    value: String | None
    source: Int8


class DescribeConfigsResourceResult(Struct):
    name: String
    value: String | None
    read_only: Bool
    config_source: Int8 = -1
    is_sensitive: Bool
    synonyms: list[DescribeConfigsSynonym]
    config_type: Int8 = ignorable("3+", 0)
    documentation: String | None = ignorable("3+", None)


class DescribeConfigsResult(Struct):
    error_code: Int16
    error_message: String | None = None
    resource_type: Int8
    resource_name: String
    configs: list[DescribeConfigsResourceResult]


class DescribeConfigsResponse(Response, api=apis.DESCRIBE_CONFIGS):
    throttle_time_ms: Int32 = 0
    results: list[DescribeConfigsResult]
