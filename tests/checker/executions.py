"""Histories of a broker that does all right, drawn by Hypothesis: producers, transactions and readers interleaved."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from hypothesis import strategies as st

from tests.checker.history import Event, Isolation, Outcome, Place, Step
from tests.checker.story import INPUT, OUTPUT, Story

PLACES = (INPUT, OUTPUT)
PRODUCERS = ("producer-0", "producer-1")
TRANSACTORS = ("transactor-0", "transactor-1")
READERS = {
    "reader-0": Isolation.COMMITTED,
    "reader-1": Isolation.COMMITTED,
    "reader-2": Isolation.UNCOMMITTED,
}
AT_LAST = {"last-committed": Isolation.COMMITTED, "last-uncommitted": Isolation.UNCOMMITTED}
MARKER = ""


class Entry(NamedTuple):
    value: str
    transaction: str | None


class Execution:
    """A broker of two partitions and its clients, one event after the other."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._story = Story()
        self._logs: dict[Place, list[Entry]] = {place: [] for place in PLACES}
        self._open: dict[str, tuple[str, set[Place]]] = {}
        """The transaction of each transactor, and where it has written."""
        self._aborted: set[str] = set()
        self._positions: dict[tuple[str, Place], int] = {}
        self._count = 0

    def run(self, least: int) -> list[Event]:
        """At least so many operations."""
        operations: tuple[Callable[[], None], ...] = (self._send, self._send_in_transaction, self._end, self._read)
        for operation in self._draw(st.lists(st.sampled_from(operations), min_size=least, max_size=40)):
            operation()
        for transactor in tuple(self._open):
            self._finish(transactor, Step.ABORT)
        for reader, isolation in AT_LAST.items():
            for place in PLACES:
                self._story.see_end(reader, len(self._logs[place]), place)
                self._read_from(reader, isolation, place, len(self._logs[place]))
        return self._story.events

    def _named(self, letter: str) -> str:
        self._count += 1
        return f"{letter}{self._count}"

    def _send(self) -> None:
        process, place = self._draw(st.sampled_from(PRODUCERS)), self._draw(st.sampled_from(PLACES))
        value = self._named("v")
        self._story.invoke_send(process, value, place)
        outcome, is_written = self._draw(
            st.sampled_from([(Outcome.OK, True), (Outcome.OK, True), (Outcome.UNKNOWN, True), (Outcome.UNKNOWN, False)])
        )
        offset = len(self._logs[place])
        if is_written:
            self._logs[place].append(Entry(value, None))
        self._story.end_send(process, value, offset if outcome is Outcome.OK else -1, outcome)

    def _send_in_transaction(self) -> None:
        process, place = self._draw(st.sampled_from(TRANSACTORS)), self._draw(st.sampled_from(PLACES))
        if process not in self._open:
            self._open[process] = (self._named("t"), set())
            self._story.step(process, self._open[process][0], Step.BEGIN, Outcome.OK)
        transaction, places = self._open[process]
        value = self._named("v")
        self._story.send(process, value, len(self._logs[place]), place, transaction=transaction)
        self._logs[place].append(Entry(value, transaction))
        places.add(place)

    def _end(self) -> None:
        if self._open:
            transactor = self._draw(st.sampled_from(sorted(self._open)))
            self._finish(transactor, self._draw(st.sampled_from([Step.COMMIT, Step.COMMIT, Step.ABORT])))

    def _finish(self, transactor: str, step: Step) -> None:
        transaction, places = self._open.pop(transactor)
        outcome, takes_place = Outcome.OK, True
        if step is Step.COMMIT:
            choices = [(Outcome.OK, True), (Outcome.OK, True), (Outcome.UNKNOWN, True), (Outcome.UNKNOWN, False)]
            outcome, takes_place = self._draw(st.sampled_from(choices))
        self._story.step(transactor, transaction, step, Outcome.INVOKED)
        if step is Step.ABORT or not takes_place:
            self._aborted.add(transaction)
        for place in places:
            self._logs[place].append(Entry(MARKER, transaction))
        self._story.step(transactor, transaction, step, outcome)

    def _read(self) -> None:
        reader, place = self._draw(st.sampled_from(sorted(READERS))), self._draw(st.sampled_from(PLACES))
        if self._draw(st.booleans()) and (log := self._logs[place]):
            self._positions[reader, place] = self._draw(st.integers(0, len(log)))
            self._story.position(reader, self._positions[reader, place], place)
        self._read_from(reader, READERS[reader], place, self._draw(st.integers(1, 5)))

    def _read_from(self, reader: str, isolation: Isolation, place: Place, most: int) -> None:
        if (reader, place) not in self._positions:
            self._positions[reader, place] = 0
            self._story.position(reader, 0, place)
        position = self._positions[reader, place]
        end = min(position + most, self._last_stable(place) if isolation is Isolation.COMMITTED else 1 << 30)
        entries = list(enumerate(self._logs[place]))[position:end]
        if entries:
            records = [(offset, entry.value) for offset, entry in entries if self._is_shown(entry, isolation)]
            next_offset = entries[-1][0] + 1
            self._story.poll(reader, *records, place=place, next_offset=next_offset, isolation=isolation)
            self._positions[reader, place] = next_offset

    def _last_stable(self, place: Place) -> int:
        undecided = {transaction for transaction, _places in self._open.values()}
        log = self._logs[place]
        return next((offset for offset, entry in enumerate(log) if entry.transaction in undecided), len(log))

    def _is_shown(self, entry: Entry, isolation: Isolation) -> bool:
        if entry.value == MARKER:
            return False
        return isolation is Isolation.UNCOMMITTED or entry.transaction not in self._aborted


@st.composite
def executions(draw: st.DrawFn, least: int = 5) -> list[Event]:
    return Execution(draw).run(least)
