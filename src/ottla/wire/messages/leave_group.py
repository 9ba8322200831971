"""LeaveGroup (13), versions 0 to 5: takes members out of a classic group.

3 takes several members, static ones by their instance id; 4 is flexible; 5 takes a reason.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct, at, ignorable
from ottla.wire.types import Int16, Int32, String


class MemberIdentity(Struct):
    member_id: String
    group_instance_id: String | None = None
    reason: String | None = ignorable("5+", None)


class LeaveGroupRequest(Request, api=apis.LEAVE_GROUP):
    group_id: String
    member_id: String = at("0-2", "")
    members: list[MemberIdentity] = at("3+", [])


class MemberResponse(Struct):
    member_id: String
    group_instance_id: String | None
    error_code: Int16


class LeaveGroupResponse(Response, api=apis.LEAVE_GROUP):
    throttle_time_ms: Int32 = ignorable("1+", 0)
    error_code: Int16
    members: list[MemberResponse] = at("3+", [])
