"""Fetches ahead of its consumer: asks the leaders of the consumer's partitions, and holds what they send.

A request is for all partitions of one leader that hold too little, those first that have waited longest. While it
waits for records that are not there yet, a second request may go out on another connection, for partitions that need
records meanwhile. What is held and what is asked for together stay within `buffer_bytes`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable
from itertools import count
from typing import NamedTuple

from ottla.client.consumer.fetch import FetchLimits, Wanted, fetch, has_moved
from ottla.client.consumer.fetched_data import FetchedData
from ottla.client.consumer.leader_epochs import UNKNOWN
from ottla.client.consumer.partition_position import PartitionPosition
from ottla.client.consumer.statistics import Counters
from ottla.client.errors import ClientError, DamagedBatch, LogTruncated, ServerError, UnknownTopicOrPartition
from ottla.client.group.offsets import TopicPartition
from ottla.client.network.cluster import Cluster, Line
from ottla.client.network.metadata import Topic
from ottla.client.network.retry import LONGEST_PAUSE_MS
from ottla.client.offsets import Isolation
from ottla.wire.errors import ErrorCode

_logger = logging.getLogger("ottla.client")

FETCHED_AHEAD = 2
"""So many answers of a partition are held."""
REFUSED_PAUSE_SECONDS = 1.0
CLOCK_SECONDS = 1e-6
"""By so much a timer may be early."""
LINES = (Line.FETCHING, Line.FETCHING_TOO)
_GONE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class FetcherTold(NamedTuple):
    """Whom the fetcher tells of what."""

    news: Callable[[], None]
    """There is something to hand out, or an error to raise."""
    topic_gone: Callable[[], bool]
    """A topic is not there: whether a group will see to that."""
    offset_gone: Callable[[], None]
    """It has to be found anew where a partition goes on."""


class Fetcher:
    """`positions` are the partitions to read; whoever changes them, or takes what is held, calls `wake`."""

    def __init__(
        self, cluster: Cluster, isolation: Isolation, limits: FetchLimits, wait_ms: int, buffer_bytes: int,
        told: FetcherTold, counters: Counters, *, goes_back: bool,
    ) -> None:  # fmt: skip
        self.positions: dict[TopicPartition, PartitionPosition] = {}
        self.error: ClientError | None = None
        """What a consumer must be told."""
        self._cluster = cluster
        self._isolation = isolation
        self._limits = limits
        self._wait_ms = wait_ms
        self._buffer_bytes = buffer_bytes
        self._told = told
        self._counters = counters
        self._goes_back = goes_back
        """Where a log has lost what was read."""
        self._woken = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._asked: dict[tuple[int, Line], asyncio.Task[None]] = {}
        self._reserved_bytes: dict[tuple[int, Line], int] = {}
        self._turns = count(1)
        self._stale_topics: set[str] = set()
        self._renewing: asyncio.Task[None] | None = None
        self._away_since: dict[int, float] = {}
        self._mistake: Exception | None = None
        """Of ours: whoever reads is told, and nothing is asked again and again."""

    def wake(self) -> None:
        self._woken.set()

    @property
    def held_bytes(self) -> int:
        return sum(place.held_bytes for place in list(self.positions.values()))  # also for other threads

    async def run(self) -> None:
        try:
            while True:
                self._woken.clear()
                if self._mistake is not None:
                    raise self._mistake
                next_due = self._ask_leaders()
                self._tell_of_old_trouble()
                try:
                    async with asyncio.timeout_at(next_due):
                        await self._woken.wait()
                except TimeoutError:
                    pass
        finally:
            tasks = [*self._asked.values(), *([] if self._renewing is None else [self._renewing])]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # Asking.

    def _ask_leaders(self) -> float | None:
        """Ask whom there is to ask; when to look again, if nothing happens before."""
        now = self._loop.time()
        by_leader: defaultdict[int, list[PartitionPosition]] = defaultdict(list)
        next_due: float | None = None
        for place in self.positions.values():
            if place.is_asked or place.is_paused or not place.is_ready or len(place.fetched) >= FETCHED_AHEAD:
                continue
            if place.resting_until > now + CLOCK_SECONDS:
                next_due = place.resting_until if next_due is None else min(next_due, place.resting_until)
                continue
            if self._cluster.is_replaced(place.topic_partition.topic, place.topic_id):
                self._lose_offset(place, "the topic was deleted and created again")
                continue
            leader_id = self._cluster.leader_id(*place.topic_partition)
            if leader_id is None:
                self._fail(place, _without_leader(place))
                next_due = place.resting_until if next_due is None else min(next_due, place.resting_until)
            else:
                by_leader[leader_id].append(place)
        for leader_id, places in by_leader.items():
            self._ask_leader(leader_id, places, len(by_leader))
        return next_due

    def _lose_offset(self, place: PartitionPosition, reason: str) -> None:
        _logger.info("%s: %s", place.topic_partition, reason)
        place.lose_offset()
        self._told.offset_gone()

    def _ask_leader(self, leader_id: int, places: list[PartitionPosition], leaders: int) -> None:
        line = next((line for line in LINES if (leader_id, line) not in self._asked), None)
        if line is None:
            return
        in_use = self.held_bytes + sum(self._reserved_bytes.values())
        wanted_bytes = min(len(places) * self._limits.partition_bytes, self._limits.fetch_bytes)
        room = min(self._buffer_bytes - in_use, self._buffer_bytes // (leaders * len(LINES)))
        if room < wanted_bytes:
            if in_use and room < min(wanted_bytes, self._limits.partition_bytes, self._buffer_bytes // 4):
                return  # until some of it is handed out
            wanted_bytes = max(room, 1)
        places.sort(key=lambda place: place.turn)
        self._reserved_bytes[leader_id, line] = wanted_bytes
        asked = {place.topic_partition: (place, place.ask()) for place in places}
        wanted = [self._wanted(place) for place in places]  # now: what is known may be another topic a moment later
        self._asked[leader_id, line] = asyncio.create_task(self._ask(leader_id, line, asked, wanted, wanted_bytes))

    async def _ask(
        self, leader_id: int, line: Line, asked: dict[TopicPartition, tuple[PartitionPosition, int]],
        wanted: list[Wanted], most_bytes: int,
    ) -> None:  # fmt: skip
        limits = self._limits._replace(fetch_bytes=most_bytes)
        self._counters.fetches += 1
        try:
            answer = await fetch(
                self._cluster, leader_id, wanted, isolation=self._isolation, limits=limits, wait_ms=self._wait_ms,
                line=line,
            )  # fmt: skip
            self._is_back(leader_id)
            for one, data in answer:
                place, epoch = asked[TopicPartition(one.topic, one.partition)]
                if place.epoch == epoch and self.positions.get(place.topic_partition) is place:
                    self._take(place, epoch, data, one)
        except ClientError as error:
            self._is_away(leader_id, error)
            for place, _ in asked.values():
                self._fail(place, error)
        except Exception as error:
            self._mistake = error
        finally:
            del self._asked[leader_id, line], self._reserved_bytes[leader_id, line]
            for place, epoch in asked.values():
                place.stop_asking(epoch)
            self.wake()

    def _wanted(self, place: PartitionPosition) -> Wanted:
        """Its leader is known, and so is its topic."""
        topic, index = place.topic_partition
        known = self._cluster.last_known(topic)
        assert known is not None
        place.topic_id = known.topic_id
        leader_epoch = known.partitions[index].leader_epoch
        last_epoch = place.leader_epochs.to_check(leader_epoch)
        return Wanted(topic, known.topic_id, index, place.fetch_offset, leader_epoch, last_epoch)

    def _take(
        self, place: PartitionPosition, epoch: int, data: FetchedData | ServerError | LogTruncated, asked: Wanted
    ) -> None:
        if isinstance(data, LogTruncated):
            self._truncated(place, place.leader_epochs.parted(data))
            return
        is_out_of_range = isinstance(data, ServerError) and data.code == ErrorCode.OFFSET_OUT_OF_RANGE
        if not isinstance(data, ServerError) or is_out_of_range:
            place.leader_epochs.checked(asked.leader_epoch)
        if isinstance(data, ServerError):
            if is_out_of_range and asked.last_epoch != UNKNOWN:
                self._told.news()  # it may be the epoch that is not known any more: again without it
            elif is_out_of_range:
                if self._is_handed_out(place):
                    self._lose_offset(place, f"offset {place.fetch_offset} is not there any more")
                self._told.news()
            elif isinstance(data, DamagedBatch) and not self._is_handed_out(place):
                self._told.news()  # what is sound comes first
            elif not data.is_retriable or not has_moved(self._cluster, asked):
                self._fail(place, data)
            return
        place.trouble = None
        place.pause_seconds = 0.0
        if place.take(epoch, data):
            place.turn = next(self._turns)
            self._counters.fetched_bytes += data.size_bytes
            self._told.news()

    def _is_handed_out(self, place: PartitionPosition) -> bool:
        """Whether all that was fetched is; else that comes first, and the partition is left alone until then."""
        if not place.fetched and place.held_bytes == 0:
            return True
        place.resting_until = self._loop.time() + self._cluster.options.retry_pause_ms / 1000
        return False

    def _truncated(self, place: PartitionPosition, truncated: LogTruncated) -> None:
        """The log has parted from what was read: reading goes on from there, or, without a start, that is an error."""
        if self._is_handed_out(place):
            if self._goes_back:
                _logger.warning("%s", truncated)
                place.go_back(truncated)
            else:
                self._fail(place, truncated)
        self._told.news()

    # Trouble.

    def _fail(self, place: PartitionPosition, error: ClientError) -> None:
        """Leave it alone for a moment, longer each time, and find out who leads it meanwhile."""
        now = self._loop.time()
        if place.trouble is None:
            place.trouble_since = now
        place.trouble = error
        if not error.is_retriable:
            place.resting_until = now + REFUSED_PAUSE_SECONDS  # the consumer is told; it may go on
            self._tell_error(error)
            return
        first_seconds = self._cluster.options.retry_pause_ms / 1000
        place.pause_seconds = min(max(2 * place.pause_seconds, first_seconds), LONGEST_PAUSE_MS / 1000)
        place.resting_until = now + place.pause_seconds
        self._stale_topics.add(place.topic_partition.topic)
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.create_task(self._renew())

    def _tell_of_old_trouble(self) -> None:
        """What was tried for as long as the options say is raised, and tried on."""
        now = self._loop.time()
        timeout_seconds = self._cluster.options.retry_timeout_ms / 1000
        for place in self.positions.values():
            if place.trouble is not None and now - place.trouble_since >= timeout_seconds:
                place.trouble_since = now
                self._tell_error(place.trouble)

    def _tell_error(self, error: ClientError) -> None:
        self.error = error
        self._told.news()

    async def _renew(self) -> None:
        try:
            await self._ask_for_topics()
        except Exception as error:
            self._mistake = error
            self.wake()

    async def _ask_for_topics(self) -> None:
        """Ask for all topics that may have moved, in one request, until it is answered."""
        pause_seconds = self._cluster.options.retry_pause_ms / 1000
        while self._stale_topics:
            wanted = {place.topic_partition.topic for place in self.positions.values()}
            topics = sorted(self._stale_topics & wanted)
            self._stale_topics.clear()
            if not topics:
                return
            leaders = {one: self._cluster.leader_id(*one) for one in self.positions}
            try:
                found = (await self._cluster.refresh(topics)).topics
            except ClientError as error:
                if not error.is_retriable:
                    self._tell_error(error)
                    return
                self._stale_topics.update(topics)
            else:
                for topic in topics:
                    self._renewed(topic, found.get(topic))
                self._log_moves(leaders)
                self.wake()
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, LONGEST_PAUSE_MS / 1000)

    def _renewed(self, topic: str, found: Topic | ServerError | None) -> None:
        if isinstance(found, Topic) or (found is not None and found.code not in _GONE and found.is_retriable):
            return
        places = [place for one, place in self.positions.items() if one.topic == topic]
        if found is not None and found.code not in _GONE:
            for place in places:
                self._fail(place, found)
            return
        if self._told.topic_gone():
            for place in places:
                place.trouble_since = self._loop.time()  # its group will take it away
            return
        timeout_seconds = self._cluster.options.unknown_topic_timeout_ms / 1000
        for place in places:
            if place.trouble is not None and self._loop.time() - place.trouble_since >= timeout_seconds:
                self._fail(place, UnknownTopicOrPartition("there is no such topic", topic=topic))

    def _log_moves(self, leaders: dict[TopicPartition, int | None]) -> None:
        for one, before in leaders.items():
            after = self._cluster.leader_id(*one)
            if after != before and after is not None:
                _logger.info("%s: broker %d leads it now, not %s", one, after, before)
                place = self.positions.get(one)
                if place is not None:
                    place.resting_until = 0.0

    def _is_away(self, leader_id: int, error: ClientError) -> None:
        if leader_id not in self._away_since:
            self._away_since[leader_id] = self._loop.time()
            _logger.info("broker %d gives nothing: %s", leader_id, error)

    def _is_back(self, leader_id: int) -> None:
        since = self._away_since.pop(leader_id, None)
        if since is not None:
            _logger.info("broker %d answers again after %.1f s", leader_id, self._loop.time() - since)


def _without_leader(place: PartitionPosition) -> ServerError:
    topic, partition = place.topic_partition
    return ServerError(ErrorCode.LEADER_NOT_AVAILABLE, topic=topic, partition=partition)
