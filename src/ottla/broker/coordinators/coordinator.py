"""The shell of a coordinator: a shard for each partition of its topic that this broker leads.

A shard is made when its partition is led here and has something in its log, or is first needed. It goes when the
partition is led by another broker, or here in another epoch: who waits is told to look for the coordinator again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic

from ottla.broker.controller.forwarding import create_topics
from ottla.broker.coordinators.shard import M, Shard
from ottla.broker.events import Events
from ottla.broker.loop.slices import Steps, Waiting
from ottla.broker.network.peer import PeerFailure
from ottla.controller.layout import NOBODY
from ottla.coordinator.operation import NO_PRODUCER, Markers, Operation, Reply
from ottla.coordinator.placement import partition_for
from ottla.log.errors import LogError
from ottla.wire.errors import ApiError, ErrorCode
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.loop.loop import Timer
    from ottla.replica.partition import Partition

events = Events("ottla.broker")

MOST_GATHERING_SECONDS = 0.01
RELOADED_AFTER_SECONDS = 0.1  # the first time; each time twice as long
MOST_REST_SECONDS = 10.0


class Coordinator(Generic[M]):
    """One kind of coordinator on this broker."""

    def __init__(
        self,
        broker: Broker,
        topic: str,
        make_machine: Callable[[Partition], M],
        settings: Callable[[], CreatableTopic],
        send_markers: Callable[[Shard[M], Markers], None] | None = None,
        linger_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        """`settings`: how the topic is to be made when it is first needed.

        `linger_ms`: for how long a machine gathers what it writes. 0: for a round of the loop; -1: until nobody else
        asks for anything, for a few milliseconds at the most.
        """
        self.broker = broker
        self.topic = topic
        self.make_machine = make_machine
        self._settings = settings
        self._send_markers = send_markers
        self._linger_ms = linger_ms
        self._shards: dict[int, Shard[M]] = {}
        self._told_refusal: str | None = None
        self._wanting_topic: list[Callable[[], None]] = []  # called when it is made, or cannot be
        self._failing: set[int] = set()  # partitions that could not be written to when it was last tried
        self._resting: dict[int, tuple[Partition, Timer]] = {}  # those that will be loaded again
        self._starts: dict[int, int] = {}  # how often a machine was thrown away since its log was last written to
        broker.topics.watch(self._drop_deleted)

    def start(self) -> None:
        """Load what there is to load."""
        for index in range(self.partition_count):
            partition = self.broker.topics.partition(self.topic, index)
            if partition is not None:
                self.role_changed(partition)

    def role_changed(self, partition: Partition) -> None:
        """This broker leads a partition of the topic, or leads it no more, or in another epoch than before."""
        index = partition.index
        shard = self._shards.get(index)
        if shard is not None and not self._is_current(shard, partition):
            del self._shards[index]
            shard.unload(ErrorCode.NOT_COORDINATOR)
        self._end_rest(index)
        self._starts.pop(index, None)
        if partition.is_leader and partition.log.end_offset > partition.log.log_start_offset:
            self._shard(partition)

    @staticmethod
    def _is_current(shard: Shard[M], partition: Partition) -> bool:
        is_same = shard.partition is partition and shard.leader_epoch == partition.leader_epoch
        return is_same and partition.is_leader

    @property
    def partition_count(self) -> int:
        """How many partitions the topic has; 0 if it is not there."""
        topic = self.broker.topics.by_name.get(self.topic)
        return topic.partition_count if topic is not None else 0

    def ensure_topic(self) -> Steps:
        """Make the topic if it is not there; how many partitions it has, 0 if it cannot be made."""
        if not self.partition_count:
            yield Waiting(lambda finished: self._make_topic(lambda: finished(None)))
        return self.partition_count

    def _make_topic(self, done: Callable[[], None]) -> None:
        self._wanting_topic.append(done)
        if len(self._wanting_topic) == 1:
            steps = create_topics(self.broker, [self._settings()])
            self.broker.request_slices.start(steps, self._topic_made)

    def _topic_made(self, decisions: dict[str, object] | None, failure: Exception | None) -> None:
        decision = (decisions or {}).get(self.topic)
        refusal = decision.message if isinstance(decision, ApiError) else None
        if isinstance(failure, PeerFailure):
            refusal, failure = str(failure), None
        if refusal is not None and not self.partition_count and refusal != self._told_refusal:
            self._told_refusal = refusal  # once: every request asks again
            events.warning("a topic of the broker's own cannot be made", topic=self.topic, reason=refusal)
        wanting, self._wanting_topic = self._wanting_topic, []
        for done in wanting:
            done()
        if failure is not None:
            raise failure

    def partition_of(self, name: str) -> int:
        """The partition that keeps a group or a transactional id; -1 if the topic is not there."""
        count = self.partition_count
        return partition_for(name, count) if count else -1

    def coordinator_id(self, name: str) -> int:
        """The broker that leads the partition of a group or a transactional id, as this broker knows; -1 if nobody."""
        count = self.partition_count
        state = self.broker.cluster.state(self.topic, partition_for(name, count)) if count else None
        return NOBODY if state is None else state.leader_id

    def submit(
        self,
        name: str,
        reply: Reply,
        event: Callable[[M, Operation], None],
        producer: tuple[int, int] = NO_PRODUCER,
    ) -> None:
        """Let the machine that keeps `name` deal with a request, which is refused if none can.

        The first request of all waits for the topic.
        """
        count = self.partition_count
        if not count:
            self._make_topic(lambda: self._submit(name, reply, event, producer))
            return
        shard = self._shards.get(partition_for(name, count))
        if shard is None or not shard.is_loaded:
            self._submit(name, reply, event, producer)
        else:
            self._run(shard, reply, event, producer)

    def _submit(
        self,
        name: str,
        reply: Reply,
        event: Callable[[M, Operation], None],
        producer: tuple[int, int],
    ) -> None:
        shard = self.find_shard(name)
        if isinstance(shard, ErrorCode):
            reply.refuse(shard)
        else:
            self._run(shard, reply, event, producer)

    def _run(
        self, shard: Shard[M], reply: Reply, event: Callable[[M, Operation], None], producer: tuple[int, int]
    ) -> None:
        # A failure refuses who was to be answered; if this one was not among them yet, it is refused here.
        if not shard.run(functools.partial(event, shard.machine), producer):
            reply.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)

    def find_shard(self, name: str) -> Shard[M] | ErrorCode:
        """The loaded shard that keeps a group or a transactional id, or why there is none here."""
        count = self.partition_count
        if not count:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        index = partition_for(name, count)
        shard = self._shards.get(index)
        if shard is None:
            partition = self.broker.topics.partition(self.topic, index)
            if partition is None or not partition.is_leader:
                return ErrorCode.NOT_COORDINATOR
            shard = self._shard(partition)
        if shard is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return shard if shard.is_loaded else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def call_to_write(self, write: Callable[[], object]) -> None:
        """Call when what a machine gathers is to be written."""
        linger_ms, loop = self._linger_ms(), self.broker.loop
        if linger_ms < 0:
            loop.call_when_idle(write, MOST_GATHERING_SECONDS)
        elif linger_ms == 0:
            loop.call_soon(write)
        else:
            loop.call_later(linger_ms / 1000, write)

    def shard_of(self, partition_index: int) -> Shard[M] | None:
        """The machine of a partition, if there is one at the moment."""
        return self._shards.get(partition_index)

    def shards(self) -> list[Shard[M]]:
        """Those that are at work."""
        return [shard for shard in self._shards.values() if shard.is_loaded]

    @property
    def is_loading(self) -> bool:
        """Whether some are loaded, or will be soon: then who asks for all of them would get only some."""
        return bool(self._resting) or any(not shard.is_loaded for shard in self._shards.values())

    def _shard(self, partition: Partition) -> Shard[M] | None:
        """Of a partition that is led here.

        None while it rests, and if the disk failed under its log, which may hold by now what will be lost.
        """
        shard = self._shards.get(partition.index)
        if shard is None and partition.log.failure is None and partition.index not in self._resting:
            shard = self._shards[partition.index] = Shard(self, partition)
            shard.load()
        return shard

    def _drop_deleted(self, topic: str) -> None:
        """A machine whose log is gone answers nobody any more: unload it."""
        if topic == self.topic:
            for index, (partition, _) in list(self._resting.items()):
                if self.broker.topics.partition(topic, index) is not partition:
                    self._end_rest(index)
            for index, shard in list(self._shards.items()):
                if self.broker.topics.partition(topic, index) is not shard.partition:
                    del self._shards[index]
                    shard.unload(ErrorCode.NOT_COORDINATOR)

    def unloaded(self, shard: Shard[M]) -> None:
        """A machine has gone; one that takes its place begins with what its log says."""

    def send_markers(self, shard: Shard[M], markers: Markers) -> None:
        assert self._send_markers is not None, "only a coordinator of transactions sends markers"
        if self._shards.get(shard.partition.index) is shard:
            self._send_markers(shard, markers)

    def forget(self, shard: Shard[M]) -> None:
        """Load this one again soon, for it has timers to keep and markers to send.

        Not at once, and later each time until something can be written again: what could not be written a moment ago
        will hardly be taken now, and loading is much work.
        """
        index = shard.partition.index
        if self._shards.get(index) is shard:
            del self._shards[index]
            starts = self._starts[index] = self._starts.get(index, 0) + 1
            seconds = min(RELOADED_AFTER_SECONDS * 2 ** min(starts - 1, 20), MOST_REST_SECONDS)
            timer = self.broker.loop.call_later(seconds, lambda: self._reload(shard.partition))
            self._resting[index] = shard.partition, timer

    def _end_rest(self, index: int) -> None:
        resting = self._resting.pop(index, None)
        if resting is not None:
            resting[1].cancel()

    def _reload(self, partition: Partition) -> None:
        self._resting.pop(partition.index, None)
        if self.broker.topics.partition(self.topic, partition.index) is partition and partition.is_leader:
            self._shard(partition)

    def tell_failure(self, partition: Partition, failure: LogError) -> None:
        """Once, for on a full disk every request fails."""
        if partition.index not in self._failing:
            self._failing.add(partition.index)
            events.warning("a coordinator cannot write", partition=partition.name, reason=failure)

    def wrote(self, partition: Partition) -> None:
        if self._failing:
            self._failing.discard(partition.index)
        if self._starts:
            self._starts.pop(partition.index, None)

    def stop(self) -> None:
        self._wanting_topic.clear()
        for shard in list(self._shards.values()):
            shard.write_gathered()
            shard.unload(ErrorCode.NOT_COORDINATOR)
        self._shards.clear()
        for index in list(self._resting):
            self._end_rest(index)


def coordinator_topic(name: str, partitions: int, replication_factor: int, **configs: str) -> CreatableTopic:
    """How a coordinator's topic is made; setting names with underscores for dots."""
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[],
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )
