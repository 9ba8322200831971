"""What writers wrote and readers read, key by key: the order in which a group gets the numbers of a key."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

PATIENCE_SECONDS = 90.0


class Ledger:
    """A writer counts each of its keys from 0 on. A reader may get numbers again, but never one before those below."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.written: dict[bytes, int] = {}  # how many of each key
        self.failures: list[str] = []
        self.gaps: dict[str, list[str]] = {}
        self._read: dict[str, dict[bytes, int]] = {}  # how many of each key, by reader
        self.places: dict[str, set[int]] = {}  # the partitions that a reader has read

    def next_number(self, key: bytes) -> int:
        with self._lock:
            number = self.written.get(key, 0)
            self.written[key] = number + 1
            return number

    def failed(self, reason: object) -> None:
        with self._lock:
            self.failures.append(str(reason))

    def read(self, reader: str, key: bytes, number: int, place: tuple[int, int]) -> None:
        with self._lock:
            counts = self._read.setdefault(reader, {})
            expected = counts.get(key, 0)
            self.places.setdefault(reader, set()).add(place[0])
            if number > expected:
                gap = f"{key!r}: {number} at {place} before {expected}"
                self.gaps.setdefault(reader, []).append(gap)
            counts[key] = max(expected, number + 1)

    def count_written(self) -> int:
        with self._lock:
            return sum(self.written.values())

    def has_all(self, reader: str) -> bool:
        with self._lock:
            return self._read.get(reader) == self.written

    def count_read(self, reader: str) -> int:
        with self._lock:
            return sum(self._read.get(reader, {}).values())

    def check(self, *readers: str) -> None:
        """Each has read everything, in order."""
        assert not self.failures, self.failures[:3]
        for reader in readers:
            wait_until(lambda: self.has_all(reader) or reader in self.gaps, f"{reader} reads all")  # noqa: B023
            assert reader not in self.gaps, (reader, len(self.gaps[reader]), self.gaps[reader][:5])


def wait_until(is_so: Callable[[], bool], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"it takes too long until {what}"
        time.sleep(0.02)
