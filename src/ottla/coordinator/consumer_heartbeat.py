"""ConsumerGroupHeartbeat: by which members join, stay in, change what they subscribe to, and leave.

First everything is checked, then records are written: what an operation has written stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.classic_group import ClassicGroup
from ottla.coordinator.consumer_admission import Admission, admit, check_epoch, check_room, find_member
from ottla.coordinator.consumer_check import check_heartbeat
from ottla.coordinator.consumer_group import ConsumerGroup
from ottla.coordinator.consumer_leave import leave_for_a_while, remove_members
from ottla.coordinator.consumer_member import AWAY_EPOCH, NEW_EPOCH, Held, Member, Profile
from ottla.coordinator.consumer_regex import compile_regex
from ottla.coordinator.consumer_step import Step, take_step
from ottla.coordinator.consumer_timers import JOIN, SYNC, cancel_timers, start_session
from ottla.coordinator.consumer_upgrade import check_upgrade, upgrade
from ottla.coordinator.group import Client
from ottla.coordinator.group_refusal import GroupRefusal
from ottla.coordinator.operation import Operation, Reply
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.wire.uuids import uuid_text

if TYPE_CHECKING:
    from ottla.coordinator.group_machine import GroupMachine


def consumer_heartbeat(
    machine: GroupMachine,
    operation: Operation,
    reply: Reply,
    request: ConsumerGroupHeartbeatRequest,
    version: int,
    client: Client,
) -> None:
    try:
        check_heartbeat(request, version, machine.consumer_settings(request.group_id).assignors)
        if request.member_epoch < NEW_EPOCH:
            response = _leave(machine, operation, request)
        else:
            if not request.member_id:
                request.member_id = uuid_text(machine.make_uuid().bytes)
            response = _beat(machine, operation, request, client)
    except GroupRefusal as refusal:
        response = refused(refusal.code, refusal.message)
    operation.answer(reply, response)


def refused(code: ErrorCode, message: str | None = None) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=code, error_message=message, member_epoch=0, heartbeat_interval_ms=0
    )


def _beat(
    machine: GroupMachine, operation: Operation, request: ConsumerGroupHeartbeatRequest, client: Client
) -> ConsumerGroupHeartbeatResponse:
    group_id = request.group_id
    admission = _admission(machine, request)
    if admission.upgraded is not None:
        admission = _joining(upgrade(machine, operation, admission.upgraded), request)
    member = admit(machine, operation, group_id, admission)
    step = Step(
        profile=_merged(member.profile, request, client),
        owned=None
        if request.topic_partitions is None
        else {topic.topic_id: frozenset(topic.partitions) for topic in request.topic_partitions},
    )
    after = take_step(machine, operation, group_id, member, step)
    group = machine.groups[group_id]
    assert isinstance(group, ConsumerGroup)
    start_session(operation, group, after)
    if member.is_classic:  # it is not any more
        cancel_timers(operation, group, member.member_id, JOIN, SYNC)
    has_news = request.member_epoch == NEW_EPOCH or _is_full(request)
    return ConsumerGroupHeartbeatResponse(
        error_code=0,
        member_id=after.member_id,
        member_epoch=after.progress.epoch,
        heartbeat_interval_ms=group.settings.heartbeat_interval_ms,
        assignment=_assignment(after.progress.assigned)
        if has_news or after.progress.assigned != member.progress.assigned
        else None,
    )


def _admission(machine: GroupMachine, request: ConsumerGroupHeartbeatRequest) -> Admission:
    """Who it is, if it may go on; nothing is written yet."""
    group = machine.groups.get(request.group_id)
    if request.member_epoch > NEW_EPOCH:
        group = _existing(group, request.group_id, "Consumer group")
        check_room(group, request.member_id)
        member = find_member(group, request.member_id, request.instance_id)
        check_epoch(member, request)
        admission = Admission(member)
    elif isinstance(group, ConsumerGroup):
        check_room(group, request.member_id)
        admission = _joining(group, request)
    elif isinstance(group, ClassicGroup) and not group.is_empty:
        check_upgrade(machine, group, request.member_id)
        admission = Admission(Member(request.member_id), upgraded=group)
    else:
        admission = Admission(Member(request.member_id), replaces_group=group is not None)
    _check_regex(group, admission.member.profile.regex, request.subscribed_topic_regex)
    return admission


def _existing(group: object, group_id: str, kind: str) -> ConsumerGroup:
    if isinstance(group, ConsumerGroup):
        return group
    what = f"{kind} {group_id} not found." if group is None else f"Group {group_id} is not a consumer group."
    raise GroupRefusal(ErrorCode.GROUP_ID_NOT_FOUND, what)


def _joining(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> Admission:
    """One that joins: it may be here already, or stand in for a static member that went away."""
    member_id = request.member_id
    owner = None if request.instance_id is None else group.static_member(request.instance_id)
    if owner is None:
        return Admission(group.members.get(member_id) or Member(member_id))
    if not owner.is_classic and not owner.is_away:
        raise GroupRefusal(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {request.instance_id} cannot join the group because the "
            f"instance id is owned by {owner.member_id} member.",
        )
    return Admission(owner, replaced_by=member_id)


def _check_regex(group: object, before: str, asked: str | None) -> None:
    """An expression that nobody has yet may be none; it is checked while nothing is written."""
    if asked and asked != before and not (isinstance(group, ConsumerGroup) and asked in group.counts.regexes):
        compile_regex(asked)


def _merged(profile: Profile, request: ConsumerGroupHeartbeatRequest, client: Client) -> Profile:
    """What is known of a member after a heartbeat, which leaves out what has not changed."""
    names, regex, timeout_ms = (
        request.subscribed_topic_names,
        request.subscribed_topic_regex,
        request.rebalance_timeout_ms,
    )
    return Profile(
        profile.instance_id if request.instance_id is None else request.instance_id,
        profile.rack_id if request.rack_id is None else request.rack_id,
        client.client_id,
        client.client_host,
        profile.topic_names if names is None else frozenset(names),
        profile.regex if regex is None else regex,
        profile.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        profile.server_assignor if request.server_assignor is None else request.server_assignor,
        None,
    )


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether it tells everything, as one does that may have missed an answer."""
    return (
        request.topic_partitions is not None
        and request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
    )


def _assignment(assigned: Held) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(numbers)) for topic_id, numbers in assigned.items()
        ]
    )


def _leave(
    machine: GroupMachine, operation: Operation, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    group = _existing(machine.groups.get(request.group_id), request.group_id, "Group")
    member = find_member(group, request.member_id, request.instance_id)
    if request.member_epoch == AWAY_EPOCH:
        leave_for_a_while(operation, group, member)
    else:
        remove_members(machine, operation, group, [member])
    return ConsumerGroupHeartbeatResponse(
        error_code=0, member_id=request.member_id, member_epoch=request.member_epoch, heartbeat_interval_ms=0
    )
