"""Trying again: when, and how long."""

from __future__ import annotations

import asyncio
import random

LONGEST_PAUSE_MS = 1000
_SPREAD = 0.2


class Patience:
    """A time until which to try again, with pauses that grow. The pauses are spread, so that clients do not march."""

    def __init__(self, timeout_ms: int, first_pause_ms: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + timeout_ms / 1000
        self._pause_ms: float = first_pause_ms

    async def pause(self) -> bool:
        """Wait before the next attempt; False, at once, if there is no time for one."""
        pause_seconds = self._pause_ms * random.uniform(1 - _SPREAD, 1 + _SPREAD) / 1000
        if self._loop.time() + pause_seconds >= self._deadline:
            return False
        self._pause_ms = min(self._pause_ms * 2, LONGEST_PAUSE_MS)
        await asyncio.sleep(pause_seconds)
        return True
