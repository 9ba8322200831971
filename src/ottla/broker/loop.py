"""The broker's loop: readiness of sockets, timers, calls from other threads, and slices of background work.

One thread runs it, and all state belongs to that thread. Only `post` may be called from others. What blocks is given
to `run_blocking`, which has one thread of its own, and comes back as a call on the loop.
"""

from __future__ import annotations

import heapq
import os
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Protocol, TypeVar

from ottla.broker.events import Events

READ = selectors.EVENT_READ
WRITE = selectors.EVENT_WRITE
LONGEST_WAIT_SECONDS = 60.0

events = Events("ottla.broker")

T = TypeVar("T")
Callback = Callable[[], None]
ReadyCallback = Callable[[int], None]


class Watched(Protocol):
    def fileno(self) -> int: ...


class Timer:
    """A call that is due at a time, unless it is cancelled."""

    __slots__ = ("callback", "due")

    def __init__(self, due: float, callback: Callback) -> None:
        self.due = due
        self.callback: Callback | None = callback

    def cancel(self) -> None:
        self.callback = None

    def __lt__(self, other: Timer) -> bool:
        return self.due < other.due


class Loop:
    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[Timer] = []
        self._soon: deque[Callback] = deque()
        self._posted: deque[Callback] = deque()
        self._is_stopping = False
        self._background: Callable[[], bool] | None = None
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._wake_read, READ, self._woken)
        self._jobs: SimpleQueue[tuple[Callback, Callable[[Exception | None], None]] | None] = SimpleQueue()
        self._worker: threading.Thread | None = None

    # Time

    def now(self) -> float:
        """Seconds on a clock that never goes back."""
        return time.monotonic()

    def call_at(self, due: float, callback: Callback) -> Timer:
        timer = Timer(due, callback)
        heapq.heappush(self._timers, timer)
        return timer

    def call_later(self, seconds: float, callback: Callback) -> Timer:
        return self.call_at(self.now() + seconds, callback)

    def call_soon(self, callback: Callback) -> None:
        """Call when the events at hand have been dealt with."""
        self._soon.append(callback)

    # Sockets

    def watch(self, watched: Watched, events: int, callback: ReadyCallback) -> None:
        self._selector.register(watched, events, callback)

    def change(self, watched: Watched, events: int, callback: ReadyCallback) -> None:
        self._selector.modify(watched, events, callback)

    def forget(self, watched: Watched) -> None:
        self._selector.unregister(watched)

    # Other threads

    def post(self, callback: Callback) -> None:
        """Call on the loop; from any thread."""
        self._posted.append(callback)
        try:
            os.write(self._wake_write, b"\0")
        except BlockingIOError:
            pass  # it will wake up anyway

    def _woken(self, _events: int) -> None:
        os.read(self._wake_read, 4096)
        while self._posted:
            self._soon.append(self._posted.popleft())

    def run_blocking(self, job: Callback, done: Callable[[Exception | None], None]) -> None:
        """Run a job that may block, one after the other on a thread of its own; then `done` on the loop."""
        if self._worker is None:
            self._worker = threading.Thread(target=self._work, name="ottla-blocking", daemon=True)
            self._worker.start()
        self._jobs.put((job, done))

    def _work(self) -> None:
        while (entry := self._jobs.get()) is not None:
            job, done = entry
            failure: Exception | None = None
            try:
                job()
            except Exception as error:
                failure = error
            self.post(lambda done=done, failure=failure: done(failure))  # type: ignore[misc]

    # Running

    def set_background(self, step: Callable[[], bool] | None) -> None:
        """A step of background work, done whenever the loop comes round; False when there is none just now."""
        self._background = step

    def run(self) -> None:
        """Serve until `stop`."""
        while not self._is_stopping:
            self.run_once()

    def run_once(self) -> None:
        """One round: what is ready, what was asked for soon, what is due, and a step in the background."""
        for key, events in self._selector.select(self._wait_seconds()):
            self._call(key.data, events)
        soon = self._soon
        for _ in range(len(soon)):
            self._call(soon.popleft())
        self._fire_timers()
        if self._background is not None and not self._call(self._background):
            self._background = None

    @staticmethod
    def _call(callback: Callable[..., T], *arguments: int) -> T | None:
        """A mistake in one callback is told, and does not end the others."""
        try:
            return callback(*arguments)
        except Exception:
            events.failure("a callback failed")
            return None

    def _wait_seconds(self) -> float:
        if self._soon or self._background is not None:
            return 0.0
        timers = self._timers
        while timers and timers[0].callback is None:
            heapq.heappop(timers)
        if not timers:
            return LONGEST_WAIT_SECONDS
        return max(0.0, min(timers[0].due - self.now(), LONGEST_WAIT_SECONDS))

    def _fire_timers(self) -> None:
        timers = self._timers
        if not timers:
            return
        now = self.now()
        while timers and timers[0].due <= now:
            callback = heapq.heappop(timers).callback
            if callback is not None:
                self._call(callback)

    def stop(self) -> None:
        """End `run` after the round at hand; from any thread through `post`."""
        self._is_stopping = True

    def close(self) -> None:
        """Wait for jobs under way, and let go of everything."""
        if self._worker is not None:
            self._jobs.put(None)
            self._worker.join()
        self._selector.close()
        os.close(self._wake_read)
        os.close(self._wake_write)
