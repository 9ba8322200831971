"""The producer's one task: takes records from the buffer, routes them, and brings them to the leaders.

Everything here runs on the event loop; only the buffer is shared with other threads.
"""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections import defaultdict, deque
from collections.abc import Coroutine, Iterable, Iterator
from typing import Any, NamedTuple

from ottla.client.errors import ClientError, DeliveryTimedOut
from ottla.client.network.cluster import Cluster
from ottla.client.network.metadata import Topic
from ottla.client.network.retry import LONGEST_PAUSE_MS
from ottla.client.producer.batch import ANONYMOUS, Batch, Identity
from ottla.client.producer.buffer import Buffer
from ottla.client.producer.chunk import Chunk, Indexes
from ottla.client.producer.delivery import Outcome
from ottla.client.producer.partition_queue import PartitionQueue
from ottla.client.producer.produce import Produce
from ottla.client.producer.routing import Router
from ottla.records.codec import cut

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
    """`run` until it is cancelled. `identity` and `produce` may change while nothing is on its way."""

    def __init__(
        self, cluster: Cluster, buffer: Buffer, router: Router, produce: Produce, options: SenderOptions
    ) -> None:
        self.produce = produce
        self.identity = ANONYMOUS
        self.renumbers = True
        self._lost: list[tuple[Batch | Chunk, ClientError]] = []
        self._cluster = cluster
        self._buffer = buffer
        self._router = router
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._unrouted: defaultdict[str, deque[Chunk]] = defaultdict(deque)
        self._queues: dict[tuple[str, int], PartitionQueue] = {}
        self._busy: dict[PartitionQueue, None] = {}
        """Those that have something waiting; whose turn it was goes to the end."""
        self._in_flight: defaultdict[int, int] = defaultdict(int)
        self._asking: set[str] = set()
        self._ask_again_at: dict[str, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._alarm: asyncio.TimerHandle | None = None
        self.gate: Gate | None = None

    def wake(self) -> None:
        self._woken.set()

    async def run(self) -> None:
        while True:
            self._woken.clear()
            now = self._loop.time()
            chunks, next_opened = self._buffer.collect(now - self._options.linger_ms / 1000)
            for chunk in chunks:
                self._unrouted[chunk.topic].append(chunk)
            for name in list(self._unrouted):
                self._route_all(name, self._cluster.known_topic(name), now)
            self._dispatch(now)
            self._set_alarm(now, next_opened)
            await self._woken.wait()

    async def stop(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def is_idle(self) -> bool:
        return not self._unrouted and all(queue.is_idle for queue in self._queues.values())

    def take_lost(self) -> list[tuple[int, ClientError]]:
        """Failures that nobody has asked for since the last call: how many records, and why."""
        lost, self._lost = self._lost, []
        return [(source.count, error) for source, error in lost if not source.is_observed]

    def become(self, identity: Identity) -> None:
        """Another identity for all that is to come. Nothing is on its way."""
        self.identity = identity
        for queue in self._queues.values():
            queue.restart(identity)

    def give_up(self, error: ClientError) -> None:
        """All that was not sent fails. What is in flight will be answered."""
        self._buffer.close_all()
        chunks, _ = self._buffer.collect(self._loop.time())
        for chunk in (*(chunk for queued in self._unrouted.values() for chunk in queued), *chunks):
            self._fail(chunk, error)
        self._unrouted.clear()
        for queue in self._queues.values():
            self._decide((batch, Outcome(error=error)) for batch in queue.drop())
        self._busy.clear()

    def _set_alarm(self, now: float, next_opened: float | None) -> None:
        """When to look again although nobody calls."""
        times = [
            queue.resting_until if queue.resting_until > now else queue.waiting[0].deadline for queue in self._busy
        ]
        times += [chunks[0].opened_at + self._delivery_seconds for chunks in self._unrouted.values()]
        if next_opened is not None:
            times.append(next_opened + self._options.linger_ms / 1000)
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if times:
            self._alarm = self._loop.call_at(max(min(times), now + _SOON_SECONDS), self.wake)

    @property
    def _delivery_seconds(self) -> float:
        return self._options.delivery_timeout_ms / 1000

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Routing.

    def _route_all(self, name: str, topic: Topic | None, now: float) -> None:
        """Route what waits for its topic to be known."""
        chunks = self._unrouted[name]
        while chunks and topic is not None:
            try:
                self._route(topic, chunks[0])
            except ClientError as error:
                if error.is_retriable:
                    break
                self._fail(chunks[0], error)
            chunks.popleft()
        while chunks and chunks[0].opened_at + self._delivery_seconds <= now:
            self._fail(chunks.popleft(), DeliveryTimedOut(f"topic {name}: no leader within the timeout", topic=name))
        if chunks:
            self._learn(name)
        else:
            del self._unrouted[name]

    def _route(self, topic: Topic, chunk: Chunk) -> None:
        deadline = chunk.opened_at + self._delivery_seconds
        chunk.unpack()
        spread = self._router.spread(topic, chunk)
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

    def _queue(self, topic: str, partition: int) -> PartitionQueue:
        queue = self._queues.get((topic, partition))
        if queue is None:
            queue = PartitionQueue(topic, partition, self.identity, renumbers=self.renumbers)
            self._queues[topic, partition] = queue
        return queue

    def _learn(self, name: str) -> None:
        """Ask who leads the topic's partitions, if nobody is asked already."""
        if name not in self._asking:
            self._asking.add(name)
            self._start(self._ask(name))

    async def _ask(self, name: str) -> None:
        try:
            # What had no leader, or could not be asked for, is asked for again only after a moment.
            await asyncio.sleep(self._ask_again_at.get(name, 0) - self._loop.time())
            topic = await self._cluster.renew(name, allow_creation=self._options.create_topics)
            if name in self._unrouted:
                self._route_all(name, topic, self._loop.time())
        except ClientError as error:
            if not error.is_retriable:
                self._abandon(name, error)
        finally:
            self._ask_again_at[name] = self._loop.time() + self._cluster.options.retry_pause_ms / 1000
            self._asking.discard(name)
            self.wake()

    def _abandon(self, name: str, error: ClientError) -> None:
        for chunk in self._unrouted.pop(name, ()):
            self._fail(chunk, error)
        for (topic, _), queue in self._queues.items():
            if topic == name:
                self._busy.pop(queue, None)
                self._decide((batch, Outcome(error=error)) for batch in queue.drop())

    # Sending.

    def _dispatch(self, now: float) -> None:
        by_leader: defaultdict[int, list[PartitionQueue]] = defaultdict(list)
        for queue in list(self._busy):
            self._decide(queue.expire(now))
            if not queue.waiting:
                del self._busy[queue]
            elif queue.may_send(now) and (self.gate is None or self.gate.admits(queue)):
                leader_id = self._cluster.leader_id(queue.topic, queue.index)
                if leader_id is None:
                    self._learn(queue.topic)
                else:
                    by_leader[leader_id].append(queue)
        for leader_id, queues in by_leader.items():
            while queues and self._in_flight[leader_id] < self._options.max_in_flight:
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
            del self._busy[queue]
            if queue.waiting:
                self._busy[queue] = None
        return batches

    async def _deliver(self, leader_id: int, batches: list[Batch]) -> None:
        outcomes = await self.produce.send(leader_id, batches)
        now = self._loop.time()
        for batch, outcome in outcomes.items():
            queue = batch.queue
            self._decide(queue.answered(batch, outcome, now))
            if outcome.error is not None and outcome.error.is_retriable:
                self._learn(queue.topic)
                self._rest(queue, now)
            if queue.waiting:
                self._busy[queue] = None
        self._in_flight[leader_id] -= 1
        self.wake()

    def _rest(self, queue: PartitionQueue, now: float) -> None:
        """A partition in trouble is left alone for a while, longer each time."""
        pause_ms = min(self._cluster.options.retry_pause_ms * 2**queue.failures, LONGEST_PAUSE_MS)
        queue.failures += 1
        queue.resting_until = now + pause_ms / 1000

    # The end.

    def _decide(self, decided: Iterable[tuple[Batch, Outcome]]) -> None:
        for batch, outcome in decided:
            self._buffer.release(batch.size_bytes)
            if outcome.offset(0) >= 0 and batch.encoded is not None:
                self.produce.pool.give(batch.encoded)  # all of it was sent, for it was acknowledged
            batch.settle(outcome)
            if outcome.error is not None:
                self._note(batch, outcome.error)

    def _fail(self, chunk: Chunk, error: ClientError) -> None:
        self._buffer.release(chunk.size_bytes)
        chunk.fail(error)
        self._note(chunk, error)

    def _note(self, source: Batch | Chunk, error: ClientError) -> None:
        _logger.info("%d records were not written: %s", source.count, error)
        if self.gate is not None:
            self.gate.failed(error)
        if not source.is_observed:
            self._lost.append((source, error))


class Gate:
    """What a transaction has to say about what goes out."""

    def admits(self, queue: PartitionQueue) -> bool:
        raise NotImplementedError

    def failed(self, error: ClientError) -> None:
        raise NotImplementedError


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
