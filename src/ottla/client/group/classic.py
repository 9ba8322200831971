"""A member of a classic group: join, sync, heartbeats; the leader among the members assigns."""

from __future__ import annotations

import asyncio

from ottla.client.errors import ClientError, ServerError
from ottla.client.group.assignors import ASSIGNORS, Assignor
from ottla.client.group.blobs import encode_assignment, encode_subscription, read_assignment, read_subscriber
from ottla.client.group.member import Change, Fenced, Member, logger
from ottla.client.group.offsets import Membership, TopicPartition
from ottla.client.group.subscription import existing_topics
from ottla.client.network.cluster import Line
from ottla.client.network.retry import Patience
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

PROTOCOL_TYPE = "consumer"
NO_GENERATION = -1
_FENCED = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)


class _Again(Exception):
    """The group has begun another rebalance: join again."""


class ClassicMember(Member):
    _member_id = ""
    _generation = NO_GENERATION
    _is_joined = False
    _is_fenced = False
    _had: frozenset[TopicPartition] = frozenset()
    """What it owned last, for assignors that want to give it back."""
    _had_in = NO_GENERATION

    @property
    def membership(self) -> Membership:
        return Membership(self.group_id, self._generation, self._member_id, self._settings.instance_id)

    @property
    def _assignors(self) -> list[Assignor]:
        return [ASSIGNORS[name] for name in self._settings.assignors]

    @property
    def _is_cooperative(self) -> bool:
        return all(assignor.is_cooperative for assignor in self._assignors)

    async def _run(self) -> None:
        self._rebalance = asyncio.Event()
        self._start(self._watched(self._beat()))
        options = self.cluster.options
        patience = Patience(options.retry_timeout_ms, options.retry_pause_ms)
        while True:
            try:
                await self._round()
                patience = Patience(options.retry_timeout_ms, options.retry_pause_ms)
            except _Again:
                continue
            except Fenced:
                # Who it was is forgotten last: what is committed before its user knows must be refused as a lost
                # member's, not taken as that of somebody who is in no group.
                await self._lose()
                self._forget_generation()
            except ClientError as error:
                if not error.is_retriable or not await patience.pause():
                    raise

    def _look_again(self) -> None:
        self._rebalance.set()

    def _forget_generation(self) -> None:
        self._is_joined = self._is_fenced = False
        self._member_id = ""
        self._generation = NO_GENERATION

    async def _round(self) -> None:
        """One generation, from its beginning to the first sign of the next."""
        if not self._is_cooperative:
            await self._offer(Change(revoked=self.owned))
        self._rebalance.clear()
        target = await self._join()
        self._had, self._had_in = frozenset(target), self._generation
        revoked = self.owned - target
        await self._offer(Change(revoked=revoked))
        await self._offer(Change(assigned=target - self.owned))
        if revoked:
            return  # what was given up can be given to others only in another round
        await self._rebalance.wait()
        if self._is_fenced:
            raise Fenced

    # Joining.

    async def _join(self) -> frozenset[TopicPartition]:
        found = await self._subscription.find(self.cluster)
        topics = self._subscription.wanted(found)
        self._is_joined = False
        answer = await self._ask_to_join(topics)
        self._member_id = answer.member_id
        self._generation = answer.generation_id
        assignments: list[SyncGroupRequestAssignment] = []
        if answer.leader == answer.member_id and not answer.skip_assignment:
            assignments = await self._assign(answer)
        return await self._sync(answer, assignments)

    async def _ask_to_join(self, topics: frozenset[str]) -> JoinGroupResponse:
        settings = self._settings
        while True:
            request = JoinGroupRequest(
                group_id=self.group_id,
                session_timeout_ms=settings.session_timeout_ms,
                rebalance_timeout_ms=settings.max_poll_interval_ms,
                member_id=self._member_id,
                group_instance_id=settings.instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocols=[
                    JoinGroupRequestProtocol(
                        name=assignor.name,
                        metadata=encode_subscription(assignor, topics, self.owned, self._had, self._had_in),
                    )
                    for assignor in self._assignors
                ],
            )
            answer = await self._coordinator.ask(
                request, JoinGroupResponse, wait_ms=settings.max_poll_interval_ms, line=Line.JOINING
            )
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self._member_id = answer.member_id
                continue
            self._check(answer.error_code)
            return answer

    async def _assign(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        """This member is the leader: it decides for all."""
        assignor = ASSIGNORS[joined.protocol_name or ""]
        subscribers = {
            member.member_id: read_subscriber(member.metadata, assignor, member.group_instance_id)
            for member in joined.members
        }
        names: set[str] = set().union(*(subscriber.topics for subscriber in subscribers.values()))
        found = await existing_topics(self.cluster, names)
        counts = {name: len(topic.partitions) for name, topic in found.items()}
        return [
            SyncGroupRequestAssignment(member_id=member_id, assignment=encode_assignment(places))
            for member_id, places in assignor.assign(subscribers, counts).items()
        ]

    async def _sync(
        self, joined: JoinGroupResponse, assignments: list[SyncGroupRequestAssignment]
    ) -> frozenset[TopicPartition]:
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._settings.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=assignments,
        )
        answer = await self._coordinator.ask(
            request, SyncGroupResponse, wait_ms=self._settings.max_poll_interval_ms, line=Line.JOINING
        )
        self._check(answer.error_code)
        self._is_joined = True
        return frozenset(read_assignment(answer.assignment))

    def _check(self, code: int) -> None:
        if code in _FENCED:
            raise Fenced
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            raise _Again
        error = self._coordinator.error(code)
        if error is not None:
            raise error

    # Staying.

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._settings.heartbeat_ms / 1000)
            if self._is_joined and not self._is_fenced:
                if self._is_stuck():
                    await self._give_way()
                else:
                    await self._send_heartbeat()

    async def _send_heartbeat(self) -> None:
        generation = self._generation
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=generation,
            member_id=self._member_id,
            group_instance_id=self._settings.instance_id,
        )
        try:
            answer = await self._coordinator.ask(request, HeartbeatResponse)
        except ClientError as error:
            logger.info("group %s: no heartbeat: %s", self.group_id, error)
            return
        if generation != self._generation or not self._is_joined:
            return  # about a generation that is over
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._rebalance.set()
        elif answer.error_code in _FENCED:
            self._is_fenced = True
            self._rebalance.set()
        else:
            error_of_code = self._coordinator.error(answer.error_code)
            if error_of_code is not None and not error_of_code.is_retriable:
                raise error_of_code

    async def _give_way(self) -> None:
        """The user is stuck: others shall have the partitions until it is back."""
        logger.warning(
            "group %s: nothing was asked for within max_poll_interval_ms=%d, so the member leaves",
            self.group_id,
            self._settings.max_poll_interval_ms,
        )
        try:
            await self._send_leave()
        except ClientError as error:
            logger.info("group %s could not be left: %s", self.group_id, error)
        self._is_fenced = True
        await self._until_polled()
        self._rebalance.set()

    async def _leave(self) -> None:
        """A static member stays: it will be back."""
        if self._member_id and self._settings.instance_id is None:
            await self._send_leave()

    async def _send_leave(self) -> None:
        identity = MemberIdentity(member_id=self._member_id, group_instance_id=self._settings.instance_id)
        request = LeaveGroupRequest(group_id=self.group_id, members=[identity])
        answer = await self._coordinator.ask(request, LeaveGroupResponse)
        code = answer.error_code or next((row.error_code for row in answer.members), 0)
        if code:
            raise ServerError(code, about=f"group {self.group_id}")
