"""Something has happened: whoever waits looks what it was."""

from __future__ import annotations

from collections.abc import Callable, Generator

from ottla.broker.loop.loop import Loop, Timer
from ottla.broker.loop.slices import Finished, Waiting

Pause = Callable[[float], Generator[Waiting, None, None]]


class Wakeup:
    """For one who waits. One that comes while nobody waits is for the next who does."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._is_set = False
        self._waiting: Finished | None = None
        self._timer: Timer | None = None

    def set(self) -> None:
        self._is_set = True
        waiting, self._waiting = self._waiting, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if waiting is not None:
            self._is_set = False
            waiting(None)

    def wait(self, seconds: float | None = None) -> Generator[Waiting, None, None]:
        """Until it comes, or for so long."""
        if self._is_set:
            self._is_set = False
            return
        yield Waiting(lambda finished: self._begin(finished, seconds))

    def rest(self, seconds: float) -> Generator[Waiting, None, None]:
        """For so long, whatever comes meanwhile: that is for the next who waits.

        For one who has failed: what it did before may be what would wake it, again and again.
        """
        yield Waiting(lambda finished: self._later(seconds, finished))

    def _later(self, seconds: float, finished: Finished) -> None:
        self._loop.call_later(seconds, lambda: finished(None))

    def _begin(self, finished: Finished, seconds: float | None) -> None:
        if self._is_set:
            self._is_set = False
            finished(None)
            return
        self._waiting = finished
        if seconds is not None:
            self._timer = self._loop.call_later(seconds, self._over)

    def _over(self) -> None:
        self._timer = None
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting(None)
