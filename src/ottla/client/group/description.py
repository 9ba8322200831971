"""What a coordinator tells of a group and its members, whichever protocol they follow."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.client.admin.types import GroupDescription, GroupMember
from ottla.client.errors import raise_for
from ottla.client.group.blobs import read_assignment
from ottla.client.group.coordinator import Coordinator
from ottla.client.group.offsets import TopicPartition
from ottla.wire.apis import CONSUMER_GROUP_DESCRIBE
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    Member,
)
from ottla.wire.messages.consumer_protocol import decode_subscription
from ottla.wire.messages.describe_groups import DescribedGroupMember, DescribeGroupsRequest, DescribeGroupsResponse
from ottla.wire.parts import Buffer

CONSUMER = "consumer"
CLASSIC = "classic"
_CLASSIC_MEMBER = 0
_DEAD = "Dead"  # what older versions say of a group that is not there
_NOT_OF_THIS_PROTOCOL = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)


async def describe_group(coordinator: Coordinator, group_id: str) -> GroupDescription:
    """Nobody knows beforehand which protocol a group follows, so it is asked for by the new one first."""
    return await _describe_consumer(coordinator, group_id) or await _describe_classic(coordinator, group_id)


async def _describe_consumer(coordinator: Coordinator, group_id: str) -> GroupDescription | None:
    cluster = coordinator.cluster
    if await cluster.retry(lambda: cluster.highest_version(CONSUMER_GROUP_DESCRIBE)) < 0:
        return None
    request = ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
    answer = await coordinator.ask_patiently(
        request, ConsumerGroupDescribeResponse, lambda answer: answer.groups[0].error_code
    )
    [row] = answer.groups
    if row.error_code in _NOT_OF_THIS_PROTOCOL:
        return None
    raise_for(row.error_code, row.error_message, about=coordinator.about)
    return GroupDescription(
        group_id,
        CONSUMER,
        row.group_state,
        CONSUMER,
        row.assignor_name,
        await coordinator.find(),
        row.group_epoch,
        row.assignment_epoch,
        _in_order(map(_consumer_member, row.members)),
    )


async def _describe_classic(coordinator: Coordinator, group_id: str) -> GroupDescription:
    request = DescribeGroupsRequest(groups=[group_id])
    answer = await coordinator.ask_patiently(
        request, DescribeGroupsResponse, lambda answer: answer.groups[0].error_code
    )
    [row] = answer.groups
    raise_for(row.error_code, row.error_message, about=coordinator.about)
    if row.group_state == _DEAD:
        raise_for(ErrorCode.GROUP_ID_NOT_FOUND, about=coordinator.about)
    is_of_consumers = row.protocol_type in (CONSUMER, "")
    return GroupDescription(
        group_id,
        CLASSIC,
        row.group_state,
        row.protocol_type,
        row.protocol_data,
        await coordinator.find(),
        None,
        None,
        _in_order(_classic_member(member, is_of_consumers=is_of_consumers) for member in row.members),
    )


def _in_order(members: Iterable[GroupMember]) -> tuple[GroupMember, ...]:
    return tuple(sorted(members, key=lambda member: member.member_id))


def _consumer_member(row: Member) -> GroupMember:
    return GroupMember(
        row.member_id,
        row.instance_id,
        row.client_id,
        _host(row.client_host),
        row.member_epoch,
        row.member_type == _CLASSIC_MEMBER,
        tuple(row.subscribed_topic_names),
        row.subscribed_topic_regex or None,
        _places(row.assignment),
        _places(row.target_assignment),
    )


def _classic_member(row: DescribedGroupMember, *, is_of_consumers: bool) -> GroupMember:
    """Only consumers are known to tell each other in Kafka's formats what they subscribe to."""
    topics = _topics(row.member_metadata) if is_of_consumers else ()
    assignment = _assigned(row.member_assignment) if is_of_consumers else frozenset()
    return GroupMember(
        row.member_id,
        row.group_instance_id,
        row.client_id,
        _host(row.client_host),
        None,
        True,
        topics,
        None,
        assignment,
        assignment,
    )


def _host(told: str) -> str:
    """Java writes an address behind a name that it does not look up."""
    return told.removeprefix("/")


def _places(assignment: Assignment) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(topic.topic_name, index) for topic in assignment.topic_partitions for index in topic.partitions
    )


def _topics(metadata: Buffer) -> tuple[str, ...]:
    try:
        return tuple(decode_subscription(metadata).topics) if metadata else ()
    except ProtocolError:
        return ()


def _assigned(assignment: Buffer) -> frozenset[TopicPartition]:
    try:
        return frozenset(read_assignment(assignment))
    except ProtocolError:
        return frozenset()
