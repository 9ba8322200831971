"""What a task has done so far, in numbers."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

RATE_SECONDS = 10.0


@dataclass(slots=True)
class TaskMetrics:
    records: int = 0
    bytes: int = 0
    dead_letters: int = 0
    retries: int = 0
    _recent: deque[tuple[float, int]] = field(default_factory=deque)

    def add(self, records: int, size_bytes: int, now: float) -> None:
        self.records += records
        self.bytes += size_bytes
        self._recent.append((now, records))
        self._forget(now)

    def records_per_second(self, now: float) -> float:
        """Over the last ten seconds."""
        self._forget(now)
        return sum(count for _, count in self._recent) / RATE_SECONDS

    def _forget(self, now: float) -> None:
        while self._recent and self._recent[0][0] < now - RATE_SECONDS:
            self._recent.popleft()
