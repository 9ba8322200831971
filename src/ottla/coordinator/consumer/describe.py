"""ConsumerGroupDescribe: what there is to say of a consumer group."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from ottla.coordinator.consumer.group import ConsumerGroup
from ottla.coordinator.consumer.member import Held
from ottla.coordinator.consumer.member import Member as GroupMember
from ottla.coordinator.topics_view import TopicsView
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group_describe import Assignment, DescribedGroup, Member, TopicPartitions
from ottla.wire.texts import shortened

if TYPE_CHECKING:
    from ottla.coordinator.group_machine import GroupMachine

T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]

MEMBERS_AT_ONCE = 50  # described in a step
TOPICS_AT_ONCE = 300  # of a member
CLASSIC_TYPE = 0
CONSUMER_TYPE = 1


def describe_consumer_group(machine: GroupMachine, group_id: str) -> DescribedGroup | Steps[DescribedGroup]:
    """A description, or the steps that make it of what there is now."""
    group = machine.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        what = "Group {} not found." if group is None else "Group {} is not a consumer group."
        return undescribed(group_id, ErrorCode.GROUP_ID_NOT_FOUND, what.format(group_id))
    described = DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target.epoch,
        assignor_name=group.target.preferred_assignor(group.members.values()),
        members=[],
    )
    members = [(member, group.target_of(member_id)) for member_id, member in group.members.items()]
    return _describe_members(machine.topics, described, members)


def _describe_members(
    topics: TopicsView, described: DescribedGroup, members: Sequence[tuple[GroupMember, Mapping[bytes, frozenset[int]]]]
) -> Steps[DescribedGroup]:
    for number, (member, target) in enumerate(members, start=1):
        described.members.append((yield from _member(topics, member, target)))
        if not number % MEMBERS_AT_ONCE:
            yield
    return described


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


def _member(topics: TopicsView, member: GroupMember, target: Mapping[bytes, frozenset[int]]) -> Steps[Member]:
    profile, progress = member.profile, member.progress
    assigned = yield from _assignment(topics, _together(progress.assigned, progress.revoking))
    target_assignment = yield from _assignment(topics, target)
    return Member(
        member_id=member.member_id,
        instance_id=profile.instance_id,
        rack_id=profile.rack_id,
        member_epoch=progress.epoch,
        client_id=profile.client_id,
        client_host=profile.client_host,
        subscribed_topic_names=sorted(profile.topic_names),
        subscribed_topic_regex=profile.regex,
        assignment=assigned,
        target_assignment=target_assignment,
        member_type=CLASSIC_TYPE if member.is_classic else CONSUMER_TYPE,
    )


def _together(assigned: Held, revoking: Held) -> Mapping[bytes, Iterable[int]]:
    if not revoking:
        return assigned
    topic_ids = assigned.keys() | revoking.keys()
    return {topic_id: {*assigned.get(topic_id, ()), *revoking.get(topic_id, ())} for topic_id in topic_ids}


def _assignment(topics: TopicsView, partitions: Mapping[bytes, Iterable[int]]) -> Steps[Assignment]:
    """Topics that exist no more have no name to be shown by."""
    by_id = topics.by_id
    shown = []
    for number, (topic_id, numbers) in enumerate(partitions.items(), start=1):
        if topic_id in by_id:
            name = by_id[topic_id].name
            shown.append(TopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(numbers)))
        if not number % TOPICS_AT_ONCE:
            yield
    return Assignment(topic_partitions=shown)
