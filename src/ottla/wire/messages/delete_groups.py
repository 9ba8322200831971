"""DeleteGroups (42), versions 0 to 2: deletes groups and their offsets.

2 is flexible.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct
from ottla.wire.types import Int16, Int32, String


class DeleteGroupsRequest(Request, api=apis.DELETE_GROUPS):
    groups_names: list[String]


class DeletableGroupResult(Struct):
    group_id: String
    error_code: Int16


class DeleteGroupsResponse(Response, api=apis.DELETE_GROUPS):
    throttle_time_ms: Int32 = 0
    results: list[DeletableGroupResult]
