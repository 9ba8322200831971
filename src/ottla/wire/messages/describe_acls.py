"""DescribeAcls (29), versions 1 to 3: lists the access rules that match.

1 has patterns; 2 is flexible; 3 knows of users as resources.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct
from ottla.wire.types import Int8, Int16, Int32, String


class DescribeAclsRequest(Request, api=apis.DESCRIBE_ACLS):
    resource_type_filter: Int8
    resource_name_filter: String | None
    pattern_type_filter: Int8 = 3
    principal_filter: String | None
    host_filter: String | None
    operation: Int8
    permission_type: Int8


class AclDescription(Struct):
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


class DescribeAclsResource(Struct):
    resource_type: Int8
    resource_name: String
    pattern_type: Int8 = 3
    acls: list[AclDescription]


class DescribeAclsResponse(Response, api=apis.DESCRIBE_ACLS):
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: String | None = None
    resources: list[DescribeAclsResource]
