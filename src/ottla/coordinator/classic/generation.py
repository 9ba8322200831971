"""A generation of a classic group: its members, who leads them, and the protocol that they have agreed on."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from ottla.coordinator.classic.member import ClassicMember, Protocols, member_of_record
from ottla.wire.messages.offset_and_group_records import GroupMetadataValue

CONSUMER_PROTOCOL = "consumer"
NO_TIME = -1
LOOKED_AT_ONCE_BYTES = 1 << 15  # of what members tell of themselves
MEMBER_BYTES = 100  # what a member counts for beside that


class ClassicState(enum.Enum):
    """The life of a group; its values are the names that are listed and described."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"  # waits for its members to join
    COMPLETING = "CompletingRebalance"  # waits for the leader's assignment
    STABLE = "Stable"


# What each commit asks about: an enum's member takes a while to be looked up.
EMPTY: Final = ClassicState.EMPTY
COMPLETING: Final = ClassicState.COMPLETING

PREDECESSORS: dict[ClassicState, frozenset[ClassicState]] = {
    ClassicState.EMPTY: frozenset({ClassicState.EMPTY, ClassicState.PREPARING, ClassicState.STABLE}),
    ClassicState.PREPARING: frozenset({ClassicState.EMPTY, ClassicState.COMPLETING, ClassicState.STABLE}),
    ClassicState.COMPLETING: frozenset({ClassicState.PREPARING}),
    ClassicState.STABLE: frozenset({ClassicState.EMPTY, ClassicState.COMPLETING, ClassicState.STABLE}),
}
"""The states from which each one is entered.

Empty and stable are what a record says, and are entered by replaying it: loading a log goes from one to the other.
"""


class Generation:
    __slots__ = (
        "_supporters",
        "leader_id",
        "members",
        "number",
        "protocol",
        "protocol_type",
        "since_ms",
        "state",
        "static_members",
        "topics",
    )

    def __init__(self, number: int = 0, protocol_type: str = "", since_ms: int = NO_TIME) -> None:
        self.number = number
        self.protocol_type = protocol_type
        self.protocol: str | None = None  # the one the members have agreed on
        self.leader_id: str | None = None
        self.state = ClassicState.EMPTY
        self.since_ms = since_ms  # it is in that state
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}  # member ids by instance id
        self.topics: frozenset[str] | None = frozenset()
        """What the members read; None if they do not say it in a way that is understood."""
        self._supporters: Counter[str] = Counter()  # how many members can work with a protocol

    def copy(self) -> Generation:
        """The same members in the same state, of which nothing is shared."""
        copied = Generation(self.number, self.protocol_type, self.since_ms)
        copied.protocol = self.protocol
        copied.leader_id = self.leader_id
        copied.state = self.state
        copied.members = {member_id: member.copy() for member_id, member in self.members.items()}
        copied.static_members = self.static_members.copy()
        copied.topics = self.topics
        copied._supporters = self._supporters.copy()
        return copied

    def enter(self, state: ClassicState, now_ms: int) -> None:
        assert self.state in PREDECESSORS[state], f"a group cannot go from {self.state} to {state}"
        self.state = state
        self.since_ms = now_ms

    def raise_number(self) -> None:
        """Become the next generation, of those who are members now. What they read is to be found out."""
        self.number += 1
        self.protocol = self.chosen_protocol()
        self.topics = None

    def find_topics(self) -> Iterator[None]:
        """Find out what the members read, some of them a step."""
        found: set[str] | None = set()
        if self.protocol_type != CONSUMER_PROTOCOL or self.protocol is None:
            found = None if self.members else found
        elif found is not None:
            looked_at_bytes = 0
            for member in list(self.members.values()):
                topics = member.topics(self.protocol)
                if topics is None:
                    found = None
                    break
                found |= topics
                looked_at_bytes += len(member.metadata(self.protocol)) + MEMBER_BYTES
                if looked_at_bytes > LOOKED_AT_ONCE_BYTES:
                    looked_at_bytes = 0
                    yield
        self.topics = None if found is None else frozenset(found)

    # Members

    def put(self, member: ClassicMember) -> None:
        """Take a member in; the first one leads."""
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
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def rename_static(self, old_id: str, new_id: str) -> ClassicMember:
        """Let a static member go on under another id."""
        member = self.members[old_id]
        assert member.instance_id is not None
        member.member_id = new_id
        self.members = {each.member_id: each for each in self.members.values()}
        self.static_members[member.instance_id] = new_id
        if self.leader_id == old_id:
            self.leader_id = new_id
        return member

    def elect_leader(self) -> bool:
        """Let one who joined lead; whether there is one."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].join_reply is None:
            joined = (member.member_id for member in self.members.values() if member.join_reply is not None)
            self.leader_id = next(joined, self.leader_id)
        return self.members[self.leader_id].join_reply is not None

    # Protocols

    def set_protocols(self, member: ClassicMember, protocols: Protocols) -> None:
        """A member offers others than before."""
        self._supporters.subtract(_names(member.protocols))
        member.offer(protocols)
        self._supporters.update(_names(member.protocols))

    def have_all_one_of(self, protocols: Protocols) -> bool:
        """Whether all members can work with one of these."""
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
        common = [name for name, known in supporters.items() if known == count]
        if len(common) == 1:
            return common[0]
        votes = Counter(next(name for name, _ in offered if supporters[name] == count) for offered in offers)
        return votes.most_common(1)[0][0]

    # The record

    def record(self) -> GroupMetadataValue:
        protocol = self.protocol or ""
        return GroupMetadataValue(
            protocol_type=self.protocol_type,
            generation=self.number,
            protocol=self.protocol,
            leader=self.leader_id,
            current_state_timestamp=self.since_ms,
            members=[member.record(protocol) for member in self.members.values()],
        )

    def assigned_record(self, assignments: Mapping[str, bytes], now_ms: int) -> GroupMetadataValue:
        """What its record says when the leader has assigned: each member gets its own, or an empty assignment."""
        value = self.record()
        value.current_state_timestamp = now_ms
        for record in value.members:
            record.assignment = assignments.get(record.member_id, b"")
        return value


def generation_of_record(value: GroupMetadataValue, present: Mapping[str, ClassicMember]) -> Generation:
    """What a record says. `present`: members that keep what only the machine knows of them."""
    generation = Generation(value.generation, value.protocol_type, value.current_state_timestamp)
    generation.protocol = value.protocol
    generation.state = ClassicState.STABLE if value.members else ClassicState.EMPTY
    for record in value.members:
        member = member_of_record(record, value.protocol or "")
        known = present.get(record.member_id)
        if known is not None:
            member.go_on_as(known)
        generation.put(member)
    generation.leader_id = value.leader
    for _ in generation.find_topics():
        pass  # no more than a record holds
    return generation


def _names(protocols: Protocols) -> Collection[str]:
    """Each once."""
    return (protocols[0][0],) if len(protocols) == 1 else {name for name, _ in protocols}
