"""Runs housekeeping on the loop: a slice between requests, and what blocks on the other thread."""

from __future__ import annotations

from ottla.broker.events import Events
from ottla.broker.loop.loop import Loop, Timer
from ottla.log.compaction import Slow
from ottla.log.errors import LogError
from ottla.log.housekeeping import FoldersHousekeeping, Slices

events = Events("ottla.broker")


class Background:
    def __init__(self, loop: Loop, housekeeping: FoldersHousekeeping) -> None:
        self._loop = loop
        self._housekeeping = housekeeping
        self._slices: Slices | None = None
        self._is_stopped = False
        self._timer: Timer | None = None
        self._wait()

    def _wait(self) -> None:
        delay_ms = self._housekeeping.next_due_ms - self._housekeeping.steady_ms()
        self._timer = self._loop.call_later(max(delay_ms, 1) / 1000, self._begin)

    def _begin(self) -> None:
        if not self._is_stopped:
            self._slices = self._housekeeping.run()
            self._loop.set_background(self._step)

    def _step(self, failure: Exception | None = None) -> bool:
        """Do one slice; whether the next may follow at once."""
        if self._slices is None or self._is_stopped:
            return False
        try:
            job = next(self._slices) if failure is None else self._slices.throw(failure)
        except StopIteration:
            self._end()
            return False
        except (LogError, OSError) as error:
            events.warning("background work failed, and is tried again later", reason=error)
            self._end()
            return False
        except Exception:
            events.failure("background work failed, and is tried again later")
            self._end()
            return False
        if job is None:
            return True
        run = self._loop.run_slow if isinstance(job, Slow) else self._loop.run_blocking
        run(job, self._job_done)
        return False

    def _end(self) -> None:
        self._slices = None
        self._wait()

    def _job_done(self, failure: Exception | None) -> None:
        if not self._is_stopped and self._step(failure):
            self._loop.set_background(self._step)

    def stop(self) -> None:
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._slices is not None:
            self._slices.close()
