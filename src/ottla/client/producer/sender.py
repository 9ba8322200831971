"""The producer's one task: takes records from the buffer, routes them, and brings them to the leaders.

Everything here runs on the event loop; only the buffer is shared with other threads. This file decides when to ask
which broker. What the answer to a batch means is decided by the queue of its partition (partition_queue.py).
"""

from __future__ import annotations

import asyncio
import logging
import math
from array import array
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from typing import Any, NamedTuple, Protocol

from ottla.client.errors import (
    BrokerUnreachable,
    ClientError,
    ConnectionLost,
    DeliveryTimedOut,
    InvalidRecord,
    RequestTimedOut,
    ServerError,
)
from ottla.client.network.cluster import Cluster
from ottla.client.network.metadata import Topic
from ottla.client.network.retry import LONGEST_PAUSE_MS, Pace
from ottla.client.network.topic_learner import Learned, TopicLearner
from ottla.client.producer.batch import ANONYMOUS, Batch, Identity
from ottla.client.producer.buffer import Buffer
from ottla.client.producer.chunk import Chunk, Indexes
from ottla.client.producer.delivery import Outcome
from ottla.client.producer.failures import Failures
from ottla.client.producer.partition_queue import PartitionQueue
from ottla.client.producer.produce import Produce
from ottla.client.producer.routing import Router, no_partition
from ottla.client.producer.statistics import Counts
from ottla.client.producer.verdict import Verdict, verdict_on
from ottla.records.codec import cut
from ottla.wire.errors import ErrorCode

LARGEST_REQUEST_BYTES = 8 << 20
_SOON_SECONDS = 0.001
_logger = logging.getLogger("ottla.client")


class SenderOptions(NamedTuple):
    batch_bytes: int
    linger_ms: float
    max_in_flight: int
    delivery_timeout_ms: int
    create_topics: bool


class Sender:
    """`run` until it is cancelled. `identity` and `produce` may change while nothing is on its way.

    `identify` gives a new identity, for partitions whose producer id has no epochs left.
    """

    def __init__(
        self, cluster: Cluster, buffer: Buffer, router: Router, produce: Produce, options: SenderOptions,
        identify: Callable[[], Awaitable[Identity]] | None = None,
    ) -> None:  # fmt: skip
        self.produce = produce
        self.identity = ANONYMOUS
        self.renumbers = True
        self.gate: Gate | None = None
        self.failures = Failures()
        self.counts = Counts()
        self._cluster = cluster
        self._buffer = buffer
        self._router = router
        self._options = options
        self._identify = identify
        self._loop = asyncio.get_running_loop()
        self._is_running = self._is_woken = False
        self._over = self._loop.create_future()
        """Done when it cannot go on."""
        self._landed = asyncio.Event()
        self._unrouted: defaultdict[str, deque[Chunk]] = defaultdict(deque)
        self._queues: dict[tuple[str, int], PartitionQueue] = {}
        self._busy: dict[PartitionQueue, None] = {}
        """Those that have something waiting; whose turn it was goes to the end."""
        self._flying: dict[PartitionQueue, None] = {}
        """Those that have something in flight."""
        self._in_flight: defaultdict[int, int] = defaultdict(int)
        self._paces: dict[int, Pace] = {}
        """Of brokers that could not be asked."""
        self._learner = TopicLearner(cluster, Learned(self._found, self._abandon), creates=options.create_topics)
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = math.inf
        self._given_up: ClientError | None = None
        self._is_identifying = False
        self._mistake: BaseException | None = None
        """What a task of it ended with, which none should."""

    def wake(self) -> None:
        """There is something to do: a turn follows soon. On the event loop's thread."""
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon(self._take_turn)

    async def run(self) -> None:
        """Turns are callbacks of the event loop: a task that is woken for each would cost more than a turn does."""
        self._is_running = True
        self.wake()
        try:
            await self._over
        finally:
            self._is_running = False

    def _take_turn(self) -> None:
        self._is_woken = False
        if not self._is_running:
            return
        try:
            self._turn(self._loop.time())
        except Exception as error:
            # A mistake of ours: nobody is to wait for it for ever.
            _logger.exception("the producer cannot go on")
            self._is_running = False
            self._over.set_result(None)
            failure = ClientError(f"the producer cannot go on: {error!r}")
            self._buffer.refuse(failure)
            self.fail_all(failure)

    def _turn(self, now: float) -> None:
        if self._mistake is not None:
            raise self._mistake
        chunks, next_opened = self._buffer.collect(now - self._options.linger_ms / 1000)
        for chunk in chunks:
            self._unrouted[chunk.topic].append(chunk)
        for name in list(self._unrouted):
            is_doubtful = self._cluster.is_doubtful(name)
            is_old = is_doubtful or self._cluster.known_topic(name) is None
            if is_old:
                self._learner.want(name)  # what is known serves until then, unless it may have fewer partitions
            known = None if is_doubtful else self._cluster.last_known(name)
            self._route_all(name, known, now, is_old=is_old)
        self._dispatch(now)
        self._set_alarm(now, next_opened)

    def cancel(self) -> list[asyncio.Task[None]]:
        """Nothing is done from now on, once the loop has come round; what is still to be awaited."""
        if self._alarm is not None:
            self._alarm.cancel()
        tasks = [*self._tasks, *self._learner.tasks]
        for task in tasks:
            task.cancel()
        return tasks

    @property
    def is_idle(self) -> bool:
        return not self._unrouted and all(queue.is_idle for queue in self._queues.values())

    @property
    def requests_in_flight(self) -> int:
        return sum(self._in_flight.values())

    async def rest(self) -> None:
        """Until nothing is on its way any more."""
        while not self.is_idle:
            self._landed.clear()
            await self._landed.wait()

    def go_on(self) -> None:
        """After `give_up`: what comes from now on is sent."""
        self._given_up = None

    def become(self, identity: Identity) -> None:
        """Another identity for all that is to come. Nothing is on its way."""
        self.identity = identity
        for queue in self._queues.values():
            queue.restart(identity)

    def give_up(self, error: ClientError) -> None:
        """All that was not sent fails, and what is in flight is not sent again, until `go_on`."""
        self._given_up = error
        self._buffer.close_all()
        chunks, _ = self._buffer.collect(self._loop.time())
        unrouted = [chunk for queued in self._unrouted.values() for chunk in queued]
        self._unrouted.clear()
        for chunk in (*unrouted, *chunks):
            self._fail(chunk, error)
        for queue in self._queues.values():
            self._decide((batch, Outcome(error=error)) for batch in queue.drop())
        self._busy.clear()

    def fail_all(self, error: ClientError) -> None:
        """Everything is decided: nobody will bring answers any more."""
        self.give_up(error)
        for queue in self._queues.values():
            self._decide((batch, Outcome(error=error)) for batch in list(queue.in_flight) if batch.outcome is None)

    def _set_alarm(self, now: float, next_opened: float | None) -> None:
        """When to look again although nobody calls. One that is set for earlier stays: it sets the next one."""
        due = math.inf if next_opened is None else next_opened + self._options.linger_ms / 1000
        for queue in self._busy:
            due = min(due, queue.resting_until if queue.resting_until > now else queue.waiting[0].deadline)
        if self._busy:
            due = min([due, *(pace.free_at for pace in self._paces.values() if pace.free_at > now)])
        for chunks in self._unrouted.values():
            due = min(due, chunks[0].opened_at + self._delivery_seconds)
        for queue in self._flying:
            if (batch := queue.next_to_expire) is not None:
                due = min(due, batch.deadline)
        due = max(due, now + _SOON_SECONDS)
        if due < self._alarm_at:
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm, self._alarm_at = self._loop.call_at(due, self._alarmed), due

    def _alarmed(self) -> None:
        self._alarm, self._alarm_at = None, math.inf
        self.wake()

    @property
    def _delivery_seconds(self) -> float:
        return self._options.delivery_timeout_ms / 1000

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._mistake = error
            self.wake()

    # Routing.

    def _route_all(self, name: str, topic: Topic | None, now: float, *, is_old: bool = False) -> None:
        """Route what waits for its topic to be known."""
        chunks = self._unrouted[name]
        while chunks and topic is not None:
            try:
                self._route(topic, chunks[0], is_old=is_old)
            except ClientError as error:
                if error.is_retriable:
                    break
                self._fail(chunks[0], error)
            except Exception as error:
                _logger.exception("records cannot be routed to topic %s", name)
                self._fail(chunks[0], InvalidRecord(f"records cannot be routed: {error!r}", topic=name))
            chunks.popleft()
        while chunks and chunks[0].opened_at + self._delivery_seconds <= now:
            self._fail(chunks.popleft(), DeliveryTimedOut(f"topic {name}: no leader within the timeout", topic=name))
        if chunks:
            self._learner.want(name)
        else:
            del self._unrouted[name]

    def _route(self, topic: Topic, chunk: Chunk, *, is_old: bool) -> None:
        deadline = chunk.opened_at + self._delivery_seconds
        if chunk.copied is not None:
            if error := no_partition(topic, chunk.copied.partition):
                raise self._not_yet(topic, chunk, is_old=is_old) or error
            queue = self._queue(topic.name, chunk.copied.partition)
            queue.add_copied(chunk, deadline)
            self._busy[queue] = None
            return
        chunk.unpack()
        spread, errors = self._router.spread(topic, chunk)
        given = chunk.partitions
        is_any_missing = given is not None and any(given[index] is not None for index in errors)
        if is_any_missing and (not_yet := self._not_yet(topic, chunk, is_old=is_old)):
            raise not_yet
        if errors and chunk.is_whole:
            raise next(iter(errors.values()))
        if errors and not spread:
            self._buffer.release(chunk.size_bytes)
        left_bytes = chunk.size_bytes
        limit_bytes = self._options.batch_bytes
        # What was filled record by record was closed at the limit: a little above it is no reason to weigh each.
        ends = chunk.weigh() if chunk.size_bytes > limit_bytes * 5 // 4 else chunk.ends
        for number, (partition, indexes) in enumerate(spread.items(), 1):
            queue = self._queue(topic.name, partition)
            share = chunk.size_bytes * len(indexes) // chunk.count
            for start, end, size_bytes in _parts(indexes, share, ends, limit_bytes):
                # The last one has what is left: together they are as large as the chunk.
                is_last = number == len(spread) and end == len(indexes)
                size_bytes = left_bytes if is_last else min(size_bytes, left_bytes)
                queue.add(chunk, indexes[start:end], size_bytes, limit_bytes, deadline)
                left_bytes -= size_bytes
            self._busy[queue] = None
        if errors:
            self._fail_some(chunk, errors)

    def _not_yet(self, topic: Topic, chunk: Chunk, *, is_old: bool) -> ServerError | None:
        """A partition that is not known may have been added a moment ago: what is known of the topic is renewed."""
        if (
            not is_old
            and (self._loop.time() - chunk.opened_at) * 1000 >= self._cluster.options.unknown_topic_timeout_ms
        ):
            return None
        return ServerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic=topic.name)

    def _queue(self, topic: str, partition: int) -> PartitionQueue:
        queue = self._queues.get((topic, partition))
        if queue is None:
            queue = PartitionQueue(topic, partition, self.identity, renumbers=self.renumbers)
            self._queues[topic, partition] = queue
        return queue

    def _found(self, topic: Topic) -> None:
        """At once, for what is known may be old a moment later."""
        if topic.name in self._unrouted:
            self._route_all(topic.name, topic, self._loop.time())
        self.wake()

    def _abandon(self, name: str, error: ClientError) -> None:
        """The topic is not there, or may not be used."""
        for chunk in self._unrouted.pop(name, ()):
            self._fail(chunk, error)
        for (topic, _), queue in self._queues.items():
            if topic == name:
                self._busy.pop(queue, None)
                self._decide((batch, Outcome(error=error)) for batch in queue.drop())
        self.wake()

    # Sending.

    def _dispatch(self, now: float) -> None:
        by_leader: defaultdict[int, list[PartitionQueue]] = defaultdict(list)
        for queue in list(self._busy):
            self._decide(queue.expire(now))
            if not queue.waiting:
                del self._busy[queue]
            elif queue.needs_identity:
                self._renew_identity(queue)
            elif queue.may_send(now) and (self.gate is None or self.gate.admits(queue)):
                leader_id = self._cluster.leader_id(queue.topic, queue.index)
                if leader_id is None:
                    self._learner.want(queue.topic)
                elif leader_id not in self._paces or self._paces[leader_id].free_at <= now:
                    by_leader[leader_id].append(queue)
        for queue in self._flying:
            if queue.in_flight[0].deadline <= now:
                self._decide(queue.expire(now))
        for leader_id, queues in by_leader.items():
            # A broker that could not be asked is asked by one request first.
            most = 1 if leader_id in self._paces else self._options.max_in_flight
            while queues and self._in_flight[leader_id] < most:
                self._in_flight[leader_id] += 1
                self._start(self._deliver(leader_id, self._take(queues)))
                queues = [queue for queue in queues if queue.may_send(now)]

    def _take(self, queues: list[PartitionQueue]) -> list[Batch]:
        """A batch of each partition, as far as a request may carry them."""
        batches: list[Batch] = []
        size_bytes = 0
        for queue in queues:
            size_bytes += queue.waiting[0].size_bytes
            if batches and size_bytes > LARGEST_REQUEST_BYTES:
                break
            batches.append(queue.take())
            self._flying[queue] = None
            del self._busy[queue]
            if queue.waiting:
                self._busy[queue] = None
        return batches

    async def _deliver(self, leader_id: int, batches: list[Batch]) -> None:
        started = self._loop.time()
        try:
            outcomes = await self.produce.send(leader_id, batches)
        finally:
            self._in_flight[leader_id] -= 1
        now = self._loop.time()
        self.counts.request(now - started)
        self._note_broker(leader_id, outcomes.values())
        for batch, outcome in outcomes.items():
            queue = batch.queue
            self._decide(queue.answered(batch, outcome, now))
            if not queue.in_flight:
                self._flying.pop(queue, None)
            if self._given_up is not None:
                self._decide((dropped, Outcome(error=self._given_up)) for dropped in queue.drop())
            elif outcome.error is not None and _will_be_tried_again(outcome.error):
                self._try_again(queue, outcome.error, leader_id, now)
            if queue.waiting:
                self._busy[queue] = None
        self._landed.set()
        self.wake()

    def _try_again(self, queue: PartitionQueue, error: ClientError, asked_id: int, now: float) -> None:
        self.counts.retries += 1
        if self._cluster.leader_id(queue.topic, queue.index) not in (None, asked_id):
            return  # it is known already whom to ask
        if error.is_retriable:
            self._learner.want(queue.topic)
        elif not queue.failures:  # under other numbers, which will do; if not, nobody is hurried
            queue.failures = 1
            return
        if not isinstance(error, _UNASKED):
            # A partition in trouble is left alone for a while, longer each time.
            pause_ms = min(self._cluster.options.retry_pause_ms * 2**queue.failures, LONGEST_PAUSE_MS)
            queue.failures = min(queue.failures + 1, 10)
            queue.resting_until = now + pause_ms / 1000

    def _note_broker(self, leader_id: int, outcomes: Iterable[Outcome]) -> None:
        if any(isinstance(outcome.error, _UNASKED) for outcome in outcomes):
            pace = self._paces.get(leader_id)
            if pace is None:
                pace = self._paces[leader_id] = Pace(self._cluster.options.retry_pause_ms)
            pace.slow_down()
        else:
            self._paces.pop(leader_id, None)

    def _renew_identity(self, queue: PartitionQueue) -> None:
        """Its producer id has no epochs left."""
        if queue.identity.producer_id != self.identity.producer_id:
            queue.take_identity(self.identity)
            self.wake()
        elif not self._is_identifying and self._identify is not None:
            self._is_identifying = True
            self._start(self._ask_identity(self._identify))

    async def _ask_identity(self, identify: Callable[[], Awaitable[Identity]]) -> None:
        try:
            self.identity = await identify()
        except ClientError as error:
            _logger.info("a new producer id could not be had: %s", error)
            await asyncio.sleep(LONGEST_PAUSE_MS / 1000)
        finally:
            self._is_identifying = False
        self.wake()

    # The end.

    def _decide(self, decided: Iterable[tuple[Batch, Outcome]]) -> None:
        for batch, outcome in decided:
            self._buffer.release(batch.size_bytes)
            if outcome.offset(0) >= 0 and isinstance(batch.encoded, bytearray):
                self.produce.pool.give(batch.encoded)  # all of it was sent, for it was acknowledged
            self.counts.decided(batch, outcome)
            if outcome.error is not None:
                self._note(batch, outcome.error, batch.count)
            batch.settle(outcome)

    def _fail(self, chunk: Chunk, error: ClientError) -> None:
        self._buffer.release(chunk.size_bytes)
        self.counts.records_failed += chunk.count
        self._note(chunk, error, chunk.count)
        chunk.fail(error)

    def _fail_some(self, chunk: Chunk, errors: dict[int, ClientError]) -> None:
        self.counts.records_failed += len(errors)
        for index, error in errors.items():
            self._note((chunk, index), error, 1)
        chunk.fail_some(errors)

    def _note(self, source: Batch | Chunk | tuple[Chunk, int], error: ClientError, count: int) -> None:
        """Before it is told to those who wait: they may look for it at once."""
        _logger.info("%d records were not written: %s", count, error)
        if self.gate is not None:
            self.gate.failed(error)
        self.failures.add(source, error)


_UNASKED = (BrokerUnreachable, ConnectionLost, RequestTimedOut)


def _will_be_tried_again(error: ClientError) -> bool:
    return error.is_retriable or verdict_on(error) is Verdict.OUT_OF_STEP


class Gate(Protocol):
    """What a transaction has to say about what goes out."""

    def admits(self, queue: PartitionQueue) -> bool: ...

    def failed(self, error: ClientError) -> None: ...


def _parts(
    indexes: Indexes, share_bytes: int, ends: array[int] | None, limit_bytes: int
) -> Iterator[tuple[int, int, int]]:
    """Records in portions that fit a batch: from where to where in `indexes`, and how large."""
    if ends is None:
        yield 0, len(indexes), share_bytes
        return
    start = 0
    for end, size_bytes in cut(ends, indexes, limit_bytes):
        yield start, end, size_bytes
        start = end
