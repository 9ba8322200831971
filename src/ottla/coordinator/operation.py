"""What one event does to a coordinator: the records it writes, the answers it gives, the timers it sets.

A machine changes its lasting state only through `Operation.write`, which replays the record at once, so that what
follows sees it. The shell appends all records of an operation in one batch and gives the answers when the batch is
committed. If the append fails, the answers become refusals: nobody was told of what did not last. The records are taken
back. Where that is not possible, the machine is thrown away and loaded from its log again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from ottla.wire.coordinator_records import RecordTypes
from ottla.wire.errors import ErrorCode
from ottla.wire.schema import Message

NO_PRODUCER = (-1, -1)
NO_TIMERS: Mapping[Hashable, int | None] = MappingProxyType({})
MOST_BYTES = 1_048_588  # max.message.bytes, unless the topic has another


class Reply:
    """Sends the answer to a request: now, in a later operation, or a refusal if the coordinator goes away.

    An answer is a response, or what the one who asked makes a response of.
    """

    __slots__ = ("_refusal", "_send")

    def __init__(self, send: Callable[[Any], None], refusal: Callable[[ErrorCode], Any]) -> None:
        self._send: Callable[[Any], None] | None = send
        self._refusal = refusal

    def send(self, response: Any) -> None:
        """Only the first answer counts: what fails later has nothing more to say."""
        send, self._send = self._send, None
        if send is not None:
            send(response)

    def refuse(self, code: ErrorCode) -> None:
        self.send(self._refusal(code))


class Written(NamedTuple):
    """A record as a machine writes it; without a value it takes away what was written under its key."""

    key: Message
    value: Message | None
    version: int


_make_written = tuple.__new__  # half the cost of its constructor


class Markers(NamedTuple):
    """The end of a transaction, to be written to each of its partitions."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    partitions: list[tuple[str, int]]
    transaction_version: int = 0  # from 2 on the epoch has risen above that of the records


Undo: TypeAlias = Callable[[], None]


class Machine(Protocol):
    """State that a log remembers, of one partition of a coordinator's topic."""

    record_types: RecordTypes

    def replay(self, key: Message, value: Message | None, producer_id: int) -> Undo | None:
        """Apply one record; of a transaction, if a producer wrote it: then it counts once that has committed.

        What takes it back while it is the last that was applied; None where that takes loading all again.
        """

    def replay_marker(self, producer_id: int, is_commit: bool) -> None:
        """A transaction that wrote records here has ended."""

    def loaded(self, operation: Operation) -> None:
        """Everything in the log was replayed: set timers, and go on with what was under way."""

    def expired(self, operation: Operation, timer: Hashable) -> None:
        """A timer that this machine set is due."""

    def pending_replies(self) -> list[Reply]:
        """Those who wait for an answer, for this machine will not give it any more."""


Event: TypeAlias = Callable[["Operation"], None]
Work: TypeAlias = Iterator[Event]


T = TypeVar("T")


def _added(to: Sequence[T], one: T) -> list[T]:
    """The list with one more; it is made for the first. An operation that loads may add thousands."""
    if isinstance(to, list):
        to.append(one)
        return to
    return [one]


class Operation:
    __slots__ = (
        "_aging_ms",
        "_machine",
        "_steady_ms",
        "_undos",
        "answers",
        "markers",
        "most_bytes",
        "now_ms",
        "producer",
        "records",
        "timers",
        "warnings",
        "work",
    )

    def __init__(
        self,
        machine: Machine,
        now_ms: int,
        producer: tuple[int, int] = NO_PRODUCER,
        most_bytes: int = MOST_BYTES,
        steady_ms: Callable[[], int] | None = None,
        aging_ms: Callable[[], int] | None = None,
    ) -> None:
        """`producer`: the id and epoch in whose transaction the records are written.

        `most_bytes`: how large a batch of the log may be. What does not fit into one is refused.

        `steady_ms`: a clock that nobody sets, to measure how long something takes. `aging_ms`: the clock by which
        offsets and transactional ids expire.
        """
        self._machine = machine
        self.now_ms = now_ms
        self._steady_ms = steady_ms
        self._aging_ms = aging_ms
        self.producer = producer
        self.most_bytes = most_bytes
        self.records: list[Written] = []
        self.answers: list[tuple[Reply, Any]] = []
        # Most operations have none of these, so lists are made when they are needed.
        self.timers: Mapping[Hashable, int | None] = NO_TIMERS  # in how many milliseconds; None: not any more
        self.markers: Sequence[Markers] = ()
        self.work: Sequence[Work] = ()
        self.warnings: Sequence[tuple[str, dict[str, object]]] = ()
        self._undos: list[Undo | None] = []  # one a record

    @property
    def steady_ms(self) -> int:
        """Milliseconds of a clock that nobody sets."""
        return self.now_ms if self._steady_ms is None else self._steady_ms()

    @property
    def aging_ms(self) -> int:
        """What time it is for what goes when it is old."""
        return self.now_ms if self._aging_ms is None else self._aging_ms()

    def write(self, key: Message, value: Message | None, version: int = 0) -> None:
        self.records.append(_make_written(Written, (key, value, version)))
        self._undos.append(self._machine.replay(key, value, self.producer[0]))

    @property
    def can_be_taken_back(self) -> bool:
        return None not in self._undos

    def take_back(self) -> None:
        """Undo what was written, which must be the last that the machine has replayed."""
        while self._undos:
            undo = self._undos.pop()
            assert undo is not None
            undo()

    def answer(self, reply: Reply, response: Any) -> None:
        """Answer when all that this operation writes is committed."""
        self.answers.append((reply, response))

    def set_timer(self, timer: Hashable, delay_ms: int) -> None:
        """Call `expired` in so long; a timer that was set before under the same name is set anew."""
        self._time(timer, delay_ms)

    def cancel_timer(self, timer: Hashable) -> None:
        self._time(timer, None)

    def _time(self, timer: Hashable, delay_ms: int | None) -> None:
        if isinstance(self.timers, dict):
            self.timers[timer] = delay_ms
        else:
            self.timers = {timer: delay_ms}

    def send_markers(self, markers: Markers) -> None:
        """End a transaction in its partitions, once what this operation writes is committed."""
        self.markers = _added(self.markers, markers)

    def warn(self, warning: str, **fields: object) -> None:
        """Have whoever runs the broker read it."""
        self.warnings = _added(self.warnings, (warning, fields))

    def go_on_with(self, work: Work) -> None:
        """Let events follow this one, each as an operation of its own and with those of others in between.

        So that nobody waits for what takes long, each should take about a millisecond.
        """
        self.work = _added(self.work, work)
