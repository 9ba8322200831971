"""Fetches ahead of its consumer: asks the leaders of the consumer's partitions, and holds what they send.

A request is for all partitions of a leader of which too little is held. While one waits for records that are not
there yet, a second may go out, on a connection of its own, for those that have come to want some meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable

from ottla.client.consumer.fetch import FetchLimits, Wanted, fetch
from ottla.client.consumer.fetched_data import Portion
from ottla.client.consumer.partition_position import NOWHERE, Held, Place
from ottla.client.errors import ClientError, ServerError
from ottla.client.group.offsets import TopicPartition
from ottla.client.network.cluster import Cluster, Line
from ottla.client.offsets import Isolation
from ottla.wire.errors import ErrorCode

HELD_PORTIONS = 2
LINES = (Line.FETCHING, Line.FETCHING_TOO)


class Fetcher:
    """`places` are the partitions to read; whoever changes them, or takes what is held, calls `wake`."""

    def __init__(
        self, cluster: Cluster, isolation: Isolation, limits: FetchLimits, wait_ms: int, tell: Callable[[], None]
    ) -> None:
        self.places: dict[TopicPartition, Place] = {}
        self.error: ClientError | None = None
        """What a consumer must be told."""
        self.out_of_range: set[Place] = set()
        """Places whose offset is not there."""
        self._cluster = cluster
        self._isolation = isolation
        self._limits = limits
        self._wait_ms = wait_ms
        self._tell = tell
        self._woken = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._asked: dict[tuple[int, Line], asyncio.Task[None]] = {}
        self._renewing: set[asyncio.Task[None]] = set()

    def wake(self) -> None:
        self._woken.set()

    async def run(self) -> None:
        try:
            while True:
                self._woken.clear()
                self._ask_leaders()
                await self._woken.wait()
        finally:
            tasks = [*self._asked.values(), *self._renewing]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _ask_leaders(self) -> None:
        now = self._loop.time()
        by_leader: defaultdict[int, list[Place]] = defaultdict(list)
        for place in self.places.values():
            if place.is_asked or place.is_paused or place.position == NOWHERE or place.resting_until > now:
                continue
            if len(place.held) >= HELD_PORTIONS:
                continue
            leader_id = self._cluster.leader_id(*place.topic_partition)
            if leader_id is None:
                self._rest(place)
            else:
                by_leader[leader_id].append(place)
        for leader_id, places in by_leader.items():
            line = next((line for line in LINES if (leader_id, line) not in self._asked), None)
            if line is not None:
                for place in places:
                    place.asked_version = place.version
                self._asked[leader_id, line] = asyncio.create_task(self._ask(leader_id, line, places))

    async def _ask(self, leader_id: int, line: Line, places: list[Place]) -> None:
        asked = {place.topic_partition: (place, place.version) for place in places}
        wanted = [self._wanted(place) for place in places]
        try:
            answer = await fetch(
                self._cluster, leader_id, wanted, isolation=self._isolation, limits=self._limits,
                wait_ms=self._wait_ms, line=line,
            )  # fmt: skip
            for one, portion in answer:
                place, version = asked[TopicPartition(one.topic, one.partition)]
                if place.version == version and self.places.get(place.topic_partition) is place:
                    self._take(place, portion)
        except ClientError as error:
            self._fail(places, error)
        finally:
            del self._asked[leader_id, line]
            for place, version in asked.values():
                if place.asked_version == version:
                    place.asked_version = None
            self.wake()

    def _wanted(self, place: Place) -> Wanted:
        topic, index = place.topic_partition
        known = self._cluster.known_topic(topic)
        epoch = -1 if known is None else known.partitions[index].leader_epoch
        return Wanted(topic, index, place.fetch_offset, epoch)

    def _take(self, place: Place, portion: Portion | ServerError) -> None:
        if isinstance(portion, ServerError):
            if portion.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                place.position = NOWHERE
                self.out_of_range.add(place)
                self._tell()
            else:
                self._fail([place], portion)
            return
        place.high_watermark = portion.high_watermark
        if portion.size_bytes:
            place.held.append(Held(place, portion, place.version))
            place.fetch_offset = portion.next_offset
            self._tell()

    def _fail(self, places: list[Place], error: ClientError) -> None:
        if error.is_retriable:
            for place in places:
                self._rest(place)
        else:
            self.error = error
            for place in places:
                place.resting_until = self._loop.time() + 1  # the consumer is told; it may go on
            self._loop.call_later(1, self.wake)
            self._tell()

    def _rest(self, place: Place) -> None:
        """Leave it alone for a moment, and find out who leads it meanwhile."""
        pause_seconds = self._cluster.options.retry_pause_ms / 1000
        place.resting_until = self._loop.time() + pause_seconds
        task = asyncio.create_task(self._renew(place.topic_partition.topic))
        self._renewing.add(task)
        task.add_done_callback(self._renewing.discard)
        self._loop.call_later(pause_seconds, self.wake)

    async def _renew(self, topic: str) -> None:
        try:
            await self._cluster.renew(topic)
        except ClientError as error:
            if not error.is_retriable:
                self.error = error
                self._tell()
        self.wake()
