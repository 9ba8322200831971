"""The time of a simulation, and what is to happen at which moment of it. It passes only when somebody says so."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from itertools import count


class Timeline:
    def __init__(self) -> None:
        self.seconds = 0.0
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = count()

    def at(self, due: float, callback: Callable[[], object]) -> None:
        """What is due at the same moment happens in the order of the calls."""
        heapq.heappush(self._events, (due, next(self._numbers), callback))

    def after(self, seconds: float, callback: Callable[[], object]) -> None:
        self.at(self.seconds + seconds, callback)

    def next_due(self) -> float:
        return self._events[0][0] if self._events else math.inf

    def run_due(self) -> bool:
        """Let happen what is due; whether there was something."""
        events, is_any = self._events, False
        while events and events[0][0] <= self.seconds:
            is_any = True
            heapq.heappop(events)[2]()
        return is_any

    def jump_to(self, seconds: float) -> None:
        self.seconds = max(self.seconds, seconds)
