"""Histories made by hand: each call adds an event and lets the clock tick."""

from __future__ import annotations

from typing import Any

from tests.checker.history import (
    Assigned,
    EndSeen,
    Event,
    Isolation,
    OffsetCommitted,
    Outcome,
    Place,
    Polled,
    Positioned,
    Revoked,
    SendEnded,
    SendInvoked,
    Step,
    TransactionStep,
)

INPUT = Place("input", 0)
OUTPUT = Place("output", 0)


class Story:
    def __init__(self) -> None:
        self.events: list[Event] = []
        self._waited_ns = 0

    def _add(self, kind: type[Event], process: str, **values: Any) -> None:
        self.events.append(kind(process=process, at_ns=len(self.events) + self._waited_ns, **values))

    def wait(self, ms: int) -> None:
        self._waited_ns += ms * 1_000_000

    def invoke_send(self, process: str, value: str, place: Place = INPUT, **options: Any) -> None:
        self._add(SendInvoked, process, place=place, value=value, **options)

    def end_send(self, process: str, value: str, offset: int = -1, outcome: Outcome = Outcome.OK) -> None:
        self._add(SendEnded, process, value=value, outcome=outcome, offset=offset)

    def send(self, process: str, value: str, offset: int, place: Place = INPUT, **options: Any) -> None:
        """An acknowledged one."""
        self.invoke_send(process, value, place, **options)
        self.end_send(process, value, offset)

    def poll(
        self, process: str, *records: tuple[int, str], place: Place = INPUT, next_offset: int | None = None,
        isolation: Isolation = Isolation.COMMITTED,
    ) -> None:  # fmt: skip
        if next_offset is None:
            next_offset = records[-1][0] + 1
        self._add(Polled, process, place=place, isolation=isolation, records=records, next_offset=next_offset)

    def position(self, process: str, offset: int, place: Place = INPUT) -> None:
        self._add(Positioned, process, place=place, offset=offset)

    def assign(self, process: str, offset: int, place: Place = INPUT, group: str = "group") -> None:
        self._add(Assigned, process, group=group, place=place, offset=offset)

    def revoke(self, process: str, place: Place = INPUT) -> None:
        self._add(Revoked, process, place=place)

    def step(self, process: str, transaction: str, step: Step, outcome: Outcome) -> None:
        self._add(TransactionStep, process, transaction=transaction, step=step, outcome=outcome)

    def end(self, process: str, transaction: str, step: Step, outcome: Outcome = Outcome.OK) -> None:
        """Commit or abort, and what came of it."""
        self.step(process, transaction, step, Outcome.INVOKED)
        self.step(process, transaction, step, outcome)

    def commit_offset(
        self, process: str, offset: int, place: Place = INPUT, *, group: str = "group",
        outcome: Outcome = Outcome.OK, transaction: str | None = None,
    ) -> None:  # fmt: skip
        values = {"place": place, "offset": offset, "group": group}
        self._add(OffsetCommitted, process, outcome=outcome, transaction=transaction, **values)

    def see_end(self, process: str, offset: int, place: Place = INPUT) -> None:
        self._add(EndSeen, process, place=place, offset=offset)
