"""Commits of one consumer: now and then, and when it is told to. One at a time, so that none overtakes another."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Protocol

from ottla.client.consumer.partition_position import PartitionPosition
from ottla.client.consumer.statistics import Counters
from ottla.client.errors import ClientError
from ottla.client.group.commit import Commit
from ottla.client.group.commits import ask_for_committed, ask_to_commit, fetch_committed
from ottla.client.group.coordinator import Coordinator
from ottla.client.group.offsets import Membership, Offset, TopicPartition
from ottla.client.network.retry import Patience
from ottla.wire.uuids import ZERO_UUID

_logger = logging.getLogger("ottla.client")


class CommitsAs(Protocol):
    """A consumer: as whom it commits at the moment."""

    @property
    def membership(self) -> Membership: ...

    @property
    def is_rejoining(self) -> bool: ...

    def may_commit(self, one: TopicPartition) -> bool: ...


class Committer:
    """For the `positions` that its consumer has at the moment. Without a coordinator there is no group."""

    def __init__(
        self, coordinator: Coordinator | None, positions: Mapping[TopicPartition, PartitionPosition],
        commits_as: CommitsAs, counters: Counters,
    ) -> None:  # fmt: skip
        self._coordinator = coordinator
        self._positions = positions
        self._as = commits_as
        self._counters = counters
        self._turn = asyncio.Lock()

    @property
    def has_group(self) -> bool:
        return self._coordinator is not None

    def _the_coordinator(self) -> Coordinator:
        if self._coordinator is None:
            raise ValueError("a consumer without a group has no committed offsets")
        return self._coordinator

    async def fetch(self, partitions: list[TopicPartition]) -> dict[TopicPartition, Offset]:
        """What the group has committed, of those that have something."""
        coordinator = self._the_coordinator()
        if not partitions:
            return {}
        group_id = self._as.membership.group_id
        return await coordinator.cluster.retry(lambda: fetch_committed(coordinator, group_id, partitions))

    async def ask(self, partitions: list[TopicPartition]) -> dict[TopicPartition, Offset | ClientError | None]:
        """One attempt: what the group has committed of each, or what is wrong with it."""
        found = await ask_for_committed(self._the_coordinator(), self._as.membership.group_id, partitions)
        return {**found}

    async def commit(self, offsets: Mapping[TopicPartition, Offset], *, is_patient: bool = True) -> None:
        """All of it, or the first error; the others are committed all the same."""
        coordinator = self._the_coordinator()
        # Before its turn comes: what its consumer has left or lost by then is not this one's to commit.
        commit = Commit(self._as.membership.group_id, offsets, self._positions)
        async with self._turn:
            try:
                await self._carry_out(coordinator, commit, is_patient=is_patient)
            except ClientError:
                self._counters.failed_commits += 1
                raise

    async def _carry_out(self, coordinator: Coordinator, commit: Commit, *, is_patient: bool) -> None:
        options = coordinator.cluster.options
        patience = Patience(options.retry_timeout_ms if is_patient else 0, options.retry_pause_ms)
        while to_send := commit.to_send(self._positions):
            sent_as = self._as.membership
            try:
                codes = await ask_to_commit(coordinator, sent_as, to_send, self._topic_ids(to_send))
            except ClientError as error:
                if not error.is_retriable or not await patience.pause():
                    raise
                continue
            self._counters.commits += 1
            commit.answered(codes, sent_as, self._as.membership, is_rejoining=self._as.is_rejoining)
            if commit.trouble is not None and not await patience.pause():
                raise commit.trouble
        if commit.error is not None:
            raise commit.error

    def _topic_ids(self, partitions: Iterable[TopicPartition]) -> dict[str, bytes]:
        """Of the topics that the offsets are of; none of a topic of which partitions differ, or are not known to be."""
        found: defaultdict[str, set[bytes]] = defaultdict(set)
        for one in partitions:
            place = self._positions.get(one)
            found[one.topic].add(ZERO_UUID if place is None or place.topic_id is None else place.topic_id)
        return {topic: next(iter(ids)) for topic, ids in found.items() if len(ids) == 1 and ZERO_UUID not in ids}

    async def commit_finished(self, partitions: Iterable[TopicPartition], *, is_patient: bool = True) -> None:
        """All that is finished and not committed yet."""
        offsets = {}
        for one in partitions:
            place = self._positions.get(one)
            if place is not None and (offset := place.to_commit) is not None and self._as.may_commit(one):
                offsets[one] = place.to_be_committed(offset)
        if offsets:
            await self.commit(offsets, is_patient=is_patient)

    async def run(self, every_ms: int) -> None:
        """Now and then, until it is cancelled. What fails is tried the next time, with the offsets of then."""
        while True:
            await asyncio.sleep(every_ms / 1000)
            try:
                await self.commit_finished(list(self._positions), is_patient=False)
            except ClientError as error:
                _logger.warning("group %s: offsets were not committed: %s", self._as.membership.group_id, error)
