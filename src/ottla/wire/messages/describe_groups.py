"""DescribeGroups (15), versions 0 to 6: shows classic groups and their members.

3 tells the operations allowed; 4 static members; 5 is flexible; 6 answers unknown groups with an error.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct, at, ignorable
from ottla.wire.types import Bool, Bytes, Int16, Int32, String


class DescribeGroupsRequest(Request, api=apis.DESCRIBE_GROUPS):
    groups: list[String]
    include_authorized_operations: Bool = at("3+", False)


class DescribedGroupMember(Struct):
    member_id: String
    group_instance_id: String | None = ignorable("4+", None)
    client_id: String
    client_host: String
    member_metadata: Bytes
    member_assignment: Bytes


class DescribedGroup(Struct):
    error_code: Int16
    error_message: String | None = at("6+", None)
    group_id: String
    group_state: String
    protocol_type: String
    protocol_data: String
    members: list[DescribedGroupMember]
    authorized_operations: Int32 = at("3+", -2147483648)


class DescribeGroupsResponse(Response, api=apis.DESCRIBE_GROUPS):
    throttle_time_ms: Int32 = ignorable("1+", 0)
    groups: list[DescribedGroup]
