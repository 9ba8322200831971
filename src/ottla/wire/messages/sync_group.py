"""SyncGroup (14), versions 0 to 5: hands a generation's assignment from the leader to the members.

3 has static members; 4 is flexible; 5 checks that both sides mean the same protocol.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct, at, ignorable
from ottla.wire.types import Bytes, Int16, Int32, String


class SyncGroupRequestAssignment(Struct):
    member_id: String
    assignment: Bytes


class SyncGroupRequest(Request, api=apis.SYNC_GROUP):
    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: String | None = at("3+", None)
    protocol_type: String | None = ignorable("5+", None)
    protocol_name: String | None = ignorable("5+", None)
    assignments: list[SyncGroupRequestAssignment]


class SyncGroupResponse(Response, api=apis.SYNC_GROUP):
    throttle_time_ms: Int32 = ignorable("1+", 0)
    error_code: Int16
    protocol_type: String | None = ignorable("5+", None)
    protocol_name: String | None = ignorable("5+", None)
    assignment: Bytes
