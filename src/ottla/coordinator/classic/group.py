"""A group of the classic protocol: its members meet in generations, and one of them shares out the work.

What lasts is what the group's record holds, and it is kept when the leader has assigned. Who waits for an answer, who
is pending (was given an id, and has not joined with it yet) and the generation that is being made are lost with the
machine: members find out by their heartbeats, and join again.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from ottla.coordinator.classic.member import ClassicMember, Protocols, member_of_record
from ottla.coordinator.group import Committer, Group, OffsetToCommit
from ottla.coordinator.held import HeldBack
from ottla.coordinator.operation import Operation, Reply
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_protocol import decode_subscription
from ottla.wire.messages.join_group import JoinGroupResponseMember
from ottla.wire.messages.offset_and_group_records import GroupMetadataKey, GroupMetadataValue
from ottla.wire.protocol_error import ProtocolError

CONSUMER_PROTOCOL = "consumer"
RECORD_VERSION = 3
NO_TIME = -1
MEMBER_BYTES = 40  # of a record, besides names, subscription and assignment

# The kinds of its timers: their names go on with the group's id.
SESSION = "classic session"  # and the member's id: it must give a sign of life, or join with the id it was given
JOIN = "classic join"  # the members must have joined
SYNC = "classic sync"  # and have fetched their assignments


class State(enum.Enum):
    """The life of a group; its values are the names that are listed and described."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"  # waits for its members to join
    COMPLETING = "CompletingRebalance"  # waits for the leader's assignment
    STABLE = "Stable"


PREDECESSORS: dict[State, frozenset[State]] = {
    State.PREPARING: frozenset({State.EMPTY, State.COMPLETING, State.STABLE}),
    State.COMPLETING: frozenset({State.PREPARING}),
}
"""The states from which a rebalance is entered. Stable and empty last, and are entered by the replay of a record."""


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
        self.state = State.EMPTY
        self.state_since_ms = NO_TIME
        self.generation = 0
        self.protocol: str | None = None  # the one the members have agreed on
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}  # member ids by instance id
        self.pending_members: set[str] = set()  # ids given out to those who have not joined with them yet
        self.pending_sync_members: set[str] = set()
        self.first_wait: FirstWait | None = None
        self.held: HeldBack | None = None  # partitions that its members do not have yet; None: to be found out
        self._protocol_type = ""
        self._supporters: Counter[str] = Counter()  # how many members can work with a protocol
        self._topics: frozenset[str] | None = frozenset()

    # What is asked of any group

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def protocol_type(self) -> str:
        return self._protocol_type

    @property
    def is_empty(self) -> bool:
        return self.state is State.EMPTY

    @property
    def member_count(self) -> int:
        return len(self.members)

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if instance_id is not None:
            known = self.static_members.get(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def check_commit(self, committer: Committer, offsets: Sequence[OffsetToCommit]) -> ErrorCode:
        """Without a member's name only an empty group takes commits, except in transactions, which were older."""
        member_id, instance_id, generation, _, is_transactional = committer
        if generation < 0 and self.state is State.EMPTY:
            return ErrorCode.NONE
        if generation >= 0 or member_id or instance_id is not None:
            code = self.check_member(member_id, instance_id)
            if code is ErrorCode.NONE and generation != self.generation:
                code = ErrorCode.ILLEGAL_GENERATION
            if code is not ErrorCode.NONE:
                return code
        elif not is_transactional:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if self.state is State.COMPLETING and not is_transactional:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        return ErrorCode.NONE

    @property
    def topics(self) -> frozenset[str]:
        """What its members read, as far as they say it in a way that is understood."""
        return self._topics or frozenset()

    def is_subscribed_to(self, topic: str) -> bool:
        if self._topics is None:  # it may be
            return self._protocol_type == CONSUMER_PROTOCOL
        return topic in self._topics

    def offset_age_from_ms(self, commit_timestamp_ms: int) -> int | None:
        if self._protocol_type:
            if self.state is State.EMPTY:
                return commit_timestamp_ms if self.state_since_ms == NO_TIME else self.state_since_ms
            knows_topics = self._protocol_type == CONSUMER_PROTOCOL and self._topics is not None
            return commit_timestamp_ms if knows_topics and self.state is State.STABLE else None
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
        member = self.members.get(member_id)
        if member is not None:
            self.watch(operation, member)

    def check_offset_delete(self) -> ErrorCode:
        if self.state is State.EMPTY or self._protocol_type == CONSUMER_PROTOCOL:
            return ErrorCode.NONE
        return ErrorCode.NON_EMPTY_GROUP  # nobody can tell what its members read

    def waiting(self) -> list[Reply]:
        replies = [reply for member in self.members.values() for reply in (member.join_reply, member.sync_reply)]
        return [reply for reply in replies if reply is not None]

    # Members

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        if not self.members:
            self._protocol_type = protocol_type
        self._put(member)
        self.pending_members.discard(member.member_id)

    def _put(self, member: ClassicMember) -> None:
        self.members[member.member_id] = member
        if self.leader_id is None:
            self.leader_id = member.member_id
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self._supporters.update(_names(member.protocols))

    def remove(self, member_id: str) -> ClassicMember:
        """Take a member out; if it led, another one does."""
        member = self.members.pop(member_id)
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
            del self.static_members[member.instance_id]
        self._supporters.subtract(_names(member.protocols))
        self.pending_sync_members.discard(member_id)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def set_protocols(self, member: ClassicMember, protocols: Protocols) -> None:
        self._supporters.subtract(_names(member.protocols))
        member.protocols = list(protocols)
        self._supporters.update(_names(member.protocols))

    def replace_static(self, member: ClassicMember, new_id: str) -> None:
        """Let a static member go on under another id."""
        assert member.instance_id is not None
        members = list(self.members.values())
        old_id, member.member_id = member.member_id, new_id
        self.members = {each.member_id: each for each in members}
        self.static_members[member.instance_id] = new_id
        self.pending_sync_members.discard(old_id)
        if self.leader_id == old_id:
            self.leader_id = new_id

    @property
    def joining_count(self) -> int:
        return sum(member.join_reply is not None for member in self.members.values())

    @property
    def have_all_joined(self) -> bool:
        return not self.pending_members and all(member.join_reply is not None for member in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def elect_leader(self) -> bool:
        """Let one who joined lead; whether there is one."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].join_reply is None:
            joined = (member.member_id for member in self.members.values() if member.join_reply is not None)
            self.leader_id = next(joined, self.leader_id)
        return self.members[self.leader_id].join_reply is not None

    # Protocols

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether one who offers these could join."""
        if self.state is State.EMPTY:
            return bool(protocol_type and protocols)
        if protocol_type != self._protocol_type:
            return False
        return any(self._supporters[name] == len(self.members) for name, _ in protocols)

    def chosen_protocol(self) -> str:
        """The one with the most votes among those that all members can work with."""
        return self._elected((member.protocols for member in self.members.values()), self._supporters)

    def chosen_protocol_with(self, changed: ClassicMember, offered: Protocols) -> str:
        """The one that would be chosen if a member offered others than before."""
        supporters = self._supporters.copy()
        supporters.subtract(_names(changed.protocols))
        supporters.update(_names(offered))
        offers = (offered if member is changed else member.protocols for member in self.members.values())
        return self._elected(offers, supporters)

    def _elected(self, offers: Iterable[Protocols], supporters: Counter[str]) -> str:
        """Each member votes for the one it likes best among those that all can work with."""
        count = len(self.members)
        votes = Counter(next(name for name, _ in offered if supporters[name] == count) for offered in offers)
        return votes.most_common(1)[0][0]

    # Generations

    def next_generation(self, now_ms: int) -> None:
        """One with members. It is kept when their leader has assigned."""
        self.generation += 1
        self.pending_sync_members.clear()
        self.protocol = self.chosen_protocol()
        self._topics = self._subscribed_topics()
        self.enter(State.COMPLETING, now_ms)

    def enter(self, state: State, now_ms: int) -> None:
        assert self.state in PREDECESSORS[state], f"{self.group_id} cannot go from {self.state} to {state}"
        self.state = state
        self.state_since_ms = now_ms

    def _subscribed_topics(self) -> frozenset[str] | None:
        """The topics of all members; None if they do not say it in a way that is understood."""
        if self._protocol_type != CONSUMER_PROTOCOL or self.protocol is None:
            return frozenset() if not self.members else None
        try:
            subscriptions = [decode_subscription(each.metadata(self.protocol)) for each in self.members.values()]
        except ProtocolError:
            return None
        return frozenset(topic for subscription in subscriptions for topic in subscription.topics)

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
        self._write(operation, self._record())

    def write_assigned(self, operation: Operation, assignments: Mapping[str, bytes]) -> None:
        """Keep what the leader has assigned: each member gets its own, or an empty one. It makes the group stable."""
        value = self._record()
        value.current_state_timestamp = operation.now_ms
        for record in value.members:
            record.assignment = assignments.get(record.member_id, b"")
        self._write(operation, value)

    def write_empty(self, operation: Operation) -> None:
        """Keep that nobody is left: a generation without members."""
        value = self._record()
        value.generation, value.protocol, value.leader, value.members = self.generation + 1, None, None, []
        value.current_state_timestamp = operation.now_ms
        self._write(operation, value)

    def write_returned(self, operation: Operation, old_id: str, returned: ClassicMember) -> None:
        """Keep that a static member goes on under another id, with its assignment, in the same generation."""
        value = self._record()
        value.members = [
            returned.record(self.protocol or "") if record.member_id == old_id else record for record in value.members
        ]
        if value.leader == old_id:
            value.leader = returned.member_id
        self._write(operation, value)

    def _record(self) -> GroupMetadataValue:
        protocol = self.protocol or ""
        return GroupMetadataValue(
            protocol_type=self._protocol_type,
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader_id,
            current_state_timestamp=self.state_since_ms,
            members=[member.record(protocol) for member in self.members.values()],
        )

    def _write(self, operation: Operation, value: GroupMetadataValue) -> None:
        operation.write(GroupMetadataKey(group=self.group_id), value, RECORD_VERSION)

    def size_with(self, assignments: Mapping[str, bytes]) -> int:
        """About how many bytes its record would have."""
        protocol = self.protocol or ""
        size = sum(
            [MEMBER_BYTES + member.names_bytes + len(member.metadata(protocol)) for member in self.members.values()]
        )
        return size + sum([len(assignments.get(member_id, b"")) for member_id in self.members])

    def replay(self, value: GroupMetadataValue) -> None:
        """Become what the record says; a member that is there already keeps what only the machine knows of it."""
        self._protocol_type = value.protocol_type
        self.generation = value.generation
        self.protocol = value.protocol
        self.state_since_ms = value.current_state_timestamp
        self.state = State.STABLE if value.members else State.EMPTY
        present = self.members
        self.members, self.static_members, self.leader_id = {}, {}, None
        self._supporters.clear()
        for record in value.members:
            member = present.get(record.member_id)
            if member is None:
                member = member_of_record(record, value.protocol or "")
            member.assignment = record.assignment
            self._put(member)
        self.leader_id = value.leader
        self.pending_sync_members &= self.members.keys()
        self._topics = self._subscribed_topics()


def _names(protocols: Protocols) -> set[str]:
    return {name for name, _ in protocols}
