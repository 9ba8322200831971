"""How far long work has come, on one line of the terminal that is gone when the work is done."""

from __future__ import annotations

import sys
import time

SHOWN_AFTER_SECONDS = 1.0
INTERVAL_SECONDS = 0.2
_CLEAR = "\r\x1b[K"


class Progress:
    """Silent where errors do not go to a terminal."""

    def __init__(self, total_bytes: int, *, is_wanted: bool = True) -> None:
        self._total_bytes = total_bytes
        self._done_bytes = 0
        self._is_wanted = is_wanted and sys.stderr.isatty()
        self._next_time = time.monotonic() + SHOWN_AFTER_SECONDS
        self._is_shown = False

    def advance(self, what: object, done_bytes: int) -> None:
        self._done_bytes += done_bytes
        if not self._is_wanted or time.monotonic() < self._next_time:
            return
        percent = min(100 * self._done_bytes // max(self._total_bytes, 1), 100)
        sys.stderr.write(f"{_CLEAR}{percent:3} %  {what}")
        sys.stderr.flush()
        self._is_shown = True
        self._next_time = time.monotonic() + INTERVAL_SECONDS

    def clear(self) -> None:
        """Make room for other output."""
        if self._is_shown:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()
            self._is_shown = False
