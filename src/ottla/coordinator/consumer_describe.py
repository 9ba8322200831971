"""ConsumerGroupDescribe: what there is to say of a consumer group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ottla.coordinator.consumer_epoch import preferred_assignor
from ottla.coordinator.consumer_group import ConsumerGroup
from ottla.coordinator.consumer_member import Held
from ottla.coordinator.consumer_member import Member as GroupMember
from ottla.coordinator.topics_view import TopicsView
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group_describe import Assignment, DescribedGroup, Member, TopicPartitions
from ottla.wire.texts import shortened

if TYPE_CHECKING:
    from ottla.coordinator.group_machine import GroupMachine

CLASSIC_TYPE = 0
CONSUMER_TYPE = 1


def describe_consumer_group(machine: GroupMachine, group_id: str) -> DescribedGroup:
    group = machine.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        what = "Group {} not found." if group is None else "Group {} is not a consumer group."
        return undescribed(group_id, ErrorCode.GROUP_ID_NOT_FOUND, what.format(group_id))
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=preferred_assignor(group),
        members=[_member(machine.topics, group, member) for member in group.members.values()],
    )


def undescribed(group_id: str, code: ErrorCode, message: str | None = None) -> DescribedGroup:
    return DescribedGroup(
        error_code=code,
        error_message=None if message is None else shortened(message),
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )


def _member(topics: TopicsView, group: ConsumerGroup, member: GroupMember) -> Member:
    profile, progress = member.profile, member.progress
    return Member(
        member_id=member.member_id,
        instance_id=profile.instance_id,
        rack_id=profile.rack_id,
        member_epoch=progress.epoch,
        client_id=profile.client_id,
        client_host=profile.client_host,
        subscribed_topic_names=sorted(profile.topic_names),
        subscribed_topic_regex=profile.regex,
        assignment=_assignment(topics, _together(progress.assigned, progress.revoking)),
        target_assignment=_assignment(topics, group.target_of(member.member_id)),
        member_type=CLASSIC_TYPE if member.is_classic else CONSUMER_TYPE,
    )


def _together(assigned: Held, revoking: Held) -> dict[bytes, set[int]]:
    topic_ids = assigned.keys() | revoking.keys()
    return {topic_id: {*assigned.get(topic_id, ()), *revoking.get(topic_id, ())} for topic_id in topic_ids}


def _assignment(topics: TopicsView, partitions: Mapping[bytes, Iterable[int]]) -> Assignment:
    """Topics that exist no more have no name to be shown by."""
    by_id = topics.by_id
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=by_id[topic_id].name, partitions=sorted(numbers))
            for topic_id, numbers in partitions.items()
            if topic_id in by_id
        ]
    )
