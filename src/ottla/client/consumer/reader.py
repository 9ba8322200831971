"""Reading: any partitions, from any position, to an end or without one. The offsets are the caller's own."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self, TypedDict

from ottla.client.checks import check_numbers, checked_partitions, why_no_topic
from ottla.client.consumer.fetch import Answer, FetchLimits, Wanted, fetch, has_moved
from ottla.client.consumer.fetched_data import Fetched, FetchedData
from ottla.client.consumer.growth_order import GrowthOrder
from ottla.client.consumer.leader_epochs import UNKNOWN, LeaderEpochs
from ottla.client.errors import ClientError, LogTruncated, ServerError, TopicRecreated
from ottla.client.network.cluster import ClientOptions, Cluster
from ottla.client.network.retry import Patience
from ottla.client.offsets import EARLIEST, LATEST, Isolation, Position, check_position, find_offsets
from ottla.wire.errors import ErrorCode

_logger = logging.getLogger("ottla.client")

DEFAULT_WAIT_MS = 500
DEFAULT_FETCH_BYTES = FetchLimits().fetch_bytes
DEFAULT_PARTITION_BYTES = FetchLimits().partition_bytes
LEAST = {"partition_bytes": 0, "fetch_bytes": 0}
HELD_SECONDS = 0.05  # before it is looked again whether a partition may be read
ANSWER_SECONDS = 0.5  # for an answer that is on its way, however little time its caller has


@dataclass
class _Place:
    """How far a partition is read. The end is the first offset that is not wanted; None: there is none."""

    offset: int
    end_offset: int | None
    given_offset: int
    """What comes behind that which was given out."""
    leader_epochs: LeaderEpochs = field(default_factory=LeaderEpochs)

    @property
    def is_done(self) -> bool:
        return self.end_offset is not None and self.offset >= self.end_offset

    @property
    def is_given_out(self) -> bool:
        return self.is_done and self.given_offset >= self.offset


class ReaderOptions(TypedDict, total=False):
    """The options of a Reader, for faces that pass them on."""

    start: Position
    end: Position | None
    isolation: Isolation
    reset: Position | None
    partition_bytes: int
    fetch_bytes: int
    in_order: bool
    options: ClientOptions


class Reader:
    """Reads partitions of a topic: if none are named, all that there are when reading begins.

    `start` and `end` are positions: an offset, EARLIEST, LATEST or AtTime. They are looked up when reading begins;
    an end of LATEST is the end as it is then, and without an end reading goes on for ever. A leader that changes is
    followed, and a cluster that cannot be reached is waited for, `retry_timeout_ms` long.
    `reset` is where to go on when an offset is not there any more; without it that is an error. Where a log has lost
    what was read, and may have other records in its place, reading goes on from there, and without `reset` that is
    LogTruncated. `in_order`: where the topic has grown in order, what was written before a partition was added is given
    out before what is in that.
    """

    def __init__(
        self, bootstrap: str | Sequence[str], topic: str, partitions: Sequence[int] | None = None, *,
        start: Position = EARLIEST, end: Position | None = None, isolation: Isolation = Isolation.READ_COMMITTED,
        reset: Position | None = None, partition_bytes: int = DEFAULT_PARTITION_BYTES,
        fetch_bytes: int = DEFAULT_FETCH_BYTES, in_order: bool = False,
        options: ClientOptions = ClientOptions(),  # noqa: B008 - immutable
    ) -> None:  # fmt: skip
        check_numbers(locals(), LEAST)
        for position in (start, end, reset):
            check_position(position)
        if reason := why_no_topic(topic):
            raise ValueError(reason)
        self.topic = topic
        self.topic_id: bytes | None = None
        """Known when reading has begun. A topic that gets another one under the reader's hands is TopicRecreated."""
        self._cluster = Cluster(bootstrap, options)
        self._partitions = None if partitions is None else checked_partitions(partitions)
        self._start = start
        self._end = end
        self._isolation = Isolation(isolation)
        self._reset = reset
        self._limits = FetchLimits(partition_bytes, fetch_bytes)
        self._growth_order = GrowthOrder(self._cluster, topic) if in_order else None
        self._held: set[int] = set()
        self._places: dict[int, _Place] | None = None
        self._asked: dict[asyncio.Task[Answer], list[int]] = {}
        self._trouble: ClientError | None = None
        self._found: list[FetchedData] = []
        self._ready: deque[Fetched] = deque()
        self._patience: Patience | None = None
        self._preparing: asyncio.Task[None] | None = None
        """In trouble, what is to be done before anything is asked for. Longer than its caller's time, it goes on."""

    async def open(self, timeout_seconds: float | None = None) -> Self:
        """Connects. TimeoutError if that takes longer; `async with` does the same, and closes in the end."""
        async with asyncio.timeout(timeout_seconds):
            await self._cluster.open()
        return self

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._preparing is not None:
            self._preparing.cancel()  # before what it asks for, which it would add to
            await asyncio.gather(self._preparing, return_exceptions=True)
            self._preparing = None
        for task in self._asked:
            task.cancel()
        await asyncio.gather(*self._asked, return_exceptions=True)
        self._asked.clear()
        await self._cluster.close()

    async def __aiter__(self) -> AsyncIterator[Fetched]:
        """Until the end, if there is one."""
        while not self.is_done:
            if not self._ready:
                await self._fill()
            if (fetched := self._take_one()) is not None:
                yield fetched

    @property
    def is_done(self) -> bool:
        """Whether everything up to the end was given out."""
        return self._places is not None and not self._ready and all(place.is_done for place in self._places.values())

    @property
    def offsets(self) -> Mapping[int, int]:
        """The next offset of each partition: what to start from to go on. Empty before the first `poll`."""
        return {index: place.given_offset for index, place in (self._places or {}).items()}

    async def left(self) -> int:
        """How many offsets there are up to the end, or, without one, to the end as it is now."""
        places = await self._begin()
        ends = await find_offsets(self._cluster, self.topic, places, LATEST, self._isolation)
        return sum(
            max(0, (ends[index] if place.end_offset is None else place.end_offset) - place.offset)
            for index, place in places.items()
        )

    async def poll(self, wait_ms: int = DEFAULT_WAIT_MS) -> list[Fetched]:
        """What comes next, from one or several partitions; empty where nothing came within the time, or half a second
        later: an answer may be on its way."""
        if not self._ready:
            await self._fill(wait_ms)
        fetched: list[Fetched] = []
        while (one := self._take_one()) is not None:
            fetched.append(one)
        return fetched

    def _take_one(self) -> Fetched | None:
        """What was read and not given out yet."""
        if not self._ready:
            return None
        assert self._places is not None
        fetched = self._ready.popleft()
        self._places[fetched.partition].given_offset = fetched.next_offset
        return fetched

    async def _fill(self, wait_ms: int = DEFAULT_WAIT_MS) -> None:
        """Read what comes next."""
        for data in await self.poll_data(wait_ms):
            assert self._places is not None
            place = self._places[data.partition]
            records, next_offset, damage = data.sound(data.fetch_offset)
            if place.end_offset is not None and next_offset > place.end_offset:
                next_offset = place.end_offset
                records = [record for record in records if record.offset < next_offset]
            elif damage is not None:
                place.offset = next_offset  # it is asked for again, and may come whole
                place.leader_epochs.cut(next_offset)
                if not records:
                    self._trouble = damage  # told by the next call: others have good records in this one
            if records:
                place.given_offset = records[0].offset
                self._ready.append(Fetched(data.topic, data.partition, records, next_offset, data.high_watermark))
            else:
                place.given_offset = next_offset

    async def poll_data(self, wait_ms: int = DEFAULT_WAIT_MS) -> list[FetchedData]:
        """The same as bytes that are not decoded yet. There may be nothing to be seen in them.

        What comes behind them is asked for before this returns, so that it travels while the caller works.
        """
        places = await self._begin()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_ms / 1000
        while not self._found:  # else a call that had some was cancelled
            if not await self._prepared(places, deadline):
                break
            if not self._asked:
                if loop.time() >= deadline or not (self._held or self._trouble):
                    break
                if self._trouble is None:
                    await asyncio.sleep(HELD_SECONDS)  # all else was given out, or others are to come
                continue
            done, _ = await asyncio.wait(
                self._asked,
                timeout=max(deadline - loop.time(), ANSWER_SECONDS),
                return_when=asyncio.FIRST_COMPLETED,
            )
            for task in done:
                del self._asked[task]
                try:
                    self._found += self._take(places, task.result())
                except ClientError as error:
                    self._trouble = error
            if done and self._trouble is None:
                self._patience = None
            if self._trouble is not None or loop.time() >= deadline:
                break
        if self._found and self._is_well:
            await self._try_asking(places, wait_ms)
        found, self._found = self._found, []
        for data in found:
            places[data.partition].given_offset = places[data.partition].offset
        return found

    @property
    def _is_well(self) -> bool:
        """Whether what comes next can be asked for at once."""
        return self._trouble is None and self._preparing is None and self._cluster.known_topic(self.topic) is not None

    async def _prepared(self, places: dict[int, _Place], deadline: float) -> bool:
        """Whether everything is asked for that can be, before the caller's time is over."""
        loop = asyncio.get_running_loop()
        wait_ms = max(math.ceil((deadline - loop.time()) * 1000), 0)
        if self._is_well:
            await self._try_asking(places, wait_ms)
            return True
        if self._preparing is None:
            self._preparing = asyncio.create_task(self._prepare(places, wait_ms))
        await asyncio.wait([self._preparing], timeout=max(deadline - loop.time(), ANSWER_SECONDS))
        if not self._preparing.done():
            return False
        preparing, self._preparing = self._preparing, None
        preparing.result()
        return True

    async def _prepare(self, places: dict[int, _Place], wait_ms: int) -> None:
        await self._recover(places)
        await self._try_asking(places, wait_ms)

    async def _try_asking(self, places: dict[int, _Place], wait_ms: int) -> None:
        try:
            await self._ask_leaders(places, wait_ms)
        except ClientError as error:
            self._trouble = error

    async def _begin(self) -> dict[int, _Place]:
        if self._places is None:
            topic = await self._cluster.retry(lambda: self._cluster.topic(self.topic))
            self.topic_id = topic.topic_id
            indexes = list(range(len(topic.partitions))) if self._partitions is None else list(self._partitions)
            starts = await find_offsets(self._cluster, self.topic, indexes, self._start, self._isolation)
            ends: Mapping[int, int | None] = dict.fromkeys(indexes)
            if self._end is not None:
                ends = await find_offsets(self._cluster, self.topic, indexes, self._end, self._isolation)
            self._places = {index: _Place(starts[index], ends[index], starts[index]) for index in indexes}
        return self._places

    async def _ask_leaders(self, places: dict[int, _Place], wait_ms: int) -> None:
        """Each leader is asked for those partitions that nobody is asked for yet. One without a leader is trouble, and
        does not keep the others from being read."""
        if self._cluster.known_topic(self.topic) is None:
            await self._cluster.renew(self.topic, patience=self._patient())  # not with one of its own behind it
        asked = {index for indexes in self._asked.values() for index in indexes}
        if self._growth_order is not None:
            self._held = await self._growth_order.held(
                {index: place.given_offset for index, place in places.items() if not place.is_given_out}
            )
            asked |= self._held
        by_leader: defaultdict[int, list[Wanted]] = defaultdict(list)
        leaderless: list[int] = []
        await self._cluster.topic(self.topic)
        self._check_topic()
        assert self.topic_id is not None
        for index, place in places.items():
            if index not in asked and not place.is_done:
                partition = self._cluster.leader(self.topic, index)
                if partition is None:
                    leaderless.append(index)
                    continue
                leader_epoch = partition.leader_epoch
                last_epoch = place.leader_epochs.to_check(leader_epoch)
                wanted = Wanted(self.topic, self.topic_id, index, place.offset, leader_epoch, last_epoch)
                by_leader[partition.leader_id].append(wanted)
        for leader_id, all_wanted in by_leader.items():
            asking = fetch(
                self._cluster, leader_id, all_wanted, isolation=self._isolation, limits=self._limits, wait_ms=wait_ms
            )
            self._asked[asyncio.create_task(asking)] = [wanted.partition for wanted in all_wanted]
        for index in leaderless:
            await self._cluster.partition(self.topic, index)  # says what is wrong with it, or has found one

    def _check_topic(self) -> None:
        known = self._cluster.known_topic(self.topic)
        if known is not None and known.topic_id != self.topic_id:
            raise TopicRecreated("the topic was deleted and created again", topic=self.topic)

    def _take(self, places: dict[int, _Place], answer: Answer) -> list[FetchedData]:
        """What an answer brings. Trouble with one partition does not keep back what others have."""
        found: list[FetchedData] = []
        for wanted, data in answer:
            place = places[wanted.partition]
            if isinstance(data, LogTruncated):
                self._trouble = place.leader_epochs.parted(data)
                continue
            is_out_of_range = isinstance(data, ServerError) and data.code == ErrorCode.OFFSET_OUT_OF_RANGE
            if not isinstance(data, ServerError) or is_out_of_range:
                place.leader_epochs.checked(wanted.leader_epoch)
            if isinstance(data, ServerError):
                is_about_epoch = is_out_of_range and wanted.last_epoch != UNKNOWN  # or not: again without it
                if not is_about_epoch and not (data.is_retriable and has_moved(self._cluster, wanted)):
                    self._trouble = data
            elif data.size_bytes and wanted.offset == place.offset:
                place.leader_epochs.took(data.epochs)
                place.offset = data.next_offset
                if place.end_offset is not None:
                    place.offset = min(place.offset, place.end_offset)
                found.append(data)
                places[wanted.partition] = places.pop(
                    wanted.partition
                )  # it is asked for last: an answer has room for some
        return found

    async def _recover(self, places: dict[int, _Place]) -> None:
        """After trouble: wait a moment before the next attempt, or give up."""
        error, self._trouble = self._trouble, None
        if error is None:
            return
        if isinstance(error, LogTruncated) and self._reset is not None and error.partition is not None:
            _logger.warning("%s", error)
            place = places[error.partition]
            place.offset = place.given_offset = error.offset
            place.leader_epochs.begin(error.epoch)
            return
        is_out_of_range = isinstance(error, ServerError) and error.code == ErrorCode.OFFSET_OUT_OF_RANGE
        if is_out_of_range and self._reset is not None and error.partition is not None:
            found = await find_offsets(self._cluster, self.topic, [error.partition], self._reset, self._isolation)
            place = places[error.partition]
            place.offset = place.given_offset = found[error.partition]
            place.leader_epochs.begin()
            return
        if not error.is_retriable:
            raise error
        self._cluster.forget(self.topic)
        if not await self._patient().pause():
            self._patience = None  # who reads on is patient again
            raise error

    def _patient(self) -> Patience:
        """Since the last answer."""
        if self._patience is None:
            options = self._cluster.options
            self._patience = Patience(options.retry_timeout_ms, options.retry_pause_ms)
        return self._patience
