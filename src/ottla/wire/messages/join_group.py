"""JoinGroup (11), versions 0 to 9: makes a member part of a classic group and starts its next generation.

1 has a rebalance timeout of its own; 4 hands out the member id before the join; 5 has static members; 6
is flexible; 7 answers with the protocol type; 8 takes a reason; 9 tells a returning static leader to skip
the assignment.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct, at, ignorable
from ottla.wire.types import Bool, Bytes, Int16, Int32, String


class JoinGroupRequestProtocol(Struct):
    name: String
    metadata: Bytes


class JoinGroupRequest(Request, api=apis.JOIN_GROUP):
    group_id: String
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32 = ignorable("1+", -1)
    member_id: String
    group_instance_id: String | None = at("5+", None)
    protocol_type: String
    protocols: list[JoinGroupRequestProtocol]
    reason: String | None = ignorable("8+", None)


class JoinGroupResponseMember(Struct):
    member_id: String
    group_instance_id: String | None = ignorable("5+", None)
    metadata: Bytes


class JoinGroupResponse(Response, api=apis.JOIN_GROUP):
    throttle_time_ms: Int32 = ignorable("2+", 0)
    error_code: Int16
    generation_id: Int32 = -1
    protocol_type: String | None = ignorable("7+", None)
    protocol_name: String | None = at("0+", None, nullable="7+")
    leader: String
    skip_assignment: Bool = at("9+", False)
    member_id: String
    members: list[JoinGroupResponseMember]
