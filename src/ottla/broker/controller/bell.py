"""Something has happened: whoever waits looks what it was."""

from __future__ import annotations

from collections.abc import Generator

from ottla.broker.loop.loop import Loop, Timer
from ottla.broker.loop.slices import Finished, Waiting


class Bell:
    """For one who waits. A ring that nobody waits for is heard by the next who does."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._is_rung = False
        self._waiting: Finished | None = None
        self._timer: Timer | None = None

    def ring(self) -> None:
        self._is_rung = True
        waiting, self._waiting = self._waiting, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if waiting is not None:
            self._is_rung = False
            waiting(None)

    def wait(self, seconds: float | None = None) -> Generator[Waiting, None, None]:
        """Until it rings, or for so long."""
        if self._is_rung:
            self._is_rung = False
            return
        yield Waiting(lambda finished: self._begin(finished, seconds))

    def _begin(self, finished: Finished, seconds: float | None) -> None:
        if self._is_rung:
            self._is_rung = False
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
