"""DescribeGroups: what a classic group looks like from outside."""

from __future__ import annotations

from ottla.coordinator.classic.generation import ClassicState
from ottla.coordinator.classic.group import ClassicGroup
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember
from ottla.wire.texts import shortened

DEAD = "Dead"


def describe(group: ClassicGroup) -> DescribedGroup:
    """What members told of themselves shows once they have agreed on a protocol."""
    is_stable = group.state is ClassicState.STABLE
    protocol = group.protocol or "" if is_stable else ""
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state_name,
        protocol_type=group.protocol_type,
        protocol_data=protocol,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client.client_id,
                client_host=member.client.client_host,
                member_metadata=member.metadata(protocol) if is_stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )


def describe_unknown(group_id: str, code: ErrorCode, message: str | None = None) -> DescribedGroup:
    return DescribedGroup(
        error_code=code,
        error_message=None if message is None else shortened(message),
        group_id=group_id,
        group_state=DEAD if code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND) else "",
        protocol_type="",
        protocol_data="",
        members=[],
    )
