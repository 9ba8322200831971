"""The requests of a member, in both protocols: what its machine wants sent, and the answers as events."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import Any, TypeVar

from ottla.client.errors import ClientError, ServerError
from ottla.client.group.assignors import ASSIGNORS, Assignor, by_topic
from ottla.client.group.blobs import encode_assignment, encode_subscription, read_assignment, read_subscriber
from ottla.client.group.classic import ClassicMachine
from ottla.client.group.consumer import JOIN_EPOCH, ConsumerMachine
from ottla.client.group.coordinator import Coordinator
from ottla.client.group.machine import (
    Answered,
    HeartbeatAnswered,
    HeartbeatFailed,
    RequestFailed,
    SendHeartbeat,
    SendJoin,
    SendSync,
    Synced,
    TargetFound,
)
from ottla.client.group.offsets import TopicPartition
from ottla.client.group.subscription import Subscription, existing_topics
from ottla.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from ottla.wire.schema import Request, Response

_logger = logging.getLogger("ottla.client")

R = TypeVar("R", bound=Response)

PROTOCOL_TYPE = "consumer"
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2


class Requests(ABC):
    def __init__(self, coordinator: Coordinator, subscription: Subscription) -> None:
        self.subscription = subscription
        self._coordinator = coordinator

    @abstractmethod
    async def send(self, effect: SendJoin | SendSync | SendHeartbeat) -> Any:
        """One attempt; its answer as an event."""

    def code_of(self, event: Any) -> int:
        """The error code of an answer."""
        code: int = event.answer.error_code if isinstance(event, Answered) else event.code
        return code

    def failure_of(self, effect: SendJoin | SendSync | SendHeartbeat, error: ClientError) -> Any:
        """That there was no answer, as an event."""
        return RequestFailed(effect.attempt, error)

    @abstractmethod
    async def leave(self, *, is_closing: bool) -> None: ...

    @abstractmethod
    def topics_changed(self) -> None:
        """What is known of the topics is old."""


class ClassicRequests(Requests):
    def __init__(self, machine: ClassicMachine, coordinator: Coordinator, subscription: Subscription) -> None:
        super().__init__(coordinator, subscription)
        self._machine = machine

    async def send(self, effect: SendJoin | SendSync | SendHeartbeat) -> Any:
        if isinstance(effect, SendJoin):
            return Answered(effect.attempt, await self._join())
        if isinstance(effect, SendSync):
            return await self._sync(effect)
        return await self._beat()

    def failure_of(self, effect: SendJoin | SendSync | SendHeartbeat, error: ClientError) -> Any:
        return HeartbeatFailed() if isinstance(effect, SendHeartbeat) else super().failure_of(effect, error)

    def topics_changed(self) -> None:
        """They are asked for with each generation."""

    async def _join(self) -> JoinGroupResponse:
        machine, settings = self._machine, self._machine.settings
        found = await self.subscription.find(self._coordinator.cluster)
        topics = self.subscription.wanted(found)
        request = JoinGroupRequest(
            group_id=machine.group_id,
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.max_poll_interval_ms,
            member_id=machine.member_id,
            group_instance_id=settings.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(
                    name=assignor.name,
                    metadata=encode_subscription(assignor, topics, machine.owned, machine.had, machine.had_in),
                )
                for assignor in self._assignors
            ],
        )
        return await self._park(request, JoinGroupResponse)

    async def _park(self, request: Request, answer: type[R]) -> R:
        """What is answered when all members have come, which has as much time as each of them has."""
        settings = self._machine.settings
        return await self._coordinator.ask_to_park(
            request, answer, wait_ms=settings.max_poll_interval_ms, look_every_ms=settings.heartbeat_ms
        )

    @property
    def _assignors(self) -> list[Assignor]:
        return [ASSIGNORS[name] for name in self._machine.settings.assignors]

    async def _sync(self, effect: SendSync) -> Synced:
        machine, joined = self._machine, effect.joined
        assignments: list[SyncGroupRequestAssignment] = []
        if joined.leader == joined.member_id and not joined.skip_assignment:
            assignments = await self._assign(joined)
        request = SyncGroupRequest(
            group_id=machine.group_id,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=machine.settings.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=assignments,
        )
        answer = await self._park(request, SyncGroupResponse)
        target = frozenset() if answer.error_code else frozenset(read_assignment(answer.assignment))
        return Synced(effect.attempt, answer.error_code, target)

    async def _assign(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        """This member is the leader: it decides for all."""
        assignor = ASSIGNORS[joined.protocol_name or ""]
        subscribers = {
            member.member_id: read_subscriber(member.metadata, assignor, member.group_instance_id)
            for member in joined.members
        }
        names: set[str] = set().union(*(subscriber.topics for subscriber in subscribers.values()))
        found = await existing_topics(self._coordinator.cluster, names)
        counts = {name: len(topic.partitions) for name, topic in found.items()}
        return [
            SyncGroupRequestAssignment(member_id=member_id, assignment=encode_assignment(places))
            for member_id, places in assignor.assign(subscribers, counts).items()
        ]

    async def _beat(self) -> HeartbeatAnswered:
        machine = self._machine
        generation = machine.generation
        request = HeartbeatRequest(
            group_id=machine.group_id,
            generation_id=generation,
            member_id=machine.member_id,
            group_instance_id=machine.settings.instance_id,
        )
        answer = await self._coordinator.ask(request, HeartbeatResponse)
        return HeartbeatAnswered(generation, answer.error_code)

    async def leave(self, *, is_closing: bool) -> None:
        """A static member that closes stays: it will be back."""
        machine = self._machine
        if not machine.member_id or (is_closing and machine.settings.instance_id is not None):
            return
        identity = MemberIdentity(member_id=machine.member_id, group_instance_id=machine.settings.instance_id)
        request = LeaveGroupRequest(group_id=machine.group_id, members=[identity])
        answer = await self._coordinator.ask(request, LeaveGroupResponse)
        code = answer.error_code or next((row.error_code for row in answer.members), 0)
        if code:
            raise ServerError(code, about=f"group {machine.group_id}")


class ConsumerRequests(Requests):
    def __init__(self, machine: ConsumerMachine, coordinator: Coordinator, subscription: Subscription) -> None:
        super().__init__(coordinator, subscription)
        self._machine = machine
        self._topics: frozenset[str] | None = None
        self._ids: dict[bytes, str] = {}
        self._told_topics: frozenset[str] | None = None
        self._told_owned: frozenset[TopicPartition] | None = None
        self._has_joined = False
        self.latest_target: Any = None

    def topics_changed(self) -> None:
        self._topics = None

    async def send(self, effect: SendJoin | SendSync | SendHeartbeat) -> Any:
        assert isinstance(effect, SendHeartbeat)
        topics = await self._find_topics() if self._topics is None else self._topics
        request, owned = self._heartbeat(topics, is_full=effect.is_full)
        self._has_joined = True
        answer = await self._coordinator.ask(request, ConsumerGroupHeartbeatResponse)
        if answer.error_code:
            return Answered(effect.attempt, answer)
        self._told_topics, self._told_owned = topics, owned
        given_away = self._given_away(owned, answer) if request.topic_partitions is not None else frozenset()
        return Answered(effect.attempt, answer, given_away)

    def _given_away(
        self, named: frozenset[TopicPartition], answer: ConsumerGroupHeartbeatResponse
    ) -> frozenset[TopicPartition]:
        """What is named is taken from a member only when it has given it up; all else may be another's at once."""
        if answer.assignment is None:
            return frozenset()
        rows = answer.assignment.topic_partitions
        return self._machine.owned - named - self._places(rows)

    def _heartbeat(
        self, topics: frozenset[str], *, is_full: bool
    ) -> tuple[ConsumerGroupHeartbeatRequest, frozenset[TopicPartition]]:
        """Everything when joining and after trouble, else only what has changed."""
        machine, settings = self._machine, self._machine.settings
        owned: frozenset[TopicPartition] = frozenset() if machine.epoch == JOIN_EPOCH else machine.owned
        request = ConsumerGroupHeartbeatRequest(
            group_id=machine.group_id,
            member_id=machine.member_id,
            member_epoch=machine.epoch,
            instance_id=settings.instance_id,
            rebalance_timeout_ms=settings.max_poll_interval_ms if is_full else -1,
            subscribed_topic_names=sorted(topics) if is_full or topics != self._told_topics else None,
            server_assignor=settings.server_assignor if is_full else None,
            topic_partitions=self._rows(owned) if is_full or owned != self._told_owned else None,
        )
        return request, owned

    def _rows(self, places: frozenset[TopicPartition]) -> list[TopicPartitions]:
        ids = {name: topic_id for topic_id, name in self._ids.items()}
        return [TopicPartitions(topic_id=ids[topic], partitions=indexes) for topic, indexes in by_topic(places).items()]

    async def _find_topics(self) -> frozenset[str]:
        found = await self.subscription.find(self._coordinator.cluster)
        self._ids = self._ids | {topic.topic_id: name for name, topic in found.items()}
        self._topics = self.subscription.wanted(found)
        return self._topics

    async def resolve(self, rows: list[TopicPartitions]) -> tuple[TargetFound, bool]:
        """The target by names, and whether all of them are known."""
        if any(row.topic_id not in self._ids for row in rows):
            try:
                await self._find_topics()
            except ClientError as error:
                _logger.info("group %s: the topics could not be asked for: %s", self._machine.group_id, error)
        return TargetFound(self._places(rows)), all(row.topic_id in self._ids for row in rows)

    def _places(self, rows: list[TopicPartitions]) -> frozenset[TopicPartition]:
        """Of the topics that are known."""
        return frozenset(
            TopicPartition(self._ids[row.topic_id], index)
            for row in rows
            if row.topic_id in self._ids
            for index in row.partitions
        )

    async def leave(self, *, is_closing: bool) -> None:
        if not self._has_joined:
            return
        settings = self._machine.settings
        is_static = is_closing and settings.instance_id is not None
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._machine.group_id,
            member_id=self._machine.member_id,
            member_epoch=STATIC_LEAVE_EPOCH if is_static else LEAVE_EPOCH,
            instance_id=settings.instance_id,
        )
        await self._coordinator.ask(request, ConsumerGroupHeartbeatResponse)
