"""CreateAcls (30), versions 1 to 3: adds access rules.

1 has patterns; 2 is flexible; 3 knows of users as resources.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct
from ottla.wire.types import Int8, Int16, Int32, String


class AclCreation(Struct):
    resource_type: Int8
    resource_name: String
    resource_pattern_type: Int8 = 3
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


class CreateAclsRequest(Request, api=apis.CREATE_ACLS):
    creations: list[AclCreation]


class AclCreationResult(Struct):
    error_code: Int16
    error_message: String | None = None


class CreateAclsResponse(Response, api=apis.CREATE_ACLS):
    throttle_time_ms: Int32 = 0
    results: list[AclCreationResult]
