"""Trying again: when, and how long."""

from __future__ import annotations

import asyncio
import random

LONGEST_PAUSE_MS = 1000
_SPREAD = 0.2


class Patience:
    """A time until which to try again, with pauses that grow. The pauses are spread, so that clients do not march."""

    def __init__(self, timeout_ms: float, first_pause_ms: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + timeout_ms / 1000
        self._pause_ms = first_pause_ms

    async def pause(self) -> bool:
        """Wait before the next attempt; False, at once, if there is no time for one."""
        pause_seconds = _spread(self._pause_ms) / 1000
        if self._loop.time() + pause_seconds >= self._deadline:
            return False
        self._pause_ms = min(self._pause_ms * 2, LONGEST_PAUSE_MS)
        await asyncio.sleep(pause_seconds)
        return True


class Pace:
    """How soon the same may be done again: slower with each trouble, and as at first once there is none."""

    def __init__(self, first_pause_ms: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._first_pause_ms = first_pause_ms
        self._pause_ms = 0.0
        self._since = 0.0

    async def wait(self) -> None:
        """At once if the last time is long enough ago."""
        wait_seconds = self._since + self._pause_ms / 1000 - self._loop.time()
        if wait_seconds > 0:
            await asyncio.sleep(wait_seconds)
        self._since = self._loop.time()

    @property
    def free_at(self) -> float:
        return self._since + self._pause_ms / 1000

    def slow_down(self) -> None:
        self._since = self._loop.time()
        self._pause_ms = _spread(min(max(self._pause_ms * 2, self._first_pause_ms), LONGEST_PAUSE_MS))

    def recover(self) -> None:
        """The next time is not far, but not at once either."""
        self._since = self._loop.time()
        self._pause_ms = self._first_pause_ms


def _spread(pause_ms: float) -> float:
    return pause_ms * random.uniform(1 - _SPREAD, 1 + _SPREAD)
