"""Asking who leads the partitions of topics: one request for all that are wanted, at a pace that trouble slows down."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from ottla.client.errors import ClientError, ServerError, UnknownTopicOrPartition
from ottla.client.network.cluster import CREATION_PAUSE_MS, Cluster
from ottla.client.network.metadata import Topic
from ottla.client.network.retry import Pace
from ottla.wire.errors import ErrorCode

_logger = logging.getLogger("ottla.client")


class Learned(NamedTuple):
    """Who is told: that a topic is known, and that one will not be."""

    found: Callable[[Topic], None]
    failed: Callable[[str, ClientError], None]


class TopicLearner:
    """`want` topics; cancel its `tasks` in the end."""

    def __init__(self, cluster: Cluster, learned: Learned, *, creates: bool) -> None:
        self._cluster = cluster
        self._learned = learned
        self._creates = creates
        self._loop = asyncio.get_running_loop()
        self._wanted: dict[str, None] = {}
        self._unknown_since: dict[str, float] = {}
        """Of those that brokers do not know: while no broker answers, nobody has said so."""
        self._pace = Pace(CREATION_PAUSE_MS if creates else cluster.options.retry_pause_ms)
        self._task: asyncio.Task[None] | None = None

    def want(self, name: str) -> None:
        self._wanted[name] = None
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        return [] if self._task is None else [self._task]

    async def _run(self) -> None:
        while self._wanted:
            await self._pace.wait()
            names = list(self._wanted)
            try:
                topics = (await self._cluster.refresh(names, allow_creation=self._creates)).topics
            except ClientError as error:
                self._pace.slow_down()
                if not error.is_retriable:
                    for name in names:
                        self._fail(name, error)
                continue
            except Exception as error:
                # A mistake of ours: nobody is to wait for it for ever.
                _logger.exception("topics could not be asked for")
                for name in names:
                    self._fail(name, ClientError(f"topics cannot be asked for: {error!r}", topic=name))
                return
            is_any_missing = [self._look_at(name, topics.get(name)) for name in names]
            if any(is_any_missing):
                self._pace.slow_down()
            else:
                self._pace.recover()

    def _look_at(self, name: str, found: Topic | ServerError | None) -> bool:
        """Whether it has to be asked for again."""
        if isinstance(found, Topic):
            self._forget(name)
            self._learned.found(found)
            is_wanted_again = name in self._wanted  # it is not yet as it should be
            return is_wanted_again or not all(partition.has_leader for partition in found.partitions)
        if found is not None and found.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            if not found.is_retriable:
                self._fail(name, found)
            return found.is_retriable
        options = self._cluster.options
        limit_ms = options.retry_timeout_ms if self._creates else options.unknown_topic_timeout_ms
        now = self._loop.time()
        if (now - self._unknown_since.setdefault(name, now)) * 1000 < limit_ms:
            return True
        self._fail(name, UnknownTopicOrPartition("there is no such topic", topic=name))
        return False

    def _fail(self, name: str, error: ClientError) -> None:
        self._forget(name)
        self._learned.failed(name, error)

    def _forget(self, name: str) -> None:
        self._wanted.pop(name, None)
        self._unknown_since.pop(name, None)
