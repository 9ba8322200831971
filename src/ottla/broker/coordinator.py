"""The shell of a coordinator: a machine for each partition of its topic, with a log, a clock and timers around it.

A machine is made when its partition is first needed, or at the start of the broker if there is something in its log.
Its log is replayed in slices between requests; until that is done, who asks is told to come again.

What a machine writes while others are still being heard becomes one batch, and the answers follow that. Records of a
transaction make a batch of their own, and come behind what was written before them, as does the marker that ends it.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from ottla.broker.coordinator_log import Replay
from ottla.broker.events import Events
from ottla.broker.slices import Steps, Task, finished
from ottla.controller.refusal import Refusal
from ottla.coordinator.operation import NO_PRODUCER, Machine, Markers, Operation, Reply, Work
from ottla.coordinator.placement import partition_for
from ottla.log.errors import LogError, StorageFailed
from ottla.log.producers import Origin
from ottla.records.batch import HEADER_SIZE, read_header
from ottla.records.build import build_batch
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.loop import Timer
    from ottla.replica.partition import Partition

events = Events("ottla.broker")

M = TypeVar("M", bound=Machine)
Encoded = list[tuple[bytes, bytes | None]]  # keys and values of records
MOST_GATHERING_SECONDS = 0.005
MOST_RECORD_OVERHEAD = 32  # what a record takes in a batch besides its key and value
RELOADED_AFTER_SECONDS = 0.1  # the first time; each time twice as long
MOST_REST_SECONDS = 10.0
LOADED_AGAIN_AFTER_SECONDS = 5.0  # where a log could not be read


class Shard(Generic[M]):
    """One partition of a coordinator's topic, and the machine that its log remembers."""

    def __init__(self, coordinator: Coordinator[M], partition: Partition) -> None:
        self._coordinator = coordinator
        self._broker = coordinator.broker
        self.partition = partition
        self.machine = coordinator.make_machine(partition)
        self.is_loaded = False
        self._timers: dict[Hashable, tuple[float, Timer]] = {}  # when each is due, and what looks after it
        self._gathered: list[Operation] = []  # to be written together
        self._gathered_records: Encoded = []
        self._gathered_bytes = 0
        self._uncommitted: deque[tuple[int, list[Operation]]] = deque()
        self._loading: Task | None = None
        self._reloading: Timer | None = None
        self._chores: set[Task] = set()

    # Loading

    def load(self) -> None:
        """Replay the log: what is empty at once, the rest in slices."""
        steps = self._load()
        if self.partition.log.end_offset == self.partition.log.log_start_offset:
            finished(steps)
        else:
            self._loading = self._broker.coordinator_slices.start(steps, self._load_ended)

    def _load(self) -> Steps:
        yield from Replay(self.partition, self.machine).steps()
        self.is_loaded = True
        self.run(self.machine.loaded)

    def _load_ended(self, _result: object, failure: Exception | None) -> None:
        self._loading = None
        if failure is not None:  # a disk that fails may be well again later; whoever asks comes again until then
            events.failure("a coordinator cannot be loaded", partition=self.partition.name)
            self._reloading = self._broker.loop.call_later(LOADED_AGAIN_AFTER_SECONDS, self._load_again)

    def _load_again(self) -> None:
        self.machine = self._coordinator.make_machine(self.partition)
        self.load()

    def replay_marker(self, producer_id: int, is_commit: bool) -> None:
        """A marker was appended to this partition."""
        if self.is_loaded:
            self.machine.replay_marker(producer_id, is_commit)

    # Running

    def run(self, event: Callable[[Operation], None], producer: tuple[int, int] = NO_PRODUCER) -> bool:
        """Let the machine deal with one event; whether that went well so far.

        What is gathered may still fail when it is written. Then those who were to be answered are refused.
        """
        most_bytes = self.partition.log.config.max_message_bytes
        operation = Operation(self.machine, self._broker.clock_ms(), producer, most_bytes)
        try:
            event(operation)
            encoded = self._encode(operation)
        except Exception:
            events.failure("a coordinator failed", partition=self.partition.name)
            self.write_gathered()  # which is sound
            self._start_over([operation], ErrorCode.UNKNOWN_SERVER_ERROR)
            return False
        self._set_timers(operation)
        for work in operation.work:
            self._go_on_with(work)
        if not encoded and not self._gathered:
            self._commit([operation])
            return True
        if producer == NO_PRODUCER:
            return self._gather(operation, encoded)
        if not self.write_gathered([operation]):  # it was decided on what did not last
            return False
        return self._write([operation], encoded)

    def _go_on_with(self, work: Work) -> None:
        """Run events, in slices that all coordinators share."""

        def steps() -> Steps:
            for event in work:
                self.run(event)
                yield None

        def ended(_result: object, failure: Exception | None) -> None:
            self._chores.discard(chore)
            if failure is not None:
                events.failure("a coordinator failed", partition=self.partition.name)

        chore = self._broker.coordinator_slices.start(steps(), ended)
        self._chores.add(chore)

    def _gather(self, operation: Operation, encoded: Encoded) -> bool:
        """Keep it until all is written. Without records, too, for it may have seen what is not written yet."""
        size = sum([len(key) + len(value or b"") + MOST_RECORD_OVERHEAD for key, value in encoded])
        has_room = HEADER_SIZE + self._gathered_bytes + size <= operation.most_bytes
        if encoded and not has_room and not self.write_gathered([operation]):
            return False
        if not self._gathered:
            self._coordinator.call_to_write(self._end_gathering)
        self._gathered.append(operation)
        self._gathered_records += encoded
        self._gathered_bytes += size
        return True

    def _encode(self, operation: Operation) -> Encoded:
        encode_key, encode_value = self.machine.record_types.encode_key, self.machine.record_types.encode_value
        return [(encode_key(key), encode_value(value, version)) for key, value, version in operation.records]

    def _end_gathering(self) -> None:
        self.write_gathered()

    def write_gathered(self, followers: Sequence[Operation] = ()) -> bool:
        """Write what was gathered so far, and answer when that is committed; whether it went well.

        `followers`: operations that have seen it, and must go with it if it fails.
        """
        if not self._gathered:
            return True
        operations, self._gathered = self._gathered, []
        records, self._gathered_records = self._gathered_records, []
        self._gathered_bytes = 0
        return self._write(operations, records, followers)

    def _write(self, operations: list[Operation], records: Encoded, followers: Sequence[Operation] = ()) -> bool:
        """Write records as one batch, of the transaction that the operations are in, if they are in one."""
        try:
            self._append(records, operations[-1].now_ms, operations[0].producer)
        except LogError as failure:
            is_lost = isinstance(failure, StorageFailed)  # then another one may be found, or this one again later
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE if is_lost else ErrorCode(failure.code)
            self._coordinator.tell_failure(self.partition, failure)
            self._fail([*operations, *followers], code)
            return False
        except Exception:
            events.failure("a coordinator failed", partition=self.partition.name)
            self._start_over([*operations, *followers], ErrorCode.UNKNOWN_SERVER_ERROR)
            return False
        self._coordinator.wrote(self.partition)
        self._commit(operations)
        return True

    def _fail(self, operations: list[Operation], code: ErrorCode) -> None:
        """What these wrote did not last, and they are the last that the machine has seen: take it back if possible."""
        is_sound = self.partition.log.failure is None
        if not is_sound or not all(operation.can_be_taken_back for operation in operations):
            self._start_over(operations, code)
            return
        for operation in reversed(operations):
            operation.take_back()
        for operation in operations:
            for reply, _ in operation.answers:
                reply.refuse(code)

    def _append(self, records: Encoded, now_ms: int, producer: tuple[int, int]) -> None:
        producer_id, producer_epoch = producer
        is_transactional = producer_id >= 0
        batch = build_batch(
            [value for _, value in records],
            keys=[key for key, _ in records],
            timestamp=now_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=0 if is_transactional else -1,
            is_transactional=is_transactional,
        )
        self.partition.append(batch, read_header(batch), now_ms, origin=Origin.COORDINATOR)

    def _commit(self, operations: list[Operation]) -> None:
        """Answer now if all that was written is committed, or else behind those who wait for that.

        What these operations only read counts, too: after a crash a log may hold what never came to the disk.
        """
        log = self.partition.log
        if not self._uncommitted and not self._broker.durability.must_wait(log):
            self._finish(operations)
            return
        waiting = [operation for operation in operations if operation.answers or operation.markers]
        if waiting:
            end_offset = log.end_offset
            self._uncommitted.append((end_offset, waiting))
            committed = functools.partial(self._committed, end_offset)
            self._broker.durability.when_committed(self.partition, end_offset, committed)

    def _committed(self, end_offset: int, failure: StorageFailed | None) -> None:
        if failure is not None:
            self._start_over([], ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        while self._uncommitted and self._uncommitted[0][0] <= end_offset:
            self._finish(self._uncommitted.popleft()[1])

    def _finish(self, operations: list[Operation]) -> None:
        for operation in operations:
            for reply, response in operation.answers:
                try:
                    reply.send(response)
                except Exception:  # what is wrong with one answer must not keep the others
                    events.failure("an answer failed", partition=self.partition.name)
            for markers in operation.markers:
                self._coordinator.send_markers(self, markers)

    # Timers

    def _set_timers(self, operation: Operation) -> None:
        for name, delay_ms in operation.timers.items():
            if delay_ms is None:
                known = self._timers.pop(name, None)
                if known is not None:
                    known[1].cancel()
            else:
                self._set_timer(name, self._broker.loop.now() + delay_ms / 1000)

    def _set_timer(self, name: Hashable, due: float) -> None:
        """Move it by what is noted of it where that is possible: most timers are set anew long before they are due."""
        known = self._timers.get(name)
        if known is not None:
            timer = known[1]
            if timer.due <= due:
                self._timers[name] = (due, timer)
                return
            timer.cancel()
        self._timers[name] = (due, self._broker.loop.call_at(due, functools.partial(self._due, name)))

    def _due(self, name: Hashable) -> None:
        due, _ = self._timers.pop(name)
        if due > self._broker.loop.now():
            self._set_timer(name, due)
        else:
            self.run(lambda operation: self.machine.expired(operation, name))

    # The end

    def _start_over(self, failed: list[Operation], code: ErrorCode) -> None:
        """What was written did not last: forget everything that followed from it, and load again."""
        self.resign(code, failed)
        self._coordinator.forget(self)

    def resign(self, code: ErrorCode, failed: Sequence[Operation] = ()) -> None:
        for task in (self._loading, *self._chores):
            if task is not None:
                task.cancel()
        self._loading = None
        self._chores.clear()
        if self._reloading is not None:
            self._reloading.cancel()
        for _, timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        waiting = [operation for _, operations in self._uncommitted for operation in operations]
        waiting += self._gathered
        self._uncommitted.clear()
        self._gathered, self._gathered_records = [], []
        for operation in (*waiting, *failed):
            for reply, _ in operation.answers:
                reply.refuse(code)
        for reply in self.machine.resigned():
            reply.refuse(ErrorCode.NOT_COORDINATOR)
        self._coordinator.resigned(self)


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
        self._failing: set[int] = set()  # partitions that could not be written to when it was last tried
        self._resting: dict[int, Timer] = {}  # those that will be loaded again
        self._starts: dict[int, int] = {}  # how often a machine was thrown away since its log was last written to
        broker.topics.watch(self._drop_deleted)

    def start(self) -> None:
        """Load what there is to load."""
        topic = self.broker.topics.by_name.get(self.topic)
        for partition in topic.partitions if topic is not None else ():
            if partition.log.end_offset > partition.log.log_start_offset:
                self._shard(partition)

    def ensure_topic(self) -> int:
        """Make the topic if it is not there; how many partitions it has, 0 if it cannot be made."""
        topic = self.broker.topics.by_name.get(self.topic)
        if topic is None:
            decision = self.broker.catalog.create_topics([self._settings()])[self.topic]
            if isinstance(decision, Refusal) and decision.message != self._told_refusal:
                self._told_refusal = decision.message  # once: every request asks again
                events.warning("a topic of the broker's own cannot be made", topic=self.topic, reason=decision.message)
            topic = self.broker.topics.by_name.get(self.topic)
        return len(topic.partitions) if topic is not None else 0

    def partition_of(self, name: str) -> int:
        """The partition that keeps a group or a transactional id; the topic is made if it has to be."""
        count = self.ensure_topic()
        return partition_for(name, count) if count else -1

    def submit(
        self,
        name: str,
        reply: Reply,
        event: Callable[[M, Operation], None],
        producer: tuple[int, int] = NO_PRODUCER,
    ) -> None:
        """Let the machine that keeps `name` deal with a request, which is refused if none can."""
        partition = self.broker.topics.partition(self.topic, self.partition_of(name))
        shard = None if partition is None else self._shard(partition)
        if shard is None:
            reply.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        if not shard.is_loaded:
            reply.refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            return
        machine = shard.machine
        # A failure refuses who was to be answered; if this one was not among them yet, it is refused here.
        if not shard.run(lambda operation: event(machine, operation), producer):
            reply.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)

    def call_to_write(self, write: Callable[[], None]) -> None:
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
        """None while it rests, and if the disk failed under its log, which may hold by now what will be lost."""
        shard = self._shards.get(partition.index)
        if shard is None and partition.log.failure is None and partition.index not in self._resting:
            shard = self._shards[partition.index] = Shard(self, partition)
            shard.load()
        return shard

    def _drop_deleted(self, topic: str) -> None:
        """Who waits for a machine whose log is gone waits in vain."""
        if topic == self.topic:
            for timer in self._resting.values():
                timer.cancel()
            self._resting.clear()
            for index, shard in list(self._shards.items()):
                if self.broker.topics.partition(topic, index) is not shard.partition:
                    del self._shards[index]
                    shard.resign(ErrorCode.NOT_COORDINATOR)

    def resigned(self, shard: Shard[M]) -> None:
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
            self._resting[index] = self.broker.loop.call_later(seconds, lambda: self._reload(shard.partition))

    def _reload(self, partition: Partition) -> None:
        self._resting.pop(partition.index, None)
        if self.broker.topics.partition(self.topic, partition.index) is partition:
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
        for shard in list(self._shards.values()):
            shard.write_gathered()
            shard.resign(ErrorCode.NOT_COORDINATOR)
        self._shards.clear()
        for timer in self._resting.values():
            timer.cancel()
        self._resting.clear()


def coordinator_topic(name: str, partitions: int, replication_factor: int, **configs: str) -> CreatableTopic:
    """How a coordinator's topic is made; setting names with underscores for dots."""
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[],
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )
