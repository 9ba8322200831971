"""Clients of the classic protocol that do as real ones do, in classic groups and among members of consumer groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_assignment,
    decode_subscription,
)
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.leave_group import MemberIdentity
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.versioned import encode_versioned
from tests.coordinator.consumer_members import CLIENT, GROUP, FakeMember, World
from tests.coordinator.driver import Asked

MOST_ROUNDS = 40


class ClassicClient:
    """Joins when it is told to, leads when it has to, and works on what it is assigned."""

    def __init__(
        self,
        world: World,
        name: str,
        topics: Sequence[str] = ("t",),
        *,
        is_cooperative: bool = False,
        instance_id: str | None = None,
        user_data: bytes | None = None,
        likes_best: bytes | None = None,
    ) -> None:
        """`likes_best`: what it tells in another protocol, which nobody else knows."""
        self.world = world
        self.name = name
        self.topics = topics
        self.protocol = "cooperative-sticky" if is_cooperative else "range"
        self.is_cooperative = is_cooperative
        self.instance_id = instance_id
        self.user_data = user_data  # in the assignments it makes when it leads
        self._likes_best = likes_best
        self.member_id = ""
        self.generation = -1
        self.owned: dict[str, set[int]] = {}
        self.joining: Asked | None = None
        self.syncing: Asked | None = None
        self.refused: ErrorCode | None = None

    # What it asks

    def ask_join(self, version: int = 9) -> Asked:
        if not self.is_cooperative:
            self.owned = {}
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=30_000,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=name, metadata=told) for name, told in self._protocols().items()],
        )
        return self.world.driver.ask(
            lambda machine, operation, reply: machine.join(operation, reply, request, CLIENT, version)
        )

    def _protocols(self) -> dict[str, bytes]:
        known = {self.protocol: self._subscription()}
        return known if self._likes_best is None else {"liked best": self._likes_best, **known}

    def _subscription(self) -> bytes:
        owned = [TopicPartition(topic=topic, partitions=sorted(numbers)) for topic, numbers in self.owned.items()]
        return encode_versioned(ConsumerProtocolSubscription(topics=list(self.topics), owned_partitions=owned), 1)

    def ask_sync(self, assignments: dict[str, bytes]) -> Asked:
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=data)
                for member_id, data in assignments.items()
            ],
        )
        return self.world.driver.ask(lambda machine, operation, reply: machine.sync(operation, reply, request))

    def beat(self) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        asked = self.world.driver.ask(lambda machine, operation, reply: machine.heartbeat(operation, reply, request))
        return ErrorCode(asked.response.error_code)

    def leave(self) -> ErrorCode:
        leaving = [MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)]
        asked = self.world.driver.ask(lambda machine, operation, reply: machine.leave(operation, reply, GROUP, leaving))
        return ErrorCode(asked.response.members[0].error_code)

    # What it does

    def step(self) -> bool:
        """Do what is next; whether anything changed."""
        if self.joining is not None:
            return self._joined(self.joining)
        if self.syncing is not None:
            return self._synced(self.syncing)
        if self.generation < 0:
            self.joining = self.ask_join()
            return True
        code = self.beat()
        if code is ErrorCode.NONE:
            return False
        self._start_over(code)
        return True

    def _start_over(self, code: ErrorCode) -> None:
        self.joining = self.syncing = None
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id, self.owned = "", {}
        elif code is ErrorCode.ILLEGAL_GENERATION:
            self.owned = {}
        elif code not in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.MEMBER_ID_REQUIRED):
            self.refused = code
        self.generation = -1

    def _joined(self, asked: Asked) -> bool:
        response = asked.response
        if asked.is_waiting:
            return False
        self.joining = None
        if response is None:
            self._start_over(ErrorCode.REBALANCE_IN_PROGRESS)
        elif response.error_code:
            self._start_over(ErrorCode(response.error_code))
            if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = response.member_id
        else:
            self.member_id, self.generation = response.member_id, response.generation_id
            leads = response.leader == self.member_id
            shares = self._shares({each.member_id: each.metadata for each in response.members}) if leads else {}
            self.syncing = self.ask_sync(shares)
        return True

    def _shares(self, members: Mapping[str, bytes]) -> dict[str, bytes]:
        """A plain share for each: partition by partition in turn, once their owners have let go of them."""
        count = self.world.topics.by_name["t"].partition_count
        owners = {
            number: member_id
            for member_id, metadata in members.items()
            for part in decode_subscription(metadata).owned_partitions
            for number in part.partitions
        }
        shares = {}
        for place, member_id in enumerate(members):
            mine = range(place, count, len(members))
            free = [number for number in mine if owners.get(number, member_id) == member_id]
            part = TopicPartition(topic="t", partitions=free)
            assignment = ConsumerProtocolAssignment(assigned_partitions=[part], user_data=self.user_data)
            shares[member_id] = encode_versioned(assignment, 1)
        return shares

    def _synced(self, asked: Asked) -> bool:
        response = asked.response
        if asked.is_waiting:
            return False
        self.syncing = None
        if response is None or response.error_code:
            self._start_over(ErrorCode.REBALANCE_IN_PROGRESS if response is None else ErrorCode(response.error_code))
            return True
        assigned = decode_assignment(response.assignment).assigned_partitions
        before = self.owned
        self.owned = {part.topic: set(part.partitions) for part in assigned if part.partitions}
        gives_up = any(not numbers <= self.owned.get(topic, set()) for topic, numbers in before.items())
        if self.is_cooperative and gives_up:
            self.joining = self.ask_join()  # so that the others get what it let go of
        return True

    @property
    def numbers(self) -> list[int]:
        return sorted(self.owned.get("t", ()))


class Steady(Protocol):
    @property
    def numbers(self) -> list[int]: ...


def settle_all(world: World, *members: ClassicClient | FakeMember) -> None:
    """Let all do what is next until nothing moves; at no time do two work on the same partition."""
    for _ in range(MOST_ROUNDS):
        has_moved = False
        for member in members:
            has_moved |= member.step() if isinstance(member, ClassicClient) else _beat(member)
            check_owners(members)
        world.driver.advance(0)
        if not has_moved and not any(_is_waiting(member) for member in members):
            return
    raise AssertionError("the group does not come to rest")


def check_owners(members: Sequence[Steady]) -> None:
    owned = [number for member in members for number in member.numbers]
    assert len(owned) == len(set(owned)), f"two owners: {[member.numbers for member in members]}"


def _beat(member: FakeMember) -> bool:
    before = member.epoch, member.owned
    if member.epoch <= 0 or member.acknowledge().error_code:
        member.join()
    return before != (member.epoch, member.owned)


def _is_waiting(member: ClassicClient | FakeMember) -> bool:
    return isinstance(member, ClassicClient) and (member.joining is not None or member.syncing is not None)
