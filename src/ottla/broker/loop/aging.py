"""The time by which records, offsets and transactional ids are old enough to go.

What goes does not come back, and the clock of a machine may be set ahead by mistake. So a leap of the clock counts only
when it has lasted for an hour: until then, time passes as it does by a clock that nobody sets.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.events import Events

LEAP_MS = 60_000
PATIENCE_MS = 3_600_000

events = Events("ottla.broker")


class AgingClock:
    def __init__(self, clock_ms: Callable[[], int], steady_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self._steady_ms = steady_ms
        self._last_ms = clock_ms()
        self._looked_ms = steady_ms()
        self._leapt_ms: int | None = None  # when the clock was first seen to be ahead

    def __call__(self) -> int:
        now_ms, steady_ms = self._clock_ms(), self._steady_ms()
        expected_ms = self._last_ms + steady_ms - self._looked_ms
        if now_ms - expected_ms <= LEAP_MS:
            self._leapt_ms = None
        elif self._leapt_ms is None:
            self._leapt_ms = steady_ms
            minutes = (now_ms - expected_ms) // 60_000
            events.warning("the clock was set ahead; nothing is too old by that for an hour", minutes=minutes)
        elif steady_ms - self._leapt_ms >= PATIENCE_MS:
            self._leapt_ms = None
        self._last_ms = now_ms if self._leapt_ms is None else expected_ms
        self._looked_ms = steady_ms
        return self._last_ms
