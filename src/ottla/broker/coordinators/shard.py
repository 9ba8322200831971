"""One partition of a coordinator's topic: a machine with a log, a clock and timers around it.

The log is replayed in slices between requests. Until that is done, clients are told to come again.

What the machine writes while other requests are handled becomes one batch. Its answers are sent when it is committed.
Records of a transaction make a batch of their own. What was written before them goes to the log first, as it does
before the marker that ends the transaction.
"""

from __future__ import annotations

import enum
import functools
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from ottla.broker.coordinators.loading import Replay
from ottla.broker.events import Events
from ottla.broker.loop.slices import Steps, Task, finished
from ottla.coordinator.operation import NO_PRODUCER, Machine, Operation, Work
from ottla.log.errors import LogError, StorageFailed
from ottla.log.producers import Origin
from ottla.records.batch import HEADER_SIZE, read_header
from ottla.records.build import build_batch
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.coordinators.coordinator import Coordinator
    from ottla.broker.loop.loop import Timer
    from ottla.replica.partition import Partition

events = Events("ottla.broker")

M = TypeVar("M", bound=Machine)
Encoded = list[tuple[bytes, bytes | None]]  # keys and values of records
MOST_RECORD_OVERHEAD = 32  # what a record takes in a batch besides its key and value
LOADED_AGAIN_AFTER_SECONDS = 5.0  # where a log could not be read
PASSING = frozenset(
    {ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT}
)


class ShardState(enum.Enum):
    LOADING = "loading"
    LOADED = "loaded"
    UNREADABLE = "unreadable"  # its log could not be read: it is loaded again later
    UNLOADED = "unloaded"  # for good: another takes its place, here or elsewhere


TRANSITIONS: dict[ShardState, frozenset[ShardState]] = {
    ShardState.LOADING: frozenset({ShardState.LOADED, ShardState.UNREADABLE, ShardState.UNLOADED}),
    ShardState.LOADED: frozenset({ShardState.UNLOADED}),
    ShardState.UNREADABLE: frozenset({ShardState.LOADING, ShardState.UNLOADED}),
    ShardState.UNLOADED: frozenset(),
}


class MachineTimer:
    """When a machine's timer is due, and the timer of the loop that looks after it, which may fire earlier."""

    __slots__ = ("due", "timer")

    def __init__(self, due: float, timer: Timer) -> None:
        self.due = due
        self.timer = timer


class Shard(Generic[M]):
    """One partition of a coordinator's topic, and the machine that its log remembers."""

    def __init__(self, coordinator: Coordinator[M], partition: Partition) -> None:
        self._coordinator = coordinator
        self._broker = coordinator.broker
        self.partition = partition
        self.leader_epoch = partition.leader_epoch  # in which it was made: in another one it is of no use any more
        self.machine = coordinator.make_machine(partition)
        self.state = ShardState.LOADING
        self.is_loaded = False  # its state: each request asks
        self._timers: dict[Hashable, MachineTimer] = {}
        self._gathered: list[Operation] = []  # to be written together
        self._gathered_records: Encoded = []
        self._gathered_bytes = 0
        self._uncommitted: deque[tuple[int, list[Operation]]] = deque()
        self._loading: Task | None = None
        self._reloading: Timer | None = None
        self._chores: set[Task] = set()

    def _become(self, state: ShardState) -> None:
        assert state in TRANSITIONS[self.state], f"a shard that is {self.state.value} cannot be {state.value} next"
        self.state = state
        self.is_loaded = state is ShardState.LOADED

    # Loading

    def load(self) -> None:
        """Replay the log: what is empty at once, the rest in slices."""
        steps = self._load()
        if self.partition.log.end_offset == self.partition.log.log_start_offset:
            finished(steps)
        else:
            self._loading = self._broker.loading_slices.start(steps, self._load_ended)

    def _load(self) -> Steps:
        yield from Replay(self.partition, self.machine).steps()
        self._become(ShardState.LOADED)
        self.run(self.machine.loaded)

    def _load_ended(self, _result: object, failure: Exception | None) -> None:
        self._loading = None
        if failure is not None:  # a disk that fails may be well again later; whoever asks comes again until then
            events.failure("a coordinator cannot be loaded", partition=self.partition.name)
            self._become(ShardState.UNREADABLE)
            self._reloading = self._broker.loop.call_later(LOADED_AGAIN_AFTER_SECONDS, self._load_again)

    def _load_again(self) -> None:
        self._become(ShardState.LOADING)
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
        broker, most_bytes = self._broker, self.partition.log.config.max_message_bytes
        operation = Operation(
            self.machine, broker.clock_ms(), producer, most_bytes, broker.loop.steady_ms, broker.aging_ms
        )
        try:
            event(operation)
            encoded = self._encode(operation)
        except Exception:
            events.failure("a coordinator failed", partition=self.partition.name)
            self.write_gathered()  # which is sound
            self._start_over([operation], ErrorCode.UNKNOWN_SERVER_ERROR)
            return False
        if operation.timers:
            self._set_timers(operation)
        for work in operation.work:
            self._go_on_with(work)
        for warning, fields in operation.warnings:
            events.warning(warning, **fields)
        if not encoded and not self._gathered:
            self._commit([operation])
            return True
        if producer == NO_PRODUCER or not encoded:  # a batch without records would be no batch
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
        """Keep it until the batch is written. Also one without records: it may have read what is not written yet."""
        size = 0
        for key, value in encoded:
            size += len(key) + MOST_RECORD_OVERHEAD + (0 if value is None else len(value))
        has_room = HEADER_SIZE + self._gathered_bytes + size <= operation.most_bytes
        if encoded and not has_room and not self.write_gathered([operation]):
            return False
        if not self._gathered:
            self._coordinator.call_to_write(self.write_gathered)
        self._gathered.append(operation)
        self._gathered_records += encoded
        self._gathered_bytes += size
        return True

    def _encode(self, operation: Operation) -> Encoded:
        encode = self.machine.record_types.encode
        return [encode(*record) for record in operation.records]

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
            self._coordinator.tell_failure(self.partition, failure)
            self._fail([*operations, *followers], _refusal(failure))
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
        self.partition.writer.append(batch, read_header(batch), now_ms, origin=Origin.COORDINATOR)

    def _commit(self, operations: list[Operation]) -> None:
        """Answer now if all that was written is committed, or else behind those who wait for that.

        What these operations only read counts, too: after a crash a log may hold what never came to the disk.
        """
        end_offset = self.partition.log.end_offset
        if not self._uncommitted and self.partition.is_committed(end_offset):
            self._finish(operations)
            return
        waiting = [operation for operation in operations if operation.answers or operation.markers]
        if waiting:
            self._uncommitted.append((end_offset, waiting))
            self.partition.when_committed(end_offset, functools.partial(self._committed, end_offset))

    def _committed(self, end_offset: int, failure: LogError | None) -> None:
        if failure is not None:
            if self._uncommitted:  # or it was unloaded meanwhile
                self._start_over([], _refusal(failure))
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
                    known.timer.cancel()
            else:
                self._set_timer(name, self._broker.loop.now() + delay_ms / 1000)

    def _set_timer(self, name: Hashable, due: float) -> None:
        """Move it by what is noted of it where that is possible: most timers are set anew long before they are due."""
        known = self._timers.get(name)
        if known is not None:
            if known.timer.due <= due:
                known.due = due
                return
            known.timer.cancel()
        self._timers[name] = MachineTimer(due, self._broker.loop.call_at(due, functools.partial(self._due, name)))

    def _due(self, name: Hashable) -> None:
        known = self._timers.pop(name)
        if known.due > self._broker.loop.now():
            self._set_timer(name, known.due)
        else:
            self.run(lambda operation: self.machine.expired(operation, name))

    # The end

    def _start_over(self, failed: list[Operation], code: ErrorCode) -> None:
        """What was written did not last: forget everything that followed from it, and load again."""
        self.unload(code, failed)
        self._coordinator.forget(self)

    def unload(self, code: ErrorCode, failed: Sequence[Operation] = ()) -> None:
        if self.state is not ShardState.UNLOADED:  # what was gathered may have failed on the way here
            self._become(ShardState.UNLOADED)
        for task in (self._loading, *self._chores):
            if task is not None:
                task.cancel()
        self._loading = None
        self._chores.clear()
        if self._reloading is not None:
            self._reloading.cancel()
        for known in self._timers.values():
            known.timer.cancel()
        self._timers.clear()
        waiting = [operation for _, operations in self._uncommitted for operation in operations]
        waiting += self._gathered
        self._uncommitted.clear()
        self._gathered, self._gathered_records = [], []
        for operation in (*waiting, *failed):
            for reply, _ in operation.answers:
                reply.refuse(code)
        for reply in self.machine.pending_replies():
            reply.refuse(ErrorCode.NOT_COORDINATOR)
        self._coordinator.unloaded(self)


def _refusal(failure: LogError) -> ErrorCode:
    """The code for a client whose request could not be written."""
    if isinstance(failure, StorageFailed) or failure.code in PASSING:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE  # another one may be found, or this one again later
    if failure.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return ErrorCode.NOT_COORDINATOR
    return failure.code
