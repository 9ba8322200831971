"""Fetches that waited, and found what they waited for: answered at the end of the round, or some a round.

Thousands may wait for the same partition, and one record wakes them all.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ottla.broker.loop.loop import Loop

MOST_SECONDS = 0.005  # in one round


class WokenFetch(Protocol):
    def finish(self) -> None:
        """Look once more, and answer."""


class Woken:
    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._left: deque[WokenFetch] = deque()

    def add(self, fetch: WokenFetch) -> None:
        """Each once."""
        if not self._left:
            self._loop.call_last(self._answer)
        self._left.append(fetch)

    def _answer(self) -> None:
        left, now = self._left, self._loop.now
        until = now() + MOST_SECONDS
        try:
            while left:
                left.popleft().finish()
                if now() >= until:
                    return
        finally:  # also behind one that fails
            if left:
                self._loop.call_soon(self._answer)  # those who come meanwhile wait behind them
