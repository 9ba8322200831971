"""JoinGroup in a classic group: who may join, as whom, and whether that begins a rebalance."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.coordinator.classic.generation import ClassicState
from ottla.coordinator.classic.group import SESSION, ClassicGroup
from ottla.coordinator.classic.member import ClassicMember, Protocols
from ottla.coordinator.classic.rebalance import (
    NOBODY,
    complete_if_all_joined,
    drop,
    joined,
    prepare,
    rebalance,
    refused_join,
    refused_sync,
    remove_pending,
)
from ottla.coordinator.group import Client, GroupSettings
from ottla.coordinator.operation import Operation, Reply
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.join_group import JoinGroupRequest
from ottla.wire.texts import shortened
from ottla.wire.types import LONGEST_STRING_BYTES

if TYPE_CHECKING:
    from ottla.coordinator.group_machine import GroupMachine

FIRST_VERSION_WITH_REQUIRED_IDS = 4
FIRST_VERSION_WITH_SKIPPED_ASSIGNMENT = 9
UUID_BYTES = 36
MOST_PROTOCOLS = 50  # of a member: those of all members are compared
MOST_MEMBERS = 5000
"""Of a group, whatever the settings allow: they are written down together, in one record."""
NEW_MEMBER_TIMEOUT_MS = 300_000
"""How long a new member may wait in a join: it cannot give signs of life, for it does not know its id yet."""


class Joiner(NamedTuple):
    """A request to join that is under way."""

    reply: Reply
    request: JoinGroupRequest
    client: Client
    version: int

    @property
    def protocols(self) -> Protocols:
        return [(protocol.name, protocol.metadata) for protocol in self.request.protocols]

    def member(self, member_id: str) -> ClassicMember:
        """What it would be as a member."""
        request = self.request
        return ClassicMember(
            member_id,
            request.group_instance_id,
            self.client,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            self.protocols,
        )

    def refuse(self, operation: Operation, code: ErrorCode, member_id: str) -> None:
        operation.answer(self.reply, refused_join(code, member_id))


def check_join(settings: GroupSettings, request: JoinGroupRequest) -> ErrorCode:
    """What is checked before it is known which kind of group it is."""
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if len(request.protocols) > MOST_PROTOCOLS:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if not settings.min_session_timeout_ms <= request.session_timeout_ms <= settings.max_session_timeout_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    return ErrorCode.NONE


class Joins:
    """Members who join classic groups of a machine."""

    def __init__(self, machine: GroupMachine) -> None:
        self._machine = machine

    def join(self, operation: Operation, group: ClassicGroup | None, joiner: Joiner) -> None:
        member_id = joiner.request.member_id
        if group is None:
            if member_id:
                joiner.refuse(operation, ErrorCode.UNKNOWN_MEMBER_ID, member_id)
                return
            group = ClassicGroup(joiner.request.group_id)
        if not _has_room_for(group, member_id, min(self._machine.settings().max_size, MOST_MEMBERS)):
            member = group.members.get(member_id)
            if member is not None:
                drop(operation, group, member)
            elif member_id in group.pending_members:
                remove_pending(operation, group, member_id)
            joiner.refuse(operation, ErrorCode.GROUP_MAX_SIZE_REACHED, NOBODY)
        elif not group.supports(joiner.request.protocol_type, joiner.protocols):
            joiner.refuse(operation, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
        elif member_id:
            self._join_known(operation, group, joiner)
        else:
            if group.group_id not in self._machine.groups:
                group.write_new(operation)
                known = self._machine.groups[group.group_id]
                assert isinstance(known, ClassicGroup)
                group = known
            self._join_new(operation, group, joiner)
        complete_if_all_joined(operation, group)

    # Those who come without an id

    def _join_new(self, operation: Operation, group: ClassicGroup, joiner: Joiner) -> None:
        instance_id = joiner.request.group_instance_id
        prefix = joiner.client.client_id if instance_id is None else instance_id
        # Where a client's name is as long as a string can be, its id has less of it.
        new_id = f"{shortened(prefix, LONGEST_STRING_BYTES - UUID_BYTES - 1)}-{self._machine.make_uuid()}"
        if instance_id is not None and instance_id in group.static_members:
            self._replace_static(operation, group, joiner, new_id)
        elif instance_id is None and joiner.version >= FIRST_VERSION_WITH_REQUIRED_IDS:
            group.pending_members.add(new_id)
            operation.set_timer((SESSION, group.group_id, new_id), joiner.request.session_timeout_ms)
            joiner.refuse(operation, ErrorCode.MEMBER_ID_REQUIRED, new_id)
        else:
            self._add(operation, group, joiner, new_id)

    def _add(self, operation: Operation, group: ClassicGroup, joiner: Joiner, member_id: str) -> None:
        member = joiner.member(member_id)
        member.is_new = True
        member.join_reply = joiner.reply
        if group.first_wait is not None:
            group.first_wait.has_grown = True
        group.add(member, joiner.request.protocol_type)
        operation.set_timer((SESSION, group.group_id, member_id), NEW_MEMBER_TIMEOUT_MS)
        rebalance(operation, group, self._machine.settings())

    # Those who come again

    def _join_known(self, operation: Operation, group: ClassicGroup, joiner: Joiner) -> None:
        request = joiner.request
        member_id = request.member_id
        if member_id in group.pending_members and request.group_instance_id is None:
            self._add(operation, group, joiner, member_id)
            return
        code = group.check_member(member_id, request.group_instance_id)
        if code is not ErrorCode.NONE:
            joiner.refuse(operation, code, member_id)
            return
        is_leader = group.leader_id == member_id
        has_changed = group.members[member_id].protocols != joiner.protocols
        if group.state is ClassicState.PREPARING or has_changed or (group.state is ClassicState.STABLE and is_leader):
            _update(operation, group, member_id, joiner)
            rebalance(operation, group, self._machine.settings())
            return
        # It joined already, and may not have got the answer.
        members = group.members_for_leader() if is_leader else []
        operation.answer(joiner.reply, joined(group, member_id, group.leader_id, members))

    # Static members that come back

    def _replace_static(self, operation: Operation, group: ClassicGroup, joiner: Joiner, new_id: str) -> None:
        """The instance goes on under a new id, and whoever uses the old one is fenced."""
        instance_id = joiner.request.group_instance_id
        assert instance_id is not None
        old_id = group.static_members[instance_id]
        member = group.members[old_id]
        _fence(operation, member)
        operation.cancel_timer((SESSION, group.group_id, old_id))
        if (
            group.state is ClassicState.STABLE
            and group.current.chosen_protocol_with(member, joiner.protocols) == group.protocol
        ):
            _return_unnoticed(operation, group, member, joiner, new_id)
            return
        group.replace_static(old_id, new_id)
        member = _update(operation, group, new_id, joiner)
        member.client = joiner.client
        group.watch(operation, member)
        if group.state is ClassicState.PREPARING:
            complete_if_all_joined(operation, group)
        else:  # what the leader shares out may be meant for the old id, or for another protocol
            prepare(operation, group, self._machine.settings())


def _has_room_for(group: ClassicGroup, member_id: str, max_size: int) -> bool:
    """Between rebalances members stay even if the limit was lowered; in one, the last to come are left out."""
    if group.state is ClassicState.EMPTY:
        return True
    member = group.members.get(member_id)
    if group.state is ClassicState.PREPARING:
        return (member is not None and member.join_reply is not None) or group.joining_count < max_size
    return member is not None or len(group.members) < max_size


def _update(operation: Operation, group: ClassicGroup, member_id: str, joiner: Joiner) -> ClassicMember:
    request, forming = joiner.request, group.forming()
    member = forming.members[member_id]
    forming.set_protocols(member, joiner.protocols)
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    member.session_timeout_ms = request.session_timeout_ms
    if member.join_reply is not None:  # an earlier try of the same member
        operation.answer(member.join_reply, refused_join(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
    member.join_reply = joiner.reply
    return member


def _fence(operation: Operation, member: ClassicMember) -> None:
    if member.join_reply is not None:
        operation.answer(member.join_reply, refused_join(ErrorCode.FENCED_INSTANCE_ID, member.member_id))
        member.join_reply = None
    if member.sync_reply is not None:
        operation.answer(member.sync_reply, refused_sync(ErrorCode.FENCED_INSTANCE_ID))
        member.sync_reply = None


def _return_unnoticed(
    operation: Operation, group: ClassicGroup, member: ClassicMember, joiner: Joiner, new_id: str
) -> None:
    """The generation goes on. A leader must not assign anew: older ones are kept from it by another leader's name."""
    old_leader_id = group.leader_id
    returned = joiner.member(new_id)
    returned.assignment = member.assignment
    group.write_returned(operation, member.member_id, returned)
    group.note_offer(new_id, joiner.protocols)
    group.watch(operation, group.members[new_id])
    is_leader = group.leader_id == new_id
    if joiner.version >= FIRST_VERSION_WITH_SKIPPED_ASSIGNMENT:
        members = group.members_for_leader() if is_leader else []
        response = joined(group, new_id, group.leader_id, members, skip_assignment=is_leader)
    else:
        response = joined(group, new_id, old_leader_id, [])
    operation.answer(joiner.reply, response)
