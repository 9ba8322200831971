"""A member of a group as its consumer sees it, whichever protocol it speaks.

A member runs in the background: it joins, sends heartbeats and learns what it is to read. What it reads changes
only when its consumer says so, for its user may be in the middle of something: a change is offered, and the member
waits, heartbeats going on, until it is applied.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from ottla.client.errors import ClientError
from ottla.client.group.coordinator import Coordinator
from ottla.client.group.offsets import Membership, TopicPartition
from ottla.client.group.subscription import Subscription
from ottla.client.network.cluster import Cluster
from ottla.client.network.metadata import Topic

SHORTEST_WATCH_SECONDS = 1.0
logger = logging.getLogger("ottla.client")


class Change(NamedTuple):
    """What a consumer is to give up, or gets. What is lost belongs to others already: it cannot be committed."""

    revoked: frozenset[TopicPartition] = frozenset()
    lost: frozenset[TopicPartition] = frozenset()
    assigned: frozenset[TopicPartition] = frozenset()


class MemberSettings(NamedTuple):
    instance_id: str | None
    session_timeout_ms: int
    heartbeat_ms: int
    max_poll_interval_ms: int
    assignors: tuple[str, ...]
    server_assignor: str | None


class Fenced(Exception):
    """The group does not know the member any more: it has lost what it had, and joins anew."""


class Member(ABC):
    """`is_stuck` says whether the consumer's user has not asked for records for too long."""

    def __init__(
        self, coordinator: Coordinator, group_id: str, subscription: Subscription, settings: MemberSettings,
        wake: Callable[[], None], is_stuck: Callable[[], bool],
    ) -> None:  # fmt: skip
        self.group_id = group_id
        self.owned: frozenset[TopicPartition] = frozenset()
        self.pending: Change | None = None
        self.error: ClientError | None = None
        """Why it is no member any more, and will not be again."""
        self._coordinator = coordinator
        self._subscription = subscription
        self._settings = settings
        self._wake = wake
        self._is_stuck = is_stuck
        self._applied = asyncio.Event()
        self._polled = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def cluster(self) -> Cluster:
        return self._coordinator.cluster

    @property
    @abstractmethod
    def membership(self) -> Membership:
        """As whom to commit."""

    @abstractmethod
    async def _run(self) -> None:
        """Until it is cancelled, or raises what cannot be helped."""

    @abstractmethod
    async def _leave(self) -> None: ...

    def resubscribe(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self._look_again()

    @abstractmethod
    def _look_again(self) -> None:
        """The topics, or what is wanted of them, may have changed."""

    # For the consumer.

    def start(self) -> None:
        self._start(self._watched(self._run()))
        self._start(self._watched(self._watch()))

    def polled(self) -> None:
        """The user is here."""
        self._polled.set()

    def apply(self, change: Change) -> None:
        """It is done."""
        self.owned = self.owned - change.revoked - change.lost | change.assigned
        if self.pending is change:  # else another has overtaken it
            self.pending = None
            self._applied.set()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.error is None:
            try:
                await self._leave()
            except ClientError as error:
                logger.info("group %s could not be left: %s", self.group_id, error)

    # For protocols.

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.append(task)
        return task

    async def _watched(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except ClientError as error:
            self.error = error
            self._wake()

    async def _offer(self, change: Change) -> None:
        """Wait until the consumer has applied it. Nothing to do is done at once."""
        if not any(change):
            return
        self._applied.clear()
        self.pending = change
        self._wake()
        await self._applied.wait()

    async def _lose(self) -> None:
        while self.owned:
            await self._offer(Change(lost=self.owned))

    async def _until_polled(self) -> None:
        self._polled.clear()
        await self._polled.wait()

    async def _watch(self) -> None:
        """Notice topics that come and go, and partitions that are added."""
        seen: dict[str, Topic] | None = None
        while True:
            pause_seconds = self.cluster.options.metadata_age_ms / 1000
            try:
                found = await self._subscription.find(self.cluster)
            except ClientError as error:
                logger.debug("group %s: the topics could not be asked for: %s", self.group_id, error)
            else:
                if seen is not None and _shape(found) != _shape(seen):
                    self._look_again()
                missing = self._subscription.wanted(found) - set(found)
                if seen is None and missing:
                    logger.warning("group %s waits for topics that do not exist: %s", self.group_id, sorted(missing))
                if missing or not found:
                    pause_seconds = min(pause_seconds, SHORTEST_WATCH_SECONDS)
                seen = found
            await asyncio.sleep(pause_seconds)


def _shape(topics: dict[str, Topic]) -> dict[str, tuple[bytes, int]]:
    return {name: (topic.topic_id, len(topic.partitions)) for name, topic in topics.items()}
