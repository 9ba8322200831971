"""A member of a group of the new protocol (KIP-848): heartbeats are all there is, the coordinator assigns."""

from __future__ import annotations

import asyncio
import base64
import uuid

from ottla.client.errors import ClientError
from ottla.client.group.assignors import by_topic
from ottla.client.group.member import Change, Fenced, Member, logger
from ottla.client.group.offsets import Membership, TopicPartition
from ottla.client.network.retry import Patience
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
_FENCED = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)


class ConsumerMember(Member):
    _epoch = JOIN_EPOCH
    _interval_ms = 0
    _topics: frozenset[str] = frozenset()
    _ids: dict[bytes, str] = {}  # noqa: RUF012 - replaced, never changed
    _target: list[TopicPartitions] | None = None
    """What the coordinator wants it to own, as it said it last."""
    _told_topics: frozenset[str] | None = None
    _told_owned: frozenset[TopicPartition] | None = None

    @property
    def membership(self) -> Membership:
        return Membership(self.group_id, self._epoch, self._member_id, self._settings.instance_id)

    async def _run(self) -> None:
        self._member_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self._due = asyncio.Event()
        self._has_target = asyncio.Event()
        reconciling = self._start(self._watched(self._reconcile()))
        options = self.cluster.options
        patience = Patience(options.retry_timeout_ms, options.retry_pause_ms)
        while True:
            try:
                if self._is_stuck():
                    await self._give_way()
                await self._beat()
                patience = Patience(options.retry_timeout_ms, options.retry_pause_ms)
            except Fenced:
                reconciling.cancel()  # whatever it offers is overtaken
                await self._rejoin()
                reconciling = self._start(self._watched(self._reconcile()))
                continue
            except ClientError as error:
                if not error.is_retriable or not await patience.pause():
                    raise
                # The answer may have been lost: say everything again, so that everything is answered again.
                self._told_topics = self._told_owned = None
                continue
            await self._wait_for_next()

    def _look_again(self) -> None:
        self._topics = frozenset()
        self._due.set()

    async def _wait_for_next(self) -> None:
        try:
            async with asyncio.timeout(self._interval_ms / 1000):
                await self._due.wait()
        except TimeoutError:
            pass
        self._due.clear()

    async def _beat(self) -> None:
        if not self._topics:
            await self._find_topics()
        answer = await self._coordinator.ask(self._heartbeat(), ConsumerGroupHeartbeatResponse)
        if answer.error_code in _FENCED:
            raise Fenced
        error = self._coordinator.error(answer.error_code, answer.error_message)
        if error is not None:
            raise error
        self._epoch = answer.member_epoch
        self._interval_ms = answer.heartbeat_interval_ms
        if answer.assignment is not None:
            self._target = answer.assignment.topic_partitions
            self._has_target.set()

    def _heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        """Everything when joining, then only what has changed."""
        settings = self._settings
        is_full = self._epoch == JOIN_EPOCH or self._told_owned is None
        owned = frozenset() if self._epoch == JOIN_EPOCH else self.owned
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self._member_id,
            member_epoch=self._epoch,
            instance_id=settings.instance_id,
            rebalance_timeout_ms=settings.max_poll_interval_ms if is_full else -1,
            subscribed_topic_names=sorted(self._topics) if is_full or self._topics != self._told_topics else None,
            server_assignor=settings.server_assignor if is_full else None,
            topic_partitions=self._rows(owned) if is_full or owned != self._told_owned else None,
        )
        self._told_topics, self._told_owned = self._topics, owned
        return request

    def _rows(self, places: frozenset[TopicPartition]) -> list[TopicPartitions]:
        ids = {name: topic_id for topic_id, name in self._ids.items()}
        return [TopicPartitions(topic_id=ids[topic], partitions=indexes) for topic, indexes in by_topic(places).items()]

    async def _find_topics(self) -> None:
        found = await self._subscription.find(self.cluster)
        self._ids = self._ids | {topic.topic_id: name for name, topic in found.items()}
        self._topics = self._subscription.wanted(found)

    # What it is to own.

    async def _reconcile(self) -> None:
        """Walk to the target: give up first, tell the coordinator, then take. A newer target overtakes."""
        while True:
            await self._has_target.wait()
            self._has_target.clear()
            target = await self._resolved()
            revoked = self.owned - target
            if revoked:
                await self._offer(Change(revoked=revoked))
                self._due.set()
            if not self._has_target.is_set():
                await self._offer(Change(assigned=target - self.owned))
                self._due.set()

    async def _resolved(self) -> frozenset[TopicPartition]:
        """The target by names. A topic that is not known yet is left out until it is."""
        rows = self._target or []
        if any(row.topic_id not in self._ids for row in rows):
            try:
                await self._find_topics()
            except ClientError as error:
                logger.info("group %s: the topics could not be asked for: %s", self.group_id, error)
        return frozenset(
            TopicPartition(self._ids[row.topic_id], index)
            for row in rows
            if row.topic_id in self._ids
            for index in row.partitions
        )

    async def _rejoin(self) -> None:
        """It was thrown out: what it had is others' by now."""
        self._epoch = JOIN_EPOCH
        self._target = None
        self._has_target.clear()
        self._told_topics = self._told_owned = None
        await self._lose()

    # Going.

    async def _give_way(self) -> None:
        """The user is stuck: others shall have the partitions until it is back."""
        logger.warning(
            "group %s: nothing was asked for within max_poll_interval_ms=%d, so the member leaves",
            self.group_id,
            self._settings.max_poll_interval_ms,
        )
        await self._send_leave(LEAVE_EPOCH)
        await self._until_polled()
        raise Fenced

    async def _leave(self) -> None:
        if self._epoch > JOIN_EPOCH:
            await self._send_leave(LEAVE_EPOCH if self._settings.instance_id is None else STATIC_LEAVE_EPOCH)

    async def _send_leave(self, epoch: int) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self._member_id,
            member_epoch=epoch,
            instance_id=self._settings.instance_id,
        )
        await self._coordinator.ask(request, ConsumerGroupHeartbeatResponse)
