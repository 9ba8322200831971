"""ListGroups (16), versions 0 to 5: lists the groups that a broker coordinates.

3 is flexible; 4 filters by state; 5 by type.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct, at, ignorable
from ottla.wire.types import Int16, Int32, String


class ListGroupsRequest(Request, api=apis.LIST_GROUPS):
    states_filter: list[String] = at("4+", [])
    types_filter: list[String] = at("5+", [])


class ListedGroup(Struct):
    group_id: String
    protocol_type: String
    group_state: String = ignorable("4+", "")
    group_type: String = ignorable("5+", "")


class ListGroupsResponse(Response, api=apis.LIST_GROUPS):
    throttle_time_ms: Int32 = ignorable("1+", 0)
    error_code: Int16
    groups: list[ListedGroup]
