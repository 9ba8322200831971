"""Reads batches as bytes, of any partitions of any topics: for programs that pass records on without reading them."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self, TypedDict

from ottla.client.checks import check_numbers
from ottla.client.consumer.fetch import Answer, FetchLimits, Wanted, fetch, has_moved
from ottla.client.consumer.fetched_data import FetchedData
from ottla.client.consumer.fetcher import CLOCK_SECONDS, LINES
from ottla.client.consumer.leader_epochs import UNKNOWN, LeaderEpochs
from ottla.client.errors import ClientError, LogTruncated, ServerError, TopicRecreated, UnknownTopicOrPartition
from ottla.client.group.offsets import Offset, TopicPartition, as_offsets, as_places
from ottla.client.network.cluster import ClientOptions, Cluster, Line
from ottla.client.network.metadata import Topic
from ottla.client.network.retry import LONGEST_PAUSE_MS
from ottla.client.network.topic_learner import Learned, TopicLearner
from ottla.client.offsets import Isolation
from ottla.wire.errors import ErrorCode

DEFAULT_WAIT_MS = 500
DEFAULT_FETCH_BYTES = 8 << 20
DEFAULT_PARTITION_BYTES = 4 << 20
LEAST = {"partition_bytes": 0, "fetch_bytes": 0}
TOLD_PAUSE_SECONDS = 1.0
"""After an error was told, for its partition: others have their turn meanwhile."""


class BatchReaderOptions(TypedDict, total=False):
    """The options of a BatchReader, for faces that pass them on."""

    isolation: Isolation
    partition_bytes: int
    fetch_bytes: int
    options: ClientOptions


class _Place:
    """How far a partition is read, and since when it gives trouble."""

    __slots__ = (
        "failures", "is_asked", "leader_epochs", "leader_id", "offset", "resting_until", "topic_id", "troubled_since",
    )  # fmt: skip

    def __init__(self, begin: Offset) -> None:
        self.offset = begin.offset
        self.leader_epochs = LeaderEpochs()
        self.leader_epochs.begin(begin.leader_epoch)
        self.topic_id: bytes | None = None
        self.is_asked = False
        self.leader_id: int | None = None
        """Who was asked last."""
        self.failures = 0
        self.troubled_since = 0.0
        self.resting_until = 0.0


class BatchReader:
    """`assign` says which partitions are read, and from which offsets on; `poll` gives what they have.

    A leader that changes is followed, and one that cannot be reached is waited for, `retry_timeout_ms` long. What
    waiting does not mend is raised by `poll`, with the topic and the partition: an offset that is gone, a topic that is
    not there, one that was deleted and created again (TopicRecreated), and a log that has lost what was read
    (LogTruncated). The others can still be read then.

    Answers are taken when they come, whoever waits for them: a `poll` that is cancelled has lost nothing.
    """

    def __init__(
        self, bootstrap: str | Sequence[str], *, isolation: Isolation = Isolation.READ_COMMITTED,
        partition_bytes: int = DEFAULT_PARTITION_BYTES, fetch_bytes: int = DEFAULT_FETCH_BYTES,
        options: ClientOptions = ClientOptions(),  # noqa: B008 - immutable
    ) -> None:  # fmt: skip
        check_numbers(locals(), LEAST)
        self._cluster = Cluster(bootstrap, options)
        self._isolation = Isolation(isolation)
        self._limits = FetchLimits(partition_bytes, fetch_bytes)
        self._places: dict[TopicPartition, _Place] = {}
        """In the order in which they are asked for."""
        self._asked: dict[asyncio.Task[Answer], tuple[int, Line, dict[TopicPartition, _Place]]] = {}
        self._found: list[FetchedData] = []
        """What came and was not given out yet."""
        self._errors: dict[TopicPartition, ClientError] = {}
        self._mistake: Exception | None = None
        """Of ours: whoever polls is told."""
        self._woken = asyncio.Event()
        self._learner: TopicLearner | None = None

    async def open(self, timeout_seconds: float | None = None) -> Self:
        """Connects. TimeoutError if that takes longer; `async with` does the same, and closes in the end."""
        async with asyncio.timeout(timeout_seconds):
            await self._cluster.open()
        self._learner = TopicLearner(self._cluster, Learned(self._learned, self._not_learned), creates=False)
        return self

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        tasks: list[asyncio.Task[Any]] = [*self._asked, *([] if self._learner is None else self._learner.tasks)]
        self._learner = None
        self._woken.set()  # whoever still polls learns that it is closed
        for task in tasks:
            task.cancel()
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            await self._cluster.close()

    def assign(self, offsets: Mapping[TopicPartition, int | Offset]) -> None:
        """Read these partitions too, or from another offset on. An Offset with the leader epoch of the record before
        it, from `FetchedData.epochs`, lets the leader look whether that is still there."""
        given = as_offsets(offsets)
        self.drop(given)
        for place, offset in given.items():
            self._places[place] = _Place(offset)
        self._woken.set()

    def drop(self, places: Iterable[TopicPartition]) -> None:
        """Read these no more."""
        dropped = set(as_places(places))
        for place in dropped:
            self._places.pop(place, None)
            self._errors.pop(place, None)
        self._found = [data for data in self._found if (data.topic, data.partition) not in dropped]

    @property
    def offsets(self) -> Mapping[TopicPartition, int]:
        """What comes next of each partition."""
        waiting = {TopicPartition(data.topic, data.partition): data.fetch_offset for data in reversed(self._found)}
        return {place: waiting.get(place, known.offset) for place, known in self._places.items()}

    async def poll(self, wait_ms: int = DEFAULT_WAIT_MS) -> list[FetchedData]:
        """What came, of one or several partitions; empty where nothing did within the time.

        What comes behind it is asked for before this returns, so that it travels while the caller works.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_ms / 1000
        while not self._found:
            self._raise_error()
            self._woken.clear()
            due = self._ask(wait_ms)
            try:
                async with asyncio.timeout_at(min(deadline, due)):
                    await self._woken.wait()
            except TimeoutError:
                if loop.time() + CLOCK_SECONDS >= deadline:
                    break
        if self._found:
            self._ask(wait_ms)
        found, self._found = self._found, []
        return found

    def _raise_error(self) -> None:
        if self._learner is None:
            raise RuntimeError("this reader is not open: use it in a `with` block, or call open() first")
        mistake, self._mistake = self._mistake, None
        if mistake is not None:
            raise mistake
        if self._errors:
            raise self._errors.pop(next(iter(self._errors)))

    # Asking. Nothing is awaited here: one leader, or one topic, that does not answer keeps no other waiting.

    def _ask(self, wait_ms: int) -> float:
        """Each leader is asked for all that it leads and is not asked for yet; when to look again.

        By two requests at most: while one waits for records, a second is for partitions that have come since.
        """
        now = asyncio.get_running_loop().time()
        busy = {(leader_id, line) for leader_id, line, _ in self._asked.values()}
        by_leader: defaultdict[int, dict[TopicPartition, _Place]] = defaultdict(dict)
        due = math.inf
        for place, known in self._places.items():
            if known.is_asked:
                continue
            if known.resting_until <= now + CLOCK_SECONDS:
                leader = self._leader(place, known)
                if not isinstance(leader, ClientError):
                    by_leader[leader][place] = known
                    continue
                self._trouble(place, known, leader)
            due = min(due, known.resting_until)
        for leader_id, asked in by_leader.items():
            line = next((line for line in LINES if (leader_id, line) not in busy), None)
            if line is None:
                continue
            asking = fetch(
                self._cluster, leader_id, [self._wanted(place, known) for place, known in asked.items()],
                isolation=self._isolation, limits=self._limits, wait_ms=wait_ms, line=line,
            )  # fmt: skip
            task = asyncio.create_task(asking)
            self._asked[task] = leader_id, line, asked
            for known in asked.values():
                known.is_asked, known.leader_id = True, leader_id
            task.add_done_callback(self._landed)
        return due

    def _leader(self, place: TopicPartition, known: _Place) -> int | ClientError:
        """Who leads a partition, or why nobody can be asked for it."""
        topic = self._cluster.known_topic(place.topic)
        if topic is None:
            self._learn(place.topic)  # what is too old serves until then
        elif not 0 <= place.partition < len(topic.partitions):
            return self._no_partition(topic, place, known)
        else:
            _remember(known, topic)
        if self._cluster.is_replaced(place.topic, known.topic_id):
            return _recreated(place)
        leader_id = self._cluster.leader_id(*place)
        if leader_id is None:
            return ServerError(ErrorCode.LEADER_NOT_AVAILABLE, topic=place.topic, partition=place.partition)
        return leader_id

    def _no_partition(self, topic: Topic, place: TopicPartition, known: _Place) -> ServerError:
        """It may have been added a moment ago."""
        seconds = asyncio.get_running_loop().time() - known.troubled_since if known.failures else 0.0
        reason = f"the topic has {len(topic.partitions)} partitions"
        if seconds * 1000 < self._cluster.options.unknown_topic_timeout_ms:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return ServerError(code, reason, topic=place.topic, partition=place.partition)
        return UnknownTopicOrPartition(reason, topic=place.topic, partition=place.partition)

    def _wanted(self, place: TopicPartition, known: _Place) -> Wanted:
        """Its leader is known, and so is its topic."""
        topic = self._cluster.last_known(place.topic)
        assert topic is not None
        _remember(known, topic)
        epoch = topic.partitions[place.partition].leader_epoch
        last_epoch = known.leader_epochs.to_check(epoch)
        return Wanted(place.topic, known.topic_id or topic.topic_id, place.partition, known.offset, epoch, last_epoch)

    def _learn(self, topic: str) -> None:
        if self._learner is not None:
            self._learner.want(topic)

    def _learned(self, topic: Topic) -> None:
        for place, known in self._places.items():
            if place.topic == topic.name:
                _remember(known, topic)
                leader_id = self._cluster.leader_id(*place)
                if known.failures and leader_id is not None and leader_id != known.leader_id:
                    known.resting_until = 0.0
        self._woken.set()

    def _not_learned(self, topic: str, error: ClientError) -> None:
        for place, known in list(self._places.items()):
            if place.topic == topic:
                self._trouble(place, known, error)

    # Answers.

    def _landed(self, task: asyncio.Task[Answer]) -> None:
        _, _, asked = self._asked.pop(task)
        for known in asked.values():
            known.is_asked = False
        self._woken.set()
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, ClientError):
            for place, known in asked.items():
                self._trouble(place, known, error)
        elif isinstance(error, Exception):
            self._mistake = error
        else:
            for wanted, data in task.result():
                self._take(wanted, asked, data)

    def _take(
        self, wanted: Wanted, asked: Mapping[TopicPartition, _Place], data: FetchedData | ServerError | LogTruncated
    ) -> None:
        place = TopicPartition(wanted.topic, wanted.partition)
        known = asked[place]
        if self._places.get(place) is not known:
            return  # it is read from elsewhere now, or no more
        if self._cluster.is_replaced(place.topic, known.topic_id):
            self._trouble(place, known, _recreated(place))  # nobody knows of which of the two this is
        elif isinstance(data, LogTruncated):
            self._trouble(place, known, known.leader_epochs.parted(data))
        elif isinstance(data, ClientError):
            is_about_epoch = data.code == ErrorCode.OFFSET_OUT_OF_RANGE and wanted.last_epoch != UNKNOWN
            if is_about_epoch:  # or not: again without it
                known.leader_epochs.checked(wanted.leader_epoch)
            elif not data.is_retriable or not has_moved(self._cluster, wanted):
                self._trouble(place, known, data)
        else:
            known.failures = 0
            known.leader_epochs.checked(wanted.leader_epoch)
            if data.size_bytes:
                known.leader_epochs.forget_before(data.fetch_offset)
                known.leader_epochs.took(data.epochs)
                known.offset = data.next_offset
                self._found.append(data)
                self._places[place] = self._places.pop(place)  # it is asked for last: an answer has room for some

    def _trouble(self, place: TopicPartition, known: _Place, error: ClientError) -> None:
        """Leave a partition alone for a while; tell if that cannot help, or has not for too long."""
        if self._places.get(place) is not known:
            return
        now = asyncio.get_running_loop().time()
        if not known.failures:
            known.troubled_since = now
        known.failures += 1
        options = self._cluster.options
        if error.is_retriable:
            self._learn(place.topic)
            if now - known.troubled_since <= options.retry_timeout_ms / 1000:
                pause_ms = min(options.retry_pause_ms * 2 ** min(known.failures - 1, 10), LONGEST_PAUSE_MS)
                known.resting_until = now + pause_ms / 1000
                return
        known.failures = 0
        known.resting_until = now + TOLD_PAUSE_SECONDS
        told = error.again()
        told.topic, told.partition = place
        self._errors[place] = told
        self._woken.set()


def _remember(known: _Place, topic: Topic) -> None:
    """Of which topic the offsets are. Brokers before 2.8 do not say."""
    if known.topic_id is None and topic.has_id:
        known.topic_id = topic.topic_id


def _recreated(place: TopicPartition) -> TopicRecreated:
    return TopicRecreated("the topic was deleted and created again", topic=place.topic, partition=place.partition)
