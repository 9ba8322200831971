"""Heartbeat (12), versions 0 to 4: says that a member of a classic group lives.

3 has static members; 4 is flexible.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, at, ignorable
from ottla.wire.types import Int16, Int32, String


class HeartbeatRequest(Request, api=apis.HEARTBEAT):
    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: String | None = at("3+", None)


class HeartbeatResponse(Response, api=apis.HEARTBEAT):
    throttle_time_ms: Int32 = ignorable("1+", 0)
    error_code: Int16
