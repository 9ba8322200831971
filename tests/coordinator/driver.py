"""Runs a coordinator's machine without a broker: a log of bytes, a clock that is moved by hand, timers in order.

driver = Driver(lambda: GroupMachine(topics, settings))
asked = driver.ask(lambda machine, operation, reply: machine.heartbeat(operation, reply, request))
asked.response     # None until it was answered; asked.refused is the code if the coordinator went away
driver.advance(3000)
driver.crash()     # throws the machine away, and loads another one from the records written so far
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, Generic, NamedTuple, TypeVar

from ottla.coordinator.operation import NO_PRODUCER, Machine, Markers, Operation, Reply, Work
from ottla.wire.errors import ErrorCode
from ottla.wire.schema import Message

M = TypeVar("M", bound=Machine)
START_MS = 1_700_000_000_000


class Logged(NamedTuple):
    """A record as its log has it; a marker has neither a key nor a value."""

    key: bytes | None
    value: bytes | None
    producer_id: int
    is_commit: bool = False


class Asked:
    """A request under way."""

    def __init__(self) -> None:
        self.response: Any = None
        self.refused: ErrorCode | None = None
        self.reply = Reply(self._answered, self._refusal)

    def _answered(self, response: Any) -> None:
        if self.refused is None:
            self.response = response

    def _refusal(self, code: ErrorCode) -> Any:
        self.refused = code
        return None

    @property
    def is_waiting(self) -> bool:
        return self.response is None and self.refused is None


class Driver(Generic[M]):
    def __init__(self, make_machine: Callable[[], M], *, now_ms: int = START_MS) -> None:
        self._make_machine = make_machine
        self.now_ms = now_ms
        self.log: list[Logged] = []
        self.markers: list[Markers] = []  # those that the machine asked to send
        self.holds_work = False  # what operations ask to follow is left for `do_work`
        self._work: deque[Work] = deque()
        self._is_working = False
        self.is_broken = False  # nothing more can be appended: the next write fails
        self._timers: dict[Hashable, tuple[int, int]] = {}  # when each is due, and the order in which they were set
        self._timers_set = 0
        self._load()

    # Events

    def ask(self, event: Callable[[M, Operation, Reply], None], producer: tuple[int, int] = NO_PRODUCER) -> Asked:
        asked = Asked()
        if not self.run(lambda machine, operation: event(machine, operation, asked.reply), producer):
            asked.reply.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)
        return asked

    def run(self, event: Callable[[M, Operation], None], producer: tuple[int, int] = NO_PRODUCER) -> bool:
        """Let the machine deal with an event; False if what it wrote could not be kept, and it was loaded again."""
        operation = Operation(self.machine, self.now_ms, producer)
        event(self.machine, operation)
        if operation.records and self.is_broken:
            for reply, _ in operation.answers:
                reply.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            self.is_broken = False
            self.crash()
            return False
        types = self.machine.record_types
        for key, value, version in operation.records:
            self.log.append(Logged(types.encode_key(key), types.encode_value(value, version), producer[0]))
        for name, delay_ms in operation.timers.items():
            self._timers.pop(name, None)
            if delay_ms is not None:
                self._timers_set += 1
                self._timers[name] = self.now_ms + delay_ms, self._timers_set
        for reply, response in operation.answers:
            reply.send(response)
        self.markers += operation.markers
        self._work += operation.work
        if not self.holds_work and not self._is_working:
            self.do_work()
        return True

    def do_work(self, events: int | None = None) -> None:
        """Let so many events follow of those that operations asked for, or all."""
        self._is_working = True
        while self._work and events != 0:
            following = next(self._work[0], None)
            if following is None:
                self._work.popleft()
                continue
            self.run(lambda _machine, operation, following=following: following(operation))  # type: ignore[misc]
            events = None if events is None else events - 1
        self._is_working = False

    def let_the_last_go_first(self) -> None:
        """What was asked for last is done before what was begun: at a broker they take turns."""
        self._work.rotate(1)

    def append_marker(self, producer_id: int, *, is_commit: bool) -> None:
        """The end of a transaction reaches this log."""
        self.log.append(Logged(None, None, producer_id, is_commit))
        self.machine.replay_marker(producer_id, is_commit)

    # Time

    def advance(self, milliseconds: int) -> None:
        """Let time pass, and fire what becomes due, in its order."""
        end_ms = self.now_ms + milliseconds
        while self._timers:
            name = min(self._timers, key=lambda name: self._timers[name])
            due_ms, _ = self._timers[name]
            if due_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, due_ms)
            del self._timers[name]
            self.run(lambda machine, operation, name=name: machine.expired(operation, name))  # type: ignore[misc]
        self.now_ms = end_ms

    @property
    def timers(self) -> dict[Hashable, int]:
        """The timers that run, each with the milliseconds left."""
        return {name: due_ms - self.now_ms for name, (due_ms, _) in self._timers.items()}

    # The end, and the beginning

    def crash(self) -> None:
        """Throw the machine away and load its successor; who waits is told to ask somebody else."""
        for reply in self.machine.pending_replies():
            reply.refuse(ErrorCode.NOT_COORDINATOR)
        self._timers.clear()
        self._work.clear()
        self._load()

    def _load(self) -> None:
        self.machine = self._make_machine()
        types = self.machine.record_types
        for logged in self.log:
            if logged.key is None:
                self.machine.replay_marker(logged.producer_id, logged.is_commit)
                continue
            key = types.decode_key(logged.key)
            value = None if logged.value is None else types.decode_value(key, logged.value)
            self.machine.replay(key, value, logged.producer_id)
        self.run(lambda machine, operation: machine.loaded(operation))

    def records(self) -> list[tuple[Message, Message | None]]:
        """Keys and values written so far."""
        types = self.machine.record_types
        found: list[tuple[Message, Message | None]] = []
        for logged in self.log:
            if logged.key is not None:
                key = types.decode_key(logged.key)
                found.append((key, None if logged.value is None else types.decode_value(key, logged.value)))
        return found
