"""Where to begin to read a partition: where the group has committed, else at the start."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.client.consumer.fetcher import Fetcher
from ottla.client.consumer.partition_position import NOWHERE, Place
from ottla.client.errors import OffsetMissing, describe_place
from ottla.client.group.assignors import by_topic
from ottla.client.group.committer import Committer
from ottla.client.group.offsets import TopicPartition
from ottla.client.network.cluster import Cluster
from ottla.client.offsets import EARLIEST, Edge, Isolation, Position, find_offsets


class Locator:
    """`start` is for places without a committed offset, and those whose offset is not there any more; None: neither."""

    def __init__(
        self, cluster: Cluster, fetcher: Fetcher, committer: Committer, start: Position | None, isolation: Isolation
    ) -> None:
        self._cluster = cluster
        self._fetcher = fetcher
        self._committer = committer
        self._start = start
        self._isolation = isolation

    async def locate(self, places: Iterable[Place]) -> None:
        """Moves each place to where it begins; OffsetMissing where nobody says where that is."""
        given = list(places)
        gone = [place for place in given if place in self._fetcher.out_of_range]
        new = {place.topic_partition: place for place in given if place not in self._fetcher.out_of_range}
        if self._committer.has_group:
            for one, offset in (await self._committer.fetch(list(new))).items():
                new[one].move(offset.offset)
                new[one].committed = offset.offset
        self._fetcher.out_of_range.difference_update(gone)
        # An offset, or a time, that was not there once will not be there now.
        reset = self._start if self._start is None or isinstance(self._start, Edge) else EARLIEST
        await self._move_to(reset, gone, "its offset is not there any more")
        missing = [place for place in new.values() if place.position == NOWHERE]
        await self._move_to(self._start, missing, "there is no committed offset")

    async def _move_to(self, start: Position | None, places: list[Place], reason: str) -> None:
        by_name = {place.topic_partition: place for place in places}
        for topic, indexes in by_topic(by_name).items():
            if start is None:
                where = describe_place(topic, indexes[0])
                raise OffsetMissing(f"{where}: {reason}, and no start is given", topic=topic, partition=indexes[0])
            found = await find_offsets(self._cluster, topic, indexes, start, self._isolation)
            for index, offset in found.items():
                by_name[TopicPartition(topic, index)].move(offset)
