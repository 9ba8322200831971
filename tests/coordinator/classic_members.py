"""Members of classic groups around a machine without a broker, for tests."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ottla.coordinator.classic.group import ClassicGroup
from ottla.coordinator.group import Client, Committer, GroupSettings, OffsetToCommit
from ottla.coordinator.group_machine import GroupMachine
from ottla.coordinator.offsets.commit import commit
from ottla.coordinator.offsets.fetch import FetchedOffsets, fetch
from ottla.coordinator.operation import NO_PRODUCER
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.leave_group import MemberIdentity
from ottla.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.versioned import encode_versioned
from tests.coordinator.consumer_members import FakeTopics
from tests.coordinator.driver import Asked, Driver

GROUP = "g"
SESSION_MS = 10_000
REBALANCE_MS = 60_000
LAST_VERSION_WITHOUT_PROMISED_IDS = 3
PARTITIONS = 4


def subscription(*topics: str) -> bytes:
    return encode_versioned(ConsumerProtocolSubscription(topics=list(topics)), 0)


class ClassicWorld:
    """One machine, and what its clients ask."""

    def __init__(self, **settings: int) -> None:
        self.settings = GroupSettings(**{"initial_rebalance_delay_ms": 0, **settings})
        self.topics = FakeTopics()
        self.topics.add("t", PARTITIONS)
        self._uuids = 0
        self.driver = Driver(lambda: GroupMachine(self.topics, lambda: self.settings, self._make_uuid))

    def _make_uuid(self) -> uuid.UUID:
        self._uuids += 1
        return uuid.UUID(int=self._uuids)

    @property
    def group(self) -> ClassicGroup:
        group = self.driver.machine.groups[GROUP]
        assert isinstance(group, ClassicGroup)
        return group

    @property
    def state(self) -> str:
        return self.group.state_name

    # Membership

    def join(
        self,
        member_id: str = "",
        *,
        instance_id: str | None = None,
        protocols: Mapping[str, bytes] | None = None,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        version: int = 9,
        group_id: str = GROUP,
    ) -> Asked:
        offered = {"range": subscription("t")} if protocols is None else protocols
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in offered.items()],
        )
        client = Client("client", "/127.0.0.1")
        return self.driver.ask(
            lambda machine, operation, reply: machine.join(operation, reply, request, client, version)
        )

    def enter(self, **options: Any) -> Asked:
        """Join as somebody new, without the detour of a pending id."""
        return self.join(version=LAST_VERSION_WITHOUT_PROMISED_IDS, **options)

    def pending_id(self, **options: Any) -> str:
        refused = self.join(**options).response
        assert refused.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return str(refused.member_id)

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes] | None = None,
        *,
        instance_id: str | None = None,
        **fields: Any,
    ) -> Asked:
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            assignments=[
                SyncGroupRequestAssignment(member_id=each, assignment=data)
                for each, data in (assignments or {}).items()
            ],
            **fields,
        )
        return self.driver.ask(lambda machine, operation, reply: machine.sync(operation, reply, request))

    def beat(self, member_id: str, generation: int, *, instance_id: str | None = None) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=GROUP, generation_id=generation, member_id=member_id, group_instance_id=instance_id
        )
        asked = self.driver.ask(lambda machine, operation, reply: machine.heartbeat(operation, reply, request))
        return ErrorCode(asked.response.error_code)

    def leave(self, *members: tuple[str, str | None]) -> list[ErrorCode]:
        leaving = [MemberIdentity(member_id=member_id, group_instance_id=instance) for member_id, instance in members]
        asked = self.driver.ask(lambda machine, operation, reply: machine.leave(operation, reply, GROUP, leaving))
        if asked.refused is not None:
            return [asked.refused] * len(members)
        return [ErrorCode(member.error_code) for member in asked.response.members]

    def stable(self, count: int, **options: Any) -> list[str]:
        """Let so many members find together; the first of them leads. Each is assigned its own name."""
        joins = [self.enter(**options)]
        self.driver.advance(0)
        joins += [self.enter(**options) for _ in range(count - 1)]
        if count > 1:  # the first has to join again with the others
            joins[0] = self.join(joins[0].response.member_id, **options)
            self.driver.advance(0)
        members = [asked.response.member_id for asked in joins]
        self.assign(members)
        return members

    def assign(self, members: Sequence[str]) -> list[Asked]:
        """The leader, who comes first, shares out the work."""
        generation = self.group.generation
        waiting = [self.sync(member, generation) for member in members[1:]]
        led = self.sync(members[0], generation, {member: member.encode() for member in members})
        return [led, *waiting]

    # Offsets

    def commit(
        self,
        offsets: Mapping[int, int],
        *,
        member_id: str = "",
        epoch: int = -1,
        instance_id: str | None = None,
        version: int = 9,
        group_id: str = GROUP,
        topic: str = "t",
        metadata: str | None = None,
        retention_ms: int = -1,
        producer: tuple[int, int] = NO_PRODUCER,
    ) -> list[ErrorCode]:
        topic_id = self.topics.by_name[topic].topic_id
        wanted = [OffsetToCommit(topic, topic_id, index, offset, -1, metadata) for index, offset in offsets.items()]
        committer = Committer(member_id, instance_id, epoch, version, producer != NO_PRODUCER)
        asked = self.driver.ask(
            lambda machine, operation, reply: operation.answer(
                reply, commit(machine, operation, group_id, committer, wanted, retention_ms)
            ),
            producer,
        )
        codes: list[ErrorCode] = asked.response if asked.refused is None else [asked.refused] * len(wanted)
        return codes

    def fetch(
        self,
        partitions: Iterable[int] | None = range(PARTITIONS),
        *,
        group_id: str = GROUP,
        topic: str = "t",
        require_stable: bool = False,
    ) -> dict[int, tuple[int, ErrorCode]]:
        """Offset and error by partition."""
        topics = None
        if partitions is not None:
            topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=list(partitions))]
        asked = OffsetFetchRequestGroup(group_id=group_id, topics=topics)
        answer = fetch(self.driver.machine, asked, by_id=False, require_stable=require_stable)
        if isinstance(answer, FetchedOffsets):
            answer = answer.response()
        return {
            partition.partition_index: (partition.committed_offset, ErrorCode(partition.error_code))
            for found in answer.topics
            for partition in found.partitions
        }

    def offsets(self, **options: Any) -> dict[int, int]:
        """The offsets that were committed."""
        found = self.fetch(None, **options)
        return {index: offset for index, (offset, _) in found.items()}
