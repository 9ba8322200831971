"""The broker's loop: readiness of sockets, timers, calls from other threads, and slices of background work.

One thread runs it, and all state belongs to that thread. Only `post` may be called from others. What blocks is given
to `run_blocking` and comes back as a call on the loop. Time, sockets and threads are those of a `System`, so that the
same loop runs in a simulation.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from ottla.broker.events import Events
from ottla.broker.loop.collector import LOOK_SECONDS, Collector
from ottla.broker.loop.system import READ, WRITE, Finished, LinuxSystem, ReadyCallback, System, Watched, Worker

__all__ = ["READ", "WRITE", "LongestRound", "Loop", "LoopWorker", "Timer"]

LONGEST_WAIT_SECONDS = 60.0
ROUNDS_SECONDS = 30.0  # for which the longest round is kept, and for as long again
# For how long those are served in one round who are ready, who were to be called soon, and whose time has come: the
# rest of them come first in the next round.
MOST_READY_SECONDS = 0.01
MOST_SOON_SECONDS = 0.01
MOST_TIMERS_SECONDS = 0.005
FEW_CANCELLED_TIMERS = 1000  # that may stay until they are due

events = Events("ottla.broker")

T = TypeVar("T")
Callback = Callable[[], object]
Job = Callable[[], None]


class Timer:
    """A call that is due at a time, unless it is cancelled."""

    __slots__ = ("_loop", "callback", "due")

    def __init__(self, due: float, callback: Callback, loop: Loop) -> None:
        self.due = due
        self.callback: Callback | None = callback
        self._loop = loop

    def cancel(self) -> None:
        if self.callback is not None:
            self.callback = None
            self._loop.timer_cancelled()

    def __lt__(self, other: Timer) -> bool:
        return self.due < other.due


class LongestRound:
    """How long the loop was away from its sockets at most, in the last minute or so: what a client had to wait for."""

    __slots__ = ("_before", "_now", "_until", "clock", "ever")

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.ever = 0.0
        self._now = self._before = 0.0  # of the minute that runs, and of the one before
        self._until = clock() + ROUNDS_SECONDS

    def ended(self, started: float) -> None:
        """A round that began at `started` is over."""
        ended = self.clock()
        if ended > self._until:
            self._turn(ended)
        seconds = ended - started
        if seconds > self._now:
            self._now = seconds
            self.ever = max(self.ever, seconds)

    def _turn(self, ended: float) -> None:
        self._before = self._now if ended - self._until < ROUNDS_SECONDS else 0.0
        self._now = 0.0
        self._until = ended + ROUNDS_SECONDS

    @property
    def lately(self) -> float:
        return max(self._now, self._before)


class LoopWorker:
    """A thread beside the loop: runs jobs one after the other, and calls back on the loop."""

    def __init__(self, loop: Loop, worker: Worker) -> None:
        self._loop = loop
        self._worker = worker
        self.finish = worker.finish
        self.close = worker.close
        self.abandon = worker.abandon

    def run(self, job: Job, done: Finished) -> None:
        self._worker.run(job, lambda failure: self._loop.post(lambda: done(failure)))


class Loop:
    def __init__(self, system: System | None = None) -> None:
        self.system: System = system or LinuxSystem()
        self.now = self.system.now
        self.started = self.now()  # when this round began: the time, for those to whom a few milliseconds do not matter
        self._timers: list[Timer] = []
        self._cancelled = 0  # of those
        self._ready: deque[tuple[ReadyCallback, int]] = deque()
        self._soon: deque[Callback] = deque()
        self._last: deque[Callback] = deque()
        # Called several times a round, so without a function of their own around them.
        self.call_soon: Callable[[Callback], None] = self._soon.append
        """Call when all that is ready in this round was handled."""
        self.call_last: Callable[[Callback], None] = self._last.append
        """Call at the end of this round, behind everything else."""
        self._idle: deque[Callback] = deque()
        self._idle_due = 0.0  # for the first of them
        self._posted: deque[Callback] = deque()
        self._is_stopping = False
        self.longest_round = LongestRound(self.system.now)
        self._background: Callable[[], bool] | None = None
        self._collector: Collector | None = None
        self._look_due = math.inf  # of the collector

    # Time

    def steady_ms(self) -> int:
        """Milliseconds by a clock that nobody sets, to measure how long something takes."""
        return int(self.now() * 1000)

    def call_at(self, due: float, callback: Callback) -> Timer:
        timer = Timer(due, callback, self)
        heapq.heappush(self._timers, timer)
        return timer

    def timer_cancelled(self) -> None:
        """Let go of cancelled timers when most are: some of them would be due in weeks."""
        self._cancelled += 1
        if self._cancelled > max(FEW_CANCELLED_TIMERS, len(self._timers) // 2):
            self._timers[:] = [timer for timer in self._timers if timer.callback is not None]
            heapq.heapify(self._timers)
            self._cancelled = 0

    def call_later(self, seconds: float, callback: Callback) -> Timer:
        return self.call_at(self.now() + seconds, callback)

    def call_when_idle(self, callback: Callback, within_seconds: float) -> None:
        """Call when nothing else is ready, so that it serves all who come together; at the latest in so long."""
        if not self._idle:
            self._idle_due = self.now() + within_seconds
        self._idle.append(callback)

    # Sockets

    def watch(self, watched: Watched, events: int, callback: ReadyCallback) -> None:
        self.system.watch(watched, events, callback)

    def change(self, watched: Watched, events: int, callback: ReadyCallback) -> None:
        self.system.change(watched, events, callback)

    def forget(self, watched: Watched) -> None:
        self.system.forget(watched)

    # Other threads

    def post(self, callback: Callback) -> None:
        """Call on the loop; from any thread."""
        self._posted.append(callback)
        self.system.wake()

    def run_blocking(self, job: Job, done: Finished) -> None:
        """Run a job that may block, one after the other on a thread of its own; then `done` on the loop."""
        self.system.run_blocking(job, lambda failure: self.post(lambda: done(failure)))

    def run_slow(self, job: Job, done: Finished) -> None:
        """The same for a job that may take very long: those of `run_blocking` do not wait for it."""
        self.system.run_slow(job, lambda failure: self.post(lambda: done(failure)))

    def make_worker(self, name: str) -> LoopWorker:
        """A thread of its own, for jobs that shall not wait for those of others."""
        return LoopWorker(self, self.system.make_worker(name))

    def finish_jobs(self) -> None:
        """Wait until the jobs that were given so far have run."""
        self.system.finish_jobs()

    # Running

    def set_background(self, step: Callable[[], bool] | None) -> None:
        """A step of background work, done whenever the loop comes round; False when there is none just now."""
        self._background = step

    def set_collector(self, collector: Collector) -> None:
        """Let it look at new objects between rounds, a few milliseconds after it did so before."""
        self._collector = collector
        self._look_due = 0.0

    def run(self) -> None:
        """Serve until `stop`."""
        while not self._is_stopping:
            self.run_once()

    def run_once(self) -> None:
        """One round: ready sockets, `call_soon`, due timers, idle calls, `call_last`, and one background step."""
        ready = self._ready
        if not ready:
            ready.extend(self.system.wait(self._wait_seconds()))
        rounds = self.longest_round
        began = rounds.clock()
        self.started = started = self.now()
        found = len(ready)
        while ready:
            ready_callback, ready_events = ready.popleft()
            try:
                ready_callback(ready_events)
            except Exception:  # a mistake in one callback is told, and does not end the others
                events.failure("a callback failed")
            if ready and self.now() >= started + MOST_READY_SECONDS:
                break  # those left come first in the next round
        soon, posted = self._soon, self._posted
        while posted:
            soon.append(posted.popleft())
        if soon:
            until = self.now() + MOST_SOON_SECONDS
            for _ in range(len(soon)):
                self._call(soon.popleft())
                if self.now() >= until:
                    break
        if self._timers and self._timers[0].due <= self.now():
            self._fire_timers()
        if self._idle and (found <= 1 or self.now() >= self._idle_due):  # one alone brings no more
            for _ in range(len(self._idle)):
                self._call(self._idle.popleft())
        last = self._last
        while last:
            callback = last.popleft()
            try:
                callback()
            except Exception:
                events.failure("a callback failed")
        if self._background is not None and not self._call(self._background):
            self._background = None
        if started >= self._look_due and self._collector is not None:
            self._look_due = started + LOOK_SECONDS
            self._collector.look()
        rounds.ended(began)

    @staticmethod
    def _call(callback: Callable[[], T]) -> T | None:
        try:
            return callback()
        except Exception:
            events.failure("a callback failed")
            return None

    def is_busy(self) -> bool:
        """Whether there is something to do before anything else happens."""
        return bool(
            self._ready or self._soon or self._posted or self._idle or self._last or self._background is not None
        )

    def next_due(self) -> float:
        """When the next timer is due; infinity without one."""
        timers = self._timers
        while timers and timers[0].callback is None:
            heapq.heappop(timers)
            self._cancelled -= 1
        return timers[0].due if timers else math.inf

    def _wait_seconds(self) -> float:
        if self._soon or self._posted or self._idle or self._last or self._background is not None:
            return 0.0
        timers = self._timers
        due = timers[0].due if timers and timers[0].callback is not None else self.next_due()
        seconds = due - self.now()
        if seconds <= 0.0:
            return 0.0
        return seconds if seconds < LONGEST_WAIT_SECONDS else LONGEST_WAIT_SECONDS

    def _fire_timers(self) -> None:
        timers, now = self._timers, self.now()
        until = now + MOST_TIMERS_SECONDS
        while timers and timers[0].due <= now:
            timer = heapq.heappop(timers)
            callback, timer.callback = timer.callback, None
            if callback is None:
                self._cancelled -= 1
            else:
                self._call(callback)
                if self.now() >= until:
                    return

    def run_until(self, is_done: Callable[[], bool]) -> None:
        """Serve until the condition holds: for starting and stopping a broker."""
        while not is_done():
            self.run_once()

    def stop(self) -> None:
        """End `run` after the round at hand; from any thread through `post`."""
        self._is_stopping = True

    def close(self) -> None:
        """Wait for jobs under way, and let go of everything."""
        self.system.close()
