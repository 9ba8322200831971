"""A group of the classic protocol: its members meet in generations, and one of them shares out the work.

What lasts is what the group's record says (`kept`), and only replaying a record changes it. A rebalance works on a copy
(`current`). When the leader has assigned, or nobody is left, a record of it is written, and it lasts. The copy is lost
with the machine, and so is who waits for an answer, or is pending (was given an id, and has not joined with it yet):
members find out by their heartbeats, and join again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ottla.coordinator.classic.generation import (
    COMPLETING,
    CONSUMER_PROTOCOL,
    EMPTY,
    NO_TIME,
    PREDECESSORS,
    ClassicState,
    Generation,
    generation_of_record,
)
from ottla.coordinator.classic.member import ClassicMember, Protocols
from ottla.coordinator.group import Committer, Group, OffsetToCommit
from ottla.coordinator.held import HeldBack
from ottla.coordinator.operation import Operation, Reply
from ottla.wire.errors import NO_ERROR, ErrorCode
from ottla.wire.messages.join_group import JoinGroupResponseMember
from ottla.wire.messages.offset_and_group_records import GroupMetadataKey, GroupMetadataValue

RECORD_VERSION = 3
MEMBER_BYTES = 40  # of a record, besides names, subscription and assignment

# The kinds of its timers: their names go on with the group's id.
SESSION = "classic session"  # and the member's id: it must give a sign of life, or join with the id it was given
JOIN = "classic join"  # the members must have joined
SYNC = "classic sync"  # and have fetched their assignments


class FirstWait:
    """A group that was empty waits for more members, and goes on waiting while they come."""

    def __init__(self, delay_ms: int, left_ms: int) -> None:
        self.delay_ms = delay_ms
        self.left_ms = left_ms  # how much longer than that it may wait in all
        self.has_grown = False


class ClassicGroup(Group):
    type_name = "classic"

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.kept = Generation()
        self.current = self.kept  # or what a rebalance makes of it
        self.pending_members: set[str] = set()  # ids given out to those who have not joined with them yet
        self.pending_sync_members: set[str] = set()
        self.first_wait: FirstWait | None = None
        self.held: HeldBack | None = None  # partitions that its members do not have yet; None: to be found out

    def forming(self) -> Generation:
        """The generation that a rebalance changes: a copy of the one that lasts."""
        if self.current is self.kept:
            self.current = self.kept.copy()
        return self.current

    @property
    def state(self) -> ClassicState:
        return self.current.state

    @property
    def generation(self) -> int:
        return self.current.number

    @property
    def protocol(self) -> str | None:
        return self.current.protocol

    @property
    def leader_id(self) -> str | None:
        return self.current.leader_id

    @property
    def members(self) -> Mapping[str, ClassicMember]:
        return self.current.members

    @property
    def static_members(self) -> Mapping[str, str]:
        return self.current.static_members

    # What is asked of any group

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def protocol_type(self) -> str:
        return self.current.protocol_type

    @property
    def is_empty(self) -> bool:
        return self.state is EMPTY

    @property
    def member_count(self) -> int:
        return len(self.members)

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        current = self.current
        if instance_id is not None:
            known = current.static_members.get(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return NO_ERROR if member_id in current.members else ErrorCode.UNKNOWN_MEMBER_ID

    def check_commit(self, committer: Committer, offsets: Sequence[OffsetToCommit]) -> ErrorCode:
        """Without a member's name only an empty group takes commits, except in transactions, which were older."""
        member_id, instance_id, generation, _, is_transactional = committer
        state = self.current.state
        if generation < 0 and state is EMPTY:
            return NO_ERROR
        if generation >= 0 or member_id or instance_id is not None:
            code = self.check_member(member_id, instance_id)
            if code is NO_ERROR and generation != self.current.number:
                code = ErrorCode.ILLEGAL_GENERATION
            if code is not NO_ERROR:
                return code
        elif not is_transactional:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if state is COMPLETING and not is_transactional:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return NO_ERROR

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        return NO_ERROR

    @property
    def topics(self) -> frozenset[str]:
        """What its members read, as far as they say it in a way that is understood."""
        return self.current.topics or frozenset()

    def is_subscribed_to(self, topic: str) -> bool:
        topics = self.current.topics
        if topics is None:  # it may be
            return self.protocol_type == CONSUMER_PROTOCOL
        return topic in topics

    def offset_age_from_ms(self, commit_timestamp_ms: int) -> int | None:
        current = self.current
        if current.protocol_type:
            if current.state is EMPTY:
                return commit_timestamp_ms if current.since_ms == NO_TIME else current.since_ms
            knows_topics = current.protocol_type == CONSUMER_PROTOCOL and current.topics is not None
            return commit_timestamp_ms if knows_topics and current.state is ClassicState.STABLE else None
        return commit_timestamp_ms

    def write_tombstones(self, operation: Operation) -> None:
        operation.write(GroupMetadataKey(group=self.group_id), None)

    def member_ids(self) -> list[str]:
        return list(self.members)

    def set_timers(self, operation: Operation, member_ids: Iterable[str]) -> None:
        for member_id in member_ids:
            member = self.members.get(member_id)
            if member is not None and not member.is_new:  # who came since has longer than a session
                self.watch(operation, member)

    def watch(self, operation: Operation, member: ClassicMember) -> None:
        """Expect a sign of life within the member's session."""
        operation.set_timer((SESSION, self.group_id, member.member_id), member.session_timeout_ms)

    def keep_alive(self, operation: Operation, member_id: str) -> None:
        """A commit is a sign of life, too."""
        member = self.current.members.get(member_id)
        if member is not None:
            self.watch(operation, member)

    def check_offset_delete(self) -> ErrorCode:
        if self.state is EMPTY or self.protocol_type == CONSUMER_PROTOCOL:
            return NO_ERROR
        return ErrorCode.NON_EMPTY_GROUP  # nobody can tell what its members read

    def waiting(self) -> list[Reply]:
        replies = [reply for member in self.members.values() for reply in (member.join_reply, member.sync_reply)]
        return [reply for reply in replies if reply is not None]

    # Members

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        forming = self.forming()
        if not forming.members:
            forming.protocol_type = protocol_type
        forming.put(member)
        self.pending_members.discard(member.member_id)

    def remove(self, member_id: str) -> ClassicMember:
        self.pending_sync_members.discard(member_id)
        return self.forming().remove(member_id)

    def replace_static(self, old_id: str, new_id: str) -> ClassicMember:
        """Let a static member go on under another id."""
        self.pending_sync_members.discard(old_id)
        return self.forming().rename_static(old_id, new_id)

    @property
    def joining_count(self) -> int:
        return sum(member.join_reply is not None for member in self.members.values())

    @property
    def have_all_joined(self) -> bool:
        return not self.pending_members and all(member.join_reply is not None for member in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether one who offers these could join."""
        if self.state is EMPTY:
            return bool(protocol_type and protocols)
        return protocol_type == self.protocol_type and self.current.have_all_one_of(protocols)

    # Generations

    def enter(self, state: ClassicState, now_ms: int) -> None:
        self.forming().enter(state, now_ms)

    def next_generation(self, now_ms: int) -> None:
        """One with members. It is kept when their leader has assigned."""
        self.forming().raise_number()
        self.pending_sync_members = set(self.members)
        self.enter(COMPLETING, now_ms)

    @property
    def told_bytes(self) -> int:
        """How much members tell of themselves in the protocol that was chosen."""
        protocol = self.protocol or ""
        return sum([len(member.metadata(protocol)) for member in self.members.values()])

    def members_for_leader(self) -> list[JoinGroupResponseMember]:
        """What the leader is told of the members."""
        protocol = self.protocol or ""
        return [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata(protocol),
            )
            for member in self.members.values()
        ]

    # The record

    def write_new(self, operation: Operation) -> None:
        """Keep that there is such a group."""
        write_group(operation, self.group_id, self.current.record())

    def write_assigned(self, operation: Operation, assignments: Mapping[str, bytes]) -> None:
        """Keep what the leader has assigned. It makes the group stable."""
        write_group(operation, self.group_id, self.current.assigned_record(assignments, operation.now_ms))

    def write_empty(self, operation: Operation) -> None:
        """Keep that nobody is left: a generation without members."""
        value = self.current.record()
        value.generation, value.protocol, value.leader, value.members = self.generation + 1, None, None, []
        value.current_state_timestamp = operation.now_ms
        write_group(operation, self.group_id, value)

    def write_returned(self, operation: Operation, old_id: str, returned: ClassicMember) -> None:
        """Keep that a static member goes on under another id, with its assignment, in the same generation."""
        value = self.current.record()
        value.members = [
            returned.record(self.protocol or "") if record.member_id == old_id else record for record in value.members
        ]
        if value.leader == old_id:
            value.leader = returned.member_id
        write_group(operation, self.group_id, value)

    def size_with(self, assignments: Mapping[str, bytes]) -> int:
        """About how many bytes its record would have."""
        protocol = self.protocol or ""
        size = sum(
            [MEMBER_BYTES + member.names_bytes + len(member.metadata(protocol)) for member in self.members.values()]
        )
        return size + sum([len(assignments.get(member_id, b"")) for member_id in self.members])

    def replay(self, value: GroupMetadataValue) -> None:
        """Become what the record says; a member that is there already keeps what only the machine knows of it."""
        kept = generation_of_record(value, self.members)
        assert self.state in PREDECESSORS[kept.state], f"{self.group_id} cannot go from {self.state} to {kept.state}"
        self.kept = self.current = kept
        self.pending_sync_members &= kept.members.keys()

    def note_offer(self, member_id: str, protocols: Protocols) -> None:
        """What a member offers beside the protocol that was chosen: no record tells it, so it stands in the copy."""
        forming = self.forming()
        forming.set_protocols(forming.members[member_id], protocols)


def write_group(operation: Operation, group_id: str, value: GroupMetadataValue) -> None:
    operation.write(GroupMetadataKey(group=group_id), value, RECORD_VERSION)
