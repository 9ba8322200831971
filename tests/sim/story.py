"""What the clients of a simulation did and saw, in the order in which it happened, for the checker."""

from __future__ import annotations

from typing import Any

from ottla.testing.simulation.simulation import Simulation
from tests.checker.check import find_anomalies
from tests.checker.history import Event


class Story:
    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._moment = 0
        self.events: list[Event] = []

    def moment(self) -> int:
        """No two things happen at once."""
        self._moment += 1
        return self._moment

    def add(self, kind: type[Event], process: str, *, at_ns: int | None = None, **values: Any) -> None:
        event = kind(process=process, at_ns=self.moment() if at_ns is None else at_ns, **values)
        self.events.append(event)
        self._simulation.note(f"{process} {_short(event)}")

    def check(self) -> None:
        """Raise where something happened that must not."""
        anomalies = find_anomalies(self.events)
        assert not anomalies, "\n".join([*map(str, anomalies), self._simulation.story()])


def _short(event: Event) -> str:
    text = repr(event)
    return text[: text.index("(")] + text[text.index("at_ns") :].partition(",")[2].rstrip(")")
