"""ConsumerGroupHeartbeat: by which members join, stay in, change what they subscribe to, and leave.

First everything is checked, then records are written: what an operation has written stays.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from ottla.coordinator.classic.group import ClassicGroup
from ottla.coordinator.consumer.check import check_heartbeat
from ottla.coordinator.consumer.group import ConsumerGroup
from ottla.coordinator.consumer.member import AWAY_EPOCH, NEW_EPOCH, Held, Member, MemberState, Profile
from ottla.coordinator.consumer.membership import Admission, Membership, Step, check_room, find_member
from ottla.coordinator.consumer.migration import Migration
from ottla.coordinator.consumer.regex import compile_regex
from ottla.coordinator.consumer.timers import JOIN, SYNC
from ottla.coordinator.group import Client
from ottla.coordinator.operation import Operation, Reply
from ottla.wire.errors import ApiError, ErrorCode
from ottla.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.wire.uuids import uuid_text

if TYPE_CHECKING:
    from ottla.coordinator.group_machine import GroupMachine


class Heartbeats:
    """Serves the requests."""

    def __init__(self, machine: GroupMachine) -> None:
        self._machine = machine
        self._membership = Membership(machine)
        self._migration = Migration(machine)

    def heartbeat(
        self,
        operation: Operation,
        reply: Reply,
        request: ConsumerGroupHeartbeatRequest,
        version: int,
        client: Client,
    ) -> None:
        try:
            check_heartbeat(request, version, self._machine.consumer_settings(request.group_id).assignors)
            if request.member_epoch < NEW_EPOCH:
                response = self._leave(operation, request)
            else:
                if not request.member_id:
                    request.member_id = uuid_text(self._machine.make_uuid().bytes)
                response = self._beat(operation, request, client)
        except ApiError as refusal:
            response = refused(refusal.code, refusal.message)
        operation.answer(reply, response)

    def _beat(
        self, operation: Operation, request: ConsumerGroupHeartbeatRequest, client: Client
    ) -> ConsumerGroupHeartbeatResponse:
        group_id = request.group_id
        admission = self._admission(request)
        if admission.upgraded is not None:
            admission = _joining(self._migration.upgrade(operation, admission.upgraded), request)
        member = self._membership.admit(operation, group_id, admission)
        step = Step(_merged(member.profile, request, client), functools.partial(_owned, request.topic_partitions))
        after = self._membership.take_step(operation, group_id, member, step)
        group = self._machine.groups[group_id]
        assert isinstance(group, ConsumerGroup)
        group.timers.start_session(operation, after)
        if member.is_classic:  # it is not any more
            group.timers.cancel(operation, member.member_id, JOIN, SYNC)
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

    def _admission(self, request: ConsumerGroupHeartbeatRequest) -> Admission:
        """Who it is, if it may go on; nothing is written yet."""
        group = self._machine.groups.get(request.group_id)
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
            self._migration.check_upgrade(group, request.member_id)
            admission = Admission(Member(request.member_id), upgraded=group)
        else:
            admission = Admission(Member(request.member_id), replaces_group=group is not None)
        _check_regex(group, admission.member.profile.regex, request)
        return admission

    def _leave(self, operation: Operation, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        group = _existing(self._machine.groups.get(request.group_id), request.group_id, "Group")
        member = find_member(group, request.member_id, request.instance_id)
        if request.member_epoch == AWAY_EPOCH:
            self._membership.leave_for_a_while(operation, group, member)
        else:
            self._membership.remove(operation, group, [member])
        return ConsumerGroupHeartbeatResponse(
            error_code=0, member_id=request.member_id, member_epoch=request.member_epoch, heartbeat_interval_ms=0
        )


def refused(code: ErrorCode, message: str | None = None) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=code, error_message=message, member_epoch=0, heartbeat_interval_ms=0
    )


def _existing(group: object, group_id: str, kind: str) -> ConsumerGroup:
    if isinstance(group, ConsumerGroup):
        return group
    what = f"{kind} {group_id} not found." if group is None else f"Group {group_id} is not a consumer group."
    raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, what)


def _joining(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> Admission:
    """One that joins: it may be here already, or stand in for a static member that went away."""
    member_id = request.member_id
    owner = None if request.instance_id is None else group.static_member(request.instance_id)
    if owner is None:
        return Admission(group.members.get(member_id) or Member(member_id))
    if not owner.is_classic and not owner.is_away:
        raise ApiError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {request.instance_id} cannot join the group because the "
            f"instance id is owned by {owner.member_id} member.",
        )
    return Admission(owner, replaced_by=member_id)


def _check_regex(group: object, before: str, request: ConsumerGroupHeartbeatRequest) -> None:
    """An expression that nobody has yet may be none; it is checked while nothing is written."""
    asked = request.subscribed_topic_regex
    if isinstance(group, ConsumerGroup):
        is_new = request.member_epoch == NEW_EPOCH
        group.subscriptions.check_width(before if asked is None else asked, is_new=is_new)
    if (
        asked
        and asked != before
        and not (isinstance(group, ConsumerGroup) and asked in group.subscriptions.counts.regexes)
    ):
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


def _owned(topics: list[TopicPartitions] | None) -> dict[bytes, frozenset[int]] | None:
    return None if topics is None else {topic.topic_id: frozenset(topic.partitions) for topic in topics}


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether it tells everything, as one does that may have missed an answer."""
    return (
        request.topic_partitions is not None
        and request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
    )


_topic_partitions: Any = TopicPartitions  # by positions, which costs half as much as by names


def _assignment(assigned: Held) -> Assignment:
    return Assignment(
        topic_partitions=[_topic_partitions(topic_id, sorted(numbers)) for topic_id, numbers in assigned.items()]
    )


def check_epoch(member: Member, request: ConsumerGroupHeartbeatRequest) -> None:
    """Refuse one that works by another epoch, unless it can only have missed the last answer."""
    epoch, known = request.member_epoch, member.progress
    owned = request.topic_partitions
    if epoch > known.epoch:
        raise _fenced("greater", epoch, known.epoch)
    if epoch < known.epoch:
        has_missed_answer = (
            epoch == known.previous_epoch
            and owned is not None
            and all(known.assigned.get(topic.topic_id, {}).keys() >= set(topic.partitions) for topic in owned)
        )
        if not has_missed_answer:
            raise _fenced("smaller", epoch, known.epoch)
    if known.state is MemberState.UNKNOWN and (owned is None or owned):
        raise ApiError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin.",
        )


def _fenced(how: str, epoch: int, known_epoch: int) -> ApiError:
    return ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {how} member epoch ({epoch}) than the one known by the group coordinator "
        f"({known_epoch}). The member must abandon all its partitions and rejoin.",
    )
