"""Commits of one consumer: now and then, and when it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from ottla.client.consumer.partition_position import NOWHERE, Place
from ottla.client.errors import ClientError, CommitFailed, ServerError
from ottla.client.group.commits import commit_offsets, fetch_committed
from ottla.client.group.coordinator import Coordinator
from ottla.client.group.member import logger
from ottla.client.group.offsets import Membership, Offset, TopicPartition
from ottla.client.network.retry import Patience
from ottla.wire.errors import ErrorCode


class Committer:
    """For the `places` that its consumer has at the moment. Without a coordinator there is no group."""

    def __init__(
        self, coordinator: Coordinator | None, places: Mapping[TopicPartition, Place],
        membership: Callable[[], Membership],
    ) -> None:  # fmt: skip
        self._coordinator = coordinator
        self._places = places
        self._membership = membership

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
        group_id = self._membership().group_id
        return await coordinator.cluster.retry(lambda: fetch_committed(coordinator, group_id, partitions))

    async def commit(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        coordinator = self._the_coordinator()
        options = coordinator.cluster.options
        patience = Patience(options.retry_timeout_ms, options.retry_pause_ms)
        while offsets:
            membership = self._membership()
            try:
                await commit_offsets(coordinator, membership, offsets)
                break
            except ClientError as error:
                # In the middle of a rebalance nothing is committed: a moment later it is, by the new generation.
                is_rebalancing = isinstance(error, ServerError) and error.code == ErrorCode.REBALANCE_IN_PROGRESS
                if not (error.is_retriable or is_rebalancing) or not await patience.pause():
                    raise
            if membership.member_id:
                # What was given away meanwhile is another's to commit.
                offsets = {one: offset for one, offset in offsets.items() if one in self._places}
        for one, offset in offsets.items():
            if one in self._places:
                self._places[one].committed = offset.offset

    async def commit_processed(self, partitions: Iterable[TopicPartition]) -> None:
        """All that was processed and is not committed yet."""
        offsets = {}
        for one in partitions:
            place = self._places.get(one)
            if place is not None and place.position != NOWHERE and place.processed != place.committed:
                offsets[one] = Offset(place.processed)
        await self.commit(offsets)

    async def run(self, every_ms: int) -> None:
        """Now and then, until it is cancelled."""
        while True:
            await asyncio.sleep(every_ms / 1000)
            try:
                await self.commit_processed(list(self._places))
            except CommitFailed as error:
                logger.warning("%s", error)
            except ClientError as error:
                logger.warning("offsets were not committed, and will be tried again: %s", error)
